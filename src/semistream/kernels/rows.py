"""Row storage: fixed-size records, and byte strings of any length in a bounded heap.

A heap entry is an 8-byte header (owner, length) and the bytes, rounded up to 8. Positions count
8-byte units; -1 is a null. Released entries of one size are a list, from which the next text of
that size takes its place: ``vacant`` has the first one by units, and the owner of each is -2 minus
the position of the next one. Entries lie side by side, so where no released one fits, one pass
compacts the heap in place, without sorting.
"""

import numpy as np

from semistream.kernels.arrow_buffers import load_bit, load_offset, store_bit
from semistream.kernels.column_forms import VALIDITY, VALUES
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    copy_bytes,
    copy_raw,
    load_int32,
    load_int64,
    load_uint8,
    prefetch,
    prefetch_at,
    store_int32,
    store_int64,
    store_uint8,
)

_UNIT = 8
_AHEAD = 12  # rows to prefetch ahead


@compiled(inline=True)
def _copy_value(target, source, width):
    if width == 8:
        store_int64(target, load_int64(source))
    elif width == 4:
        store_int32(target, load_int32(source))
    else:
        copy_raw(target, source, width)


@compiled
def put_fixed(sources, validity, forms, places, rows, slots, records, size, mask, masks):
    """Copy row ``rows[i]`` of all columns to the record of ``slots[i]``, for every i.

    Column ``c`` has its values at address ``sources[c]`` (bits, whose form is not positive: at this
    position), and its validity from position ``validity[c]`` on (0: no nulls). Its place within
    the records, which have ``size`` bytes each and begin at ``records``, is ``places[c]``; its
    validity is bit ``c`` of the ``masks`` bytes from ``mask`` on (0: none are written).
    """
    for i in range(len(rows)):
        record = records + slots[i] * size
        for c in range(len(forms)):
            target, source, form = record + places[c], sources[c], forms[c]
            if form == 8:
                store_int64(target, load_int64(source + rows[i] * 8))
            elif form == 4:
                store_int32(target, load_int32(source + rows[i] * 4))
            elif form > 0:
                copy_raw(target, source + rows[i] * form, form)
            else:
                store_uint8(target, load_bit(source + rows[i]))
        for m in range(masks):
            bits = 255
            for c in range(8 * m, min(8 * m + 8, len(forms))):
                if validity[c] != 0 and load_bit(validity[c] + rows[i]) == 0:
                    bits &= ~(1 << (c & 7))
            store_uint8(record + mask + m, bits)


@compiled
def put_page(
    page, numbers, nullable, forms, places, rows, slots, records, size, mask, masks
):  # fmt: skip
    """The same for columns ``numbers`` of a page, by their addresses. False, and nothing is
    written, if a column that is not ``nullable`` has nulls."""
    sources = np.empty(len(numbers), np.int64)
    validity = np.empty(len(numbers), np.int64)
    for c in range(len(numbers)):
        sources[c] = page[VALUES, numbers[c], 0]
        validity[c] = page[VALIDITY, numbers[c], 0]
        if validity[c] != 0 and not nullable[c]:
            return False
    put_fixed(sources, validity, forms, places, rows, slots, records, size, mask, masks)
    return True


@compiled
def take_fixed(targets, bitmaps, forms, places, numbers, slots, records, size, mask, nulls):
    """Copy the records of ``slots`` to columns at the addresses ``targets``.

    Validity goes to ``bitmaps`` (0, or no bitmaps at all: not wanted), from bit ``numbers[c]`` of
    the bytes at ``mask``. ``nulls[c]`` becomes 1 if column ``c`` has a null.
    """
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_at(records + slots[i + _AHEAD] * size)
        record = records + slots[i] * size
        for c in range(len(forms)):
            target, source, form = targets[c], record + places[c], forms[c]
            if form == 8:
                store_int64(target + i * 8, load_int64(source))
            elif form == 4:
                store_int32(target + i * 4, load_int32(source))
            elif form > 0:
                copy_raw(target + i * form, source, form)
            else:
                store_bit(target, i, int(load_uint8(source)))
        for c in range(len(bitmaps)):
            if bitmaps[c] != 0:
                bit = load_bit((record + mask) * 8 + numbers[c])
                store_bit(bitmaps[c], i, bit)
                if bit == 0:
                    nulls[c] = 1


@compiled
def pick(targets, sources, widths, rows):
    """Copy values ``rows`` of columns at addresses ``sources`` to columns at ``targets``."""
    for c in range(len(widths)):
        target, source, width = targets[c], sources[c], widths[c]
        for i in range(len(rows)):
            _copy_value(target + i * width, source + rows[i] * width, width)


@compiled
def pick_offsets(offsets, size, rows, starts):
    """Write the offsets of values ``rows`` of a text column with ``size`` bytes of content.

    Returns their bytes; -1 if a value is outside the content.
    """
    total = 0
    starts[0] = 0
    for i in range(len(rows)):
        begin, end = offsets[rows[i]], offsets[rows[i] + 1]
        if begin < 0 or end < begin or end > size:
            return -1
        total += end - begin
        starts[i + 1] = total
    return total


@compiled
def pick_texts(offsets, data, rows, starts, out):
    """Copy values ``rows`` of a text column to where ``starts`` says."""
    for i in range(len(rows)):
        copy_bytes(out, starts[i], data, offsets[rows[i]], starts[i + 1] - starts[i])


@compiled
def fitting(starts, sizes, validity, large, rows, room):
    """How many of these rows, from the first on, fit into ``room`` heap units, and their units.

    Text column ``c`` has its offsets at ``starts[c]``, ``sizes[c]`` bytes of content, and the bits
    of its validity from position ``validity[c]`` on (0: no nulls). The number is -1 if a value is
    outside its content.
    """
    total = 0
    for i in range(len(rows)):
        row, needed = rows[i], 0
        for c in range(len(starts)):
            if validity[c] == 0 or load_bit(validity[c] + row) != 0:
                begin = load_offset(starts[c], row, large[c])
                end = load_offset(starts[c], row + 1, large[c])
                if begin < 0 or end < begin or end > sizes[c]:
                    return -1, total
                needed += 1 + (end - begin + _UNIT - 1) // _UNIT
        if total + needed > room:
            return i, total
        total += needed
    return len(rows), total


@compiled
def put(
    offsets, data, validity, rows, slots, column, columns, heap, headers, positions, vacant, top,
    first,
):  # fmt: skip
    """Copy values ``rows`` of a column into the heap for ``slots``, from the ``first`` one on.

    Returns the number of the value that the heap must be compacted for (otherwise their count),
    and the new top.
    """
    for i in range(first, len(rows)):
        row, slot = rows[i], slots[i]
        if validity != 0 and load_bit(validity + row) == 0:
            positions[slot, column] = -1
            continue
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        units = 1 + (length + _UNIT - 1) // _UNIT
        position = vacant[units] if units < len(vacant) else -1
        if position >= 0:
            following = -2 - headers[2 * position]
            prefetch(headers, 2 * following)
            vacant[units] = following
        elif (top + units) * _UNIT <= len(heap):
            position, top = top, top + units
        else:
            return i, top
        positions[slot, column] = position
        headers[2 * position] = slot * columns + column
        headers[2 * position + 1] = length
        copy_bytes(heap, (position + 1) * _UNIT, data, start, length)
    return len(rows), top


@compiled
def release(slots, headers, positions, vacant):
    """List the entries of these slots as vacant; returns the units that became free."""
    freed = 0
    for i in range(len(slots)):
        slot = slots[i]
        for column in range(positions.shape[1]):
            position = positions[slot, column]
            if position >= 0:
                units = 1 + (headers[2 * position + 1] + _UNIT - 1) // _UNIT
                headers[2 * position] = -1
                if units < len(vacant):
                    headers[2 * position] = -2 - vacant[units]
                    vacant[units] = position
                freed += units
                positions[slot, column] = -1
    return freed


@compiled
def compact(heap, headers, positions, vacant, top):
    """Move live entries down over released ones; returns the new top."""
    vacant[:] = -1
    columns = positions.shape[1]
    read, write = 0, 0
    while read < top:
        owner, length = headers[2 * read], headers[2 * read + 1]
        units = 1 + (length + _UNIT - 1) // _UNIT
        if owner >= 0:
            if read != write:
                for j in range(units * _UNIT):
                    heap[write * _UNIT + j] = heap[read * _UNIT + j]
                positions[owner // columns, owner % columns] = write
            write += units
        read += units
    return write


@compiled
def measure(slots, column, headers, positions, offsets, valid):
    """Write the offsets of the gathered values of one column; returns (bytes, nulls)."""
    total, nulls = 0, 0
    offsets[0] = 0
    places = positions[:, column]
    for i in range(len(slots)):
        if i + 2 * _AHEAD < len(slots):
            prefetch(places, slots[i + 2 * _AHEAD])
            prefetch(headers, 2 * places[slots[i + _AHEAD]])
        position = places[slots[i]]
        if position >= 0:
            total += headers[2 * position + 1]
            valid[i] = True
        else:
            valid[i] = False
            nulls += 1
        offsets[i + 1] = total
    return total, nulls


@compiled
def gather(slots, column, heap, positions, offsets, out):
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            following = positions[slots[i + _AHEAD], column]
            prefetch(heap, following * _UNIT)
            prefetch(heap, following * _UNIT + 64)
        position = positions[slots[i], column]
        if position < 0:
            continue
        base = (position + 1) * _UNIT
        start = offsets[i]
        copy_bytes(out, start, heap, base, offsets[i + 1] - start)
