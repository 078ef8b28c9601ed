"""Reads the layout of many pages in one call, without an Arrow object per page.

A page is an encapsulated Arrow IPC message (Arrow columnar format, "Encapsulated message format")::

    0xFFFFFFFF | int32 size of the metadata | metadata, a flatbuffer | body

    Message     { version; header type; header -> RecordBatch; body length }
    RecordBatch { rows; nodes [(length, null count)]; buffers [(offset, length)]; compression }

A flatbuffer *table* begins with the distance back to its *vtable*, which has the place of each
field in the table, or 0 for an absent field. A reference is the distance forward to its target.

:func:`open_pages` trusts a page. :func:`check_pages` trusts nothing: every position is compared
with the page's bounds before it is read, so that no content can make it read outside the page.
"""

import numpy as np

from semistream.kernels.column_check import check_nodes
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    load_int16,
    load_int32,
    load_int64,
    load_uint8,
    load_uint16,
    load_uint32,
)
from semistream.kernels.page_nodes import (
    COLUMN,
    COMPRESSED,
    CONTENT,
    FINE,
    OUTSIDE,
    UNREADABLE,
    VALIDITY,
    VALUES,
    WRONG_COLUMNS,
    WRONG_ROWS,
)

_PREFIX = 8  # bytes before the metadata
_VERSION_5 = 4  # as the format encodes it
_RECORD_BATCH = 3

# Numbers of the fields in the tables' definitions, Message.fbs of the Arrow format.
_MESSAGE_VERSION, _HEADER_TYPE, _HEADER, _BODY_LENGTH, _MESSAGE_EXTRA = range(5)
_ROWS, _NODES, _BUFFERS, _COMPRESSION, _VARIADIC = range(5)


@compiled
def open_pages(pages, buffers, addresses, lengths, rows):
    """Find IPC buffers of pages that were checked before.

    ``addresses[b, p]`` becomes the address of buffer number ``buffers[b]`` of the page at address
    ``pages[p]``, ``lengths[b, p]`` its bytes, and ``rows[p]`` the page's rows. A validity buffer
    has no bytes if and only if its column has no nulls.
    """
    for p in range(len(pages)):
        metadata = pages[p] + _PREFIX
        message = _target(metadata)
        batch = _target(_known_field(message, _HEADER))
        entries = _target(_known_field(batch, _BUFFERS)) + 4
        body = metadata + load_int32(pages[p] + 4)
        count = _known_field(batch, _ROWS)
        rows[p] = load_int64(count) if count != batch else 0  # a zero is not stored
        for b in range(len(buffers)):
            entry = entries + 16 * buffers[b]
            addresses[b, p] = body + load_int64(entry)
            lengths[b, p] = load_int64(entry + 8)


@compiled
def message_numbers(message):
    """The addresses of a message's numbers: its rows, the length of its body, the first of its
    nodes, and the first of its buffers. It must have rows and a body: a zero is not stored."""
    metadata = message + _PREFIX
    table = _target(metadata)
    batch = _target(_known_field(table, _HEADER))
    nodes, entries = _known_field(batch, _NODES), _known_field(batch, _BUFFERS)
    return (
        _known_field(batch, _ROWS),
        _known_field(table, _BODY_LENGTH),
        _target(nodes) + 4,
        _target(entries) + 4,
    )


@compiled(inline=True)
def _target(reference):
    return reference + np.int64(load_uint32(reference))


@compiled(inline=True)
def _known_field(table, number):
    """The address of a field; that of the table if the field is absent."""
    vtable = table - load_int32(table)
    return table + np.int64(load_uint16(vtable + 4 + 2 * number))


@compiled
def check_pages(pages, sizes, rows, nodes, buffers, problem):
    """Check the structure of pages of ``sizes[p]`` bytes, which should have ``rows[p]`` rows.

    ``nodes`` describes the schema (see page_nodes.py), which has this many IPC ``buffers``.
    ``problem[p, 0]`` becomes the problem of page ``p`` or FINE, and ``problem[p, 1]`` its column,
    or the rows that were found.
    """
    for p in range(len(pages)):
        found, where, _, heads, entries, body, body_bytes = layout(
            pages[p], sizes[p], rows[p], nodes, buffers
        )
        if found == FINE:
            found, where = _check_buffers(nodes, entries, buffers, body_bytes)
        if found == FINE:
            found, where = check_nodes(nodes, rows[p], heads, entries, body)
        problem[p, 0] = found
        problem[p, 1] = where


@compiled
def layout(page, size, rows, nodes, buffers):
    """(problem, details, rows, addresses of nodes, buffers and body, bytes of the body) of a page
    that should have ``rows`` rows; -1: any number."""
    zero = np.int64(0)
    bad = (UNREADABLE, zero, zero, zero, zero, zero, zero)
    if size < _PREFIX or load_int32(page) != -1:
        return bad
    extent = np.int64(load_int32(page + 4))
    if extent < 8 or extent % 8 or extent > size - _PREFIX:
        return bad
    metadata = page + _PREFIX
    message = _checked_target(metadata, extent, 0)
    if message < 0:
        return bad
    version = _field(metadata, extent, message, _MESSAGE_VERSION, 2)
    kind = _field(metadata, extent, message, _HEADER_TYPE, 1)
    header = _field(metadata, extent, message, _HEADER, 4)
    length = _field(metadata, extent, message, _BODY_LENGTH, 8)
    extra = _field(metadata, extent, message, _MESSAGE_EXTRA, 4)
    if version <= 0 or kind <= 0 or header <= 0 or length < 0 or extra != 0:
        return bad
    if load_int16(metadata + version) != _VERSION_5 or load_uint8(metadata + kind) != _RECORD_BATCH:
        return bad
    body_bytes = load_int64(metadata + length) if length else 0
    if body_bytes < 0 or body_bytes > size - _PREFIX - extent:
        return bad
    batch = _checked_target(metadata, extent, header)
    if batch < 0:
        return bad
    count = _field(metadata, extent, batch, _ROWS, 8)
    compression = _field(metadata, extent, batch, _COMPRESSION, 4)
    variadic = _field(metadata, extent, batch, _VARIADIC, 4)
    if count < 0 or compression < 0 or variadic != 0:
        return bad
    found = load_int64(metadata + count) if count else 0
    if found != rows and rows >= 0:
        return WRONG_ROWS, found, zero, zero, zero, zero, zero
    if found < 0:
        return bad
    if compression:
        return COMPRESSED, zero, zero, zero, zero, zero, zero
    heads, entries = 0, 0
    for number, wanted in ((_NODES, len(nodes)), (_BUFFERS, buffers)):
        place = _field(metadata, extent, batch, number, 4)
        vector = _checked_target(metadata, extent, place) if place > 0 else -1
        if vector < 0:
            return bad
        many = np.int64(load_uint32(metadata + vector))
        if many > (extent - vector - 4) // 16 or (many and (vector + 4) % 8):
            return bad
        if many != wanted:
            return WRONG_COLUMNS, zero, zero, zero, zero, zero, zero
        if number == _NODES:
            heads = metadata + vector + 4
        else:
            entries = metadata + vector + 4
    return FINE, zero, found, heads, entries, metadata + extent, body_bytes


@compiled
def _checked_target(metadata, extent, reference):
    """The target of a reference; -1 if its first four bytes are not inside the metadata."""
    distance = np.int64(load_uint32(metadata + reference))
    target = reference + distance
    if distance == 0 or target % 4 or target > extent - 4:
        return np.int64(-1)
    return target


@compiled
def _field(metadata, extent, table, number, width):
    """The position of a table's field of ``width`` bytes; 0 if absent, -1 if outside."""
    vtable = table - np.int64(load_int32(metadata + table))
    if vtable < 0 or vtable % 2 or vtable > extent - 4:
        return np.int64(-1)
    vtable_bytes = np.int64(load_uint16(metadata + vtable))
    if vtable_bytes % 2 or vtable_bytes > extent - vtable:
        return np.int64(-1)
    slot = 4 + 2 * number
    if slot >= vtable_bytes:
        return np.int64(0)
    distance = np.int64(load_uint16(metadata + vtable + slot))
    if distance == 0:
        return np.int64(0)
    if (table + distance) % width or table + distance > extent - width:
        return np.int64(-1)
    return table + distance


@compiled
def _check_buffers(nodes, entries, buffers, body_bytes):
    """Whether every buffer is aligned and inside the body."""
    for b in range(buffers):
        offset, length = load_int64(entries + 16 * b), load_int64(entries + 16 * b + 8)
        if (
            offset < 0
            or offset % 8
            or length < 0
            or length > body_bytes
            or offset > body_bytes - length
        ):
            for n in range(len(nodes)):
                if b == nodes[n, VALIDITY] or b == nodes[n, VALUES] or b == nodes[n, CONTENT]:
                    return OUTSIDE, nodes[n, COLUMN]
            return OUTSIDE, np.int64(0)
    return FINE, np.int64(0)
