"""Finds the columns of pages in memory, for kernels that copy rows out of them."""

import numpy as np

from semistream.kernels import column_forms as forms
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import load_int64, prefetch_at
from semistream.kernels.page_format import layout
from semistream.kernels.page_nodes import FINE

# Rows of the array that describes the wanted nodes: numbers in the page, or -1; the form; the node
# that it is part of, which comes before it, or -1; and how many of its values each of that node's
# values has, if it is a fixed number.
NODE, VALIDITY, VALUES, CONTENT, ITEMS, FORM, OWNER, TIMES = range(8)
_AHEAD = 8  # pages whose metadata are prefetched: scattered pages are not in the CPU cache
_LINE = 64  # bytes of a cache line
_MOST_METADATA = 2048  # bytes to prefetch
_LONGEST = 1 << 40  # of any column: sizes in bytes do not overflow


@compiled(inline=True)
def _needed(form, length):
    """Bytes of ``length`` values, or of their offsets."""
    if form > 0:
        return form * length
    if form == forms.BITS:
        return (length + 7) >> 3
    if form == forms.TEXT or form == forms.LIST:
        return 4 * (length + 1)
    if form == forms.LARGE_TEXT or form == forms.LARGE_LIST:
        return 8 * (length + 1)
    return 0


@compiled
def open_columns(pages, sizes, spec, buffers, wanted, code_buffer, columns, codes, rows):
    """Find columns of pages that were checked before.

    ``pages`` are addresses, ``sizes`` the bytes of each page; ``spec`` describes the nodes of the
    pages' schema, which has this many IPC ``buffers``, and ``wanted`` those of the columns. Writes
    what :mod:`semistream.kernels.column_forms` lists into ``columns[:, n, p]``, the address of the
    codes, and the rows of every page.

    Returns -1, or the first page that is not as it was when it was checked: no address outside a
    page is returned, whatever happened to the file.
    """
    lengths = np.empty(wanted.shape[1], np.int64)
    metadata = np.int64(_LINE)
    for p in range(len(pages)):
        if p + _AHEAD < len(pages):
            for line in range(0, metadata, _LINE):
                prefetch_at(pages[p + _AHEAD] + line)
        found, _, count, heads, entries, body, body_bytes = layout(
            pages[p], sizes[p], np.int64(-1), spec, buffers
        )
        if found != FINE:
            return p
        rows[p] = count
        metadata = min(body - pages[p] + _LINE, _MOST_METADATA)
        at = load_int64(entries + 16 * code_buffer)
        if at < 0 or count > sizes[p] or at > body_bytes - 8 * count:
            return p
        codes[p] = body + at
        for n in range(wanted.shape[1]):
            length = load_int64(heads + 16 * wanted[NODE, n])
            owner = wanted[OWNER, n]
            least = wanted[TIMES, n] * (lengths[owner] if owner >= 0 else count)
            if length < least or length > _LONGEST:  # rows or items would be outside
                return p
            lengths[n] = length
            for part in range(forms.PAGE_ROWS):
                columns[part, n, p] = 0
            form = wanted[FORM, n]
            entry = entries + 16 * wanted[VALIDITY, n]
            if wanted[VALIDITY, n] >= 0 and load_int64(entry + 8) > 0:
                at = load_int64(entry)
                if at < 0 or at > body_bytes - ((length + 7) >> 3):
                    return p
                columns[forms.VALIDITY, n, p] = 8 * (body + at)
            if wanted[VALUES, n] >= 0:
                at = load_int64(entries + 16 * wanted[VALUES, n])
                if at < 0 or at > body_bytes - _needed(form, length):
                    return p
                columns[forms.VALUES, n, p] = (8 if form == forms.BITS else 1) * (body + at)
            if wanted[CONTENT, n] >= 0:
                entry = entries + 16 * wanted[CONTENT, n]
                at, size = load_int64(entry), load_int64(entry + 8)
                if at < 0 or size < 0 or size > body_bytes or at > body_bytes - size:
                    return p
                columns[forms.CONTENT, n, p] = body + at
                columns[forms.SIZE, n, p] = size
            elif wanted[ITEMS, n] >= 0:
                columns[forms.SIZE, n, p] = load_int64(heads + 16 * wanted[ITEMS, n])
    return -1


@compiled
def keep(frames, columns, codes, rows, kept_columns, kept_codes, kept_rows):
    """Keep what was opened of every page ``p`` as that of ``frames[p]``."""
    for p in range(len(frames)):
        frame = frames[p]
        kept_codes[frame], kept_rows[frame] = codes[p], rows[p]
        for part in range(columns.shape[0]):
            for n in range(columns.shape[1]):
                kept_columns[part, n, frame] = columns[part, n, p]


@compiled
def copy_codes(addresses, sizes, out):
    """Copy the codes of all pages behind one another."""
    at = 0
    for p in range(len(addresses)):
        for row in range(sizes[p]):
            out[at + row] = load_int64(addresses[p] + 8 * row)
        at += sizes[p]
