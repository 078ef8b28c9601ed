"""Builds small record batches as Arrow IPC messages: every column in one piece of memory.

Making an Arrow object for each column costs more than copying a few rows. Here compiled code
writes all columns side by side, and fills in the metadata of a message, which is the same for all
batches of a schema but for its numbers::

    metadata | values or offsets of every column | texts and validity bits, in the order of writing

``out`` describes the columns of one side of the join as in :mod:`semistream.kernels.column_forms`,
with addresses in the message, which begins at ``address``. The functions that add columns return
the end of what was written, or FULL if it would be beyond ``limit``, or CORRUPT.
"""

import numpy as np

from semistream.kernels.arrow_buffers import is_large, load_bit, load_offset, store_offset
from semistream.kernels.column_forms import (
    BITS,
    CONTENT,
    CORRUPT,
    DONE,
    FULL,
    OUT_BITMAP,
    OUT_CONTENT,
    OUT_END,
    OUT_NULLS,
    OUT_ROOM,
    OUT_VALUES,
    VALIDITY,
    VALUES,
)
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    call_at,
    copy_raw,
    load_int64,
    load_uint8,
    store_int32,
    store_int64,
    store_uint8,
)
from semistream.kernels.pages import append, has_nulls
from semistream.kernels.rows import take_fixed

_ALIGNED = 64  # bytes, as Arrow recommends
_UNIT = 8  # bytes of a unit of a row store's heap

# Places in the C data interface's struct ArrowArray.
_NULLS, _OFFSET, _COLUMN_BUFFERS, _CHILDREN, _RELEASE = 8, 16, 40, 48, 64


@compiled
def open_exported(batch, forms, columns):
    """Find the columns of an exported record batch, which have these forms, as one page; then
    release what was exported.

    The size of texts is not known here. Returns whether all values have an address.
    """
    children, whole = load_int64(batch + _CHILDREN), True
    for n in range(len(forms)):
        column = load_int64(children + 8 * n)
        offset, buffers = load_int64(column + _OFFSET), load_int64(column + _COLUMN_BUFFERS)
        validity, values = load_int64(buffers), load_int64(buffers + 8)
        form = forms[n]
        columns[VALIDITY, n, 0] = 0
        if validity != 0 and load_int64(column + _NULLS) != 0:
            columns[VALIDITY, n, 0] = 8 * validity + offset
        if form == BITS:
            columns[VALUES, n, 0] = 8 * values + offset
        elif form > 0:
            columns[VALUES, n, 0] = values + offset * form
        else:
            columns[VALUES, n, 0] = values + offset * (8 if is_large(form) else 4)
            columns[CONTENT, n, 0] = load_int64(buffers + 16)
        whole &= values != 0
    call_at(load_int64(batch + _RELEASE), batch)
    return whole


@compiled
def copy_codes(columns, n, codes):
    """Copy column ``n``, whose values are 64-bit codes; returns whether it has no null."""
    if columns[VALIDITY, n, 0] != 0:
        return False
    for row in range(len(codes)):
        codes[row] = load_int64(columns[VALUES, n, 0] + 8 * row)
    return True


@compiled(inline=True)
def _aligned(position):
    return (position + _ALIGNED - 1) // _ALIGNED * _ALIGNED


@compiled(inline=True)
def _value_bytes(form, count):
    """Bytes of ``count`` values, or of their offsets."""
    if form > 0:
        return form * count
    if form == BITS:
        return (count + 7) >> 3
    return (8 if is_large(form) else 4) * (count + 1)


@compiled
def begin(count, template, body, address, limit, stream_forms, stream, master_forms, master):
    """Write the metadata, and set the places of the values of all columns for ``count`` rows."""
    copy_raw(address, template, body)
    end = _lay_out(count, stream_forms, address, body, limit, stream)
    if end < 0:
        return end
    return _lay_out(count, master_forms, address, end, limit, master)


@compiled
def _lay_out(count, forms, address, end, limit, out):
    """The same for the columns of one side, which begin at ``end``."""
    for n in range(len(forms)):
        end = _aligned(end)
        out[OUT_VALUES, n] = address + end
        for part in (OUT_BITMAP, OUT_CONTENT, OUT_ROOM, OUT_END, OUT_NULLS):
            out[part, n] = 0
        end += _value_bytes(forms[n], count)
        if end > limit:
            return FULL
    for n in range(len(forms)):
        if forms[n] < BITS:
            store_offset(out[OUT_VALUES, n], 0, is_large(forms[n]), 0)
    return end


@compiled
def _add_bitmap(n, count, address, end, limit, out):
    """Give a column a bitmap; returns its end."""
    nbytes = (count + 7) >> 3
    end = _aligned(end)
    if end + nbytes > limit:
        return FULL
    out[OUT_BITMAP, n] = address + end
    store_uint8(address + end + nbytes - 1, 0)  # also the bits after the last one
    return end + nbytes


@compiled
def add_pages(pages, forms, places, rows, address, end, limit, out):
    """Row ``rows[i]`` of the page at ``places[i]``, for every i, of all columns."""
    for n in range(len(forms)):
        if has_nulls(pages[VALIDITY, n], places):
            end = _add_bitmap(n, len(rows), address, end, limit, out)
            if end < 0:
                return end
        if forms[n] < BITS:
            end = _aligned(end)
            out[OUT_CONTENT, n], out[OUT_ROOM, n] = address + end, limit - end
        done = append(pages, forms, n, n + 1, places, rows, 0, out)
        if done != DONE:
            return CORRUPT if done == CORRUPT else FULL
        end += out[OUT_END, n]
    return end


@compiled
def add_buffers(gathered, forms, count, address, end, limit, out):
    """The first ``count`` rows of output buffers."""
    for n in range(len(forms)):
        values = gathered[OUT_VALUES, n]
        copy_raw(out[OUT_VALUES, n], values, _value_bytes(forms[n], count))
        if gathered[OUT_NULLS, n] != 0:
            end = _add_bitmap(n, count, address, end, limit, out)
            if end < 0:
                return end
            copy_raw(out[OUT_BITMAP, n], gathered[OUT_BITMAP, n], (count + 7) >> 3)
            out[OUT_NULLS, n] = 1
        if forms[n] < BITS:
            nbytes, end = load_offset(values, count, is_large(forms[n])), _aligned(end)
            if nbytes > limit - end:
                return FULL
            copy_raw(address + end, gathered[OUT_CONTENT, n], nbytes)
            out[OUT_CONTENT, n], out[OUT_END, n] = address + end, nbytes
            end += nbytes
    return end


@compiled
def add_stored(
    slots, codes, code_column, fixed, fixed_forms, places, numbers, records, size, mask, nullable,
    texts, text_numbers, heap, headers, positions, forms, address, end, limit, out,
):  # fmt: skip
    """The rows in these slots of a row store.

    Columns ``fixed`` are at ``places`` of the records, as ``kernels.rows.take_fixed`` has them;
    those that are ``nullable`` (empty: none) get a bitmap. Columns ``texts`` are texts number
    ``text_numbers`` of the heap. Column ``code_column``, unless -1, has the codes.
    """
    targets = np.empty(len(fixed), np.int64)
    bitmaps = np.zeros(len(fixed) if len(nullable) else 0, np.int64)
    nulls = np.zeros(len(fixed), np.int64)
    for c in range(len(fixed)):
        targets[c] = out[OUT_VALUES, fixed[c]]
        if len(nullable) and nullable[numbers[c]]:
            end = _add_bitmap(fixed[c], len(slots), address, end, limit, out)
            if end < 0:
                return end
            bitmaps[c] = out[OUT_BITMAP, fixed[c]]
    take_fixed(
        targets, bitmaps, fixed_forms, places, numbers, slots, records, size, mask, nulls
    )  # fmt: skip
    for c in range(len(fixed)):
        out[OUT_NULLS, fixed[c]] = nulls[c]
    if code_column >= 0:
        target, width = out[OUT_VALUES, code_column], forms[code_column]
        for i in range(len(slots)):
            _store_code(target + i * width, codes[slots[i]], width)
    for t in range(len(texts)):
        end = _add_texts(
            texts[t], text_numbers[t], slots, heap, headers, positions, forms, address, end, limit,
            out,
        )  # fmt: skip
        if end < 0:
            return end
    return end


@compiled(inline=True)
def _store_code(target, code, width):
    if width == 8:
        store_int64(target, code)
    elif width == 4:
        store_int32(target, np.int32(code))
    else:
        for byte in range(width):
            store_uint8(target + byte, (code >> (8 * byte)) & 255)


@compiled
def _add_texts(n, number, slots, heap, headers, positions, forms, address, end, limit, out):
    """Column ``n`` from text ``number`` of every slot."""
    has_null, large, total, count = False, is_large(forms[n]), 0, len(slots)
    for i in range(count):
        position = positions[slots[i], number]
        if position < 0:
            has_null = True
        else:
            total += headers[2 * position + 1]
    if has_null:
        end = _add_bitmap(n, count, address, end, limit, out)
        if end < 0:
            return end
        out[OUT_NULLS, n] = 1
    end = _aligned(end)
    if total > limit - end:
        return FULL
    out[OUT_CONTENT, n], out[OUT_END, n] = address + end, total
    done = 0
    for i in range(count):
        position = positions[slots[i], number]
        if position >= 0:
            length = headers[2 * position + 1]
            copy_raw(address + end + done, heap + (position + 1) * _UNIT, length)
            done += length
        if has_null:
            _store_bit(out[OUT_BITMAP, n], i, position >= 0)
        store_offset(out[OUT_VALUES, n], i + 1, large, done)
    return end + total


@compiled(inline=True)
def _store_bit(bitmap, row, bit):
    """Set or clear a bit, and clear the bits of its byte that follow."""
    byte, shift = bitmap + (row >> 3), row & 7
    before = int(load_uint8(byte)) & ((1 << shift) - 1) if shift else 0
    store_uint8(byte, before | (int(bit) << shift))


@compiled
def finish(count, stream_forms, stream, master_forms, master, places, address, body, end):
    """Fill in the numbers of the metadata of a message that ends at ``end``.

    ``places`` are the positions in the message of the number of rows, of the body's length, and of
    the lists of nodes and buffers.
    """
    store_int64(address + places[0], count)
    store_int64(address + places[1], end - body)
    node, buffer = address + places[2], address + places[3]
    for side in range(2):
        forms, out = (stream_forms, stream) if side == 0 else (master_forms, master)
        for n in range(len(forms)):
            nulls, bitmap = 0, 0
            if out[OUT_NULLS, n] != 0:
                bitmap = out[OUT_BITMAP, n]
                nulls = count - _ones(bitmap, count)
            store_int64(node, count)
            store_int64(node + 8, nulls)
            node += 16
            buffer = _store_buffer(
                buffer, bitmap if nulls else 0, (count + 7) >> 3, address + body
            )  # fmt: skip
            values = out[OUT_VALUES, n]
            buffer = _store_buffer(buffer, values, _value_bytes(forms[n], count), address + body)
            if forms[n] < BITS:
                content = out[OUT_CONTENT, n]
                buffer = _store_buffer(buffer, content, out[OUT_END, n], address + body)


@compiled(inline=True)
def _store_buffer(entry, start, nbytes, body):
    """Write where a buffer is (0: nowhere); returns the place of the next one."""
    store_int64(entry, start - body if start != 0 else 0)
    store_int64(entry + 8, nbytes if start != 0 else 0)
    return entry + 16


@compiled
def _ones(bitmap, count):
    found = 0
    for row in range(count):
        found += load_bit(bitmap * 8 + row)
    return found
