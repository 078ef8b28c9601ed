"""Row storage: fixed-size records, and byte strings of any length in a bounded heap.

A heap entry is an 8-byte header (owner, length) and the bytes, rounded up to 8. Entries are in
allocation order, so one pass compacts the heap in place, without sorting. Positions count 8-byte
units; -1 is a null.
"""

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    copy_bytes,
    copy_raw,
    load_int32,
    load_int64,
    prefetch,
    prefetch_at,
    store_int32,
    store_int64,
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
def put_fixed(sources, widths, places, rows, slots, records, size):
    """Copy row ``rows[i]`` of all columns to the record of ``slots[i]``, for every i.

    Column ``c`` has its values at address ``sources[c]``, and ``places[c]`` within the records,
    which have ``size`` bytes each and begin at ``records``.
    """
    for i in range(len(rows)):
        record = records + slots[i] * size
        for c in range(len(widths)):
            _copy_value(record + places[c], sources[c] + rows[i] * widths[c], widths[c])


@compiled
def take_fixed(targets, widths, places, slots, records, size):
    """Copy the records of ``slots`` to columns at the addresses ``targets``."""
    for i in range(len(slots)):
        if i + _AHEAD < len(slots):
            prefetch_at(records + slots[i + _AHEAD] * size)
        record = records + slots[i] * size
        for c in range(len(widths)):
            _copy_value(targets[c] + i * widths[c], record + places[c], widths[c])


@compiled
def pick(targets, sources, widths, rows):
    """Copy values ``rows`` of columns at addresses ``sources`` to columns at ``targets``."""
    for c in range(len(widths)):
        target, source, width = targets[c], sources[c], widths[c]
        for i in range(len(rows)):
            _copy_value(target + i * width, source + rows[i] * width, width)


@compiled
def units_needed(offsets, size, valid, rows):
    """Heap units that these values of a column with ``size`` bytes of content take.

    Returns -1 if a value is outside the content.
    """
    total = 0
    for i in range(len(rows)):
        row = rows[i]
        if len(valid) == 0 or valid[row]:
            if offsets[row] < 0 or offsets[row + 1] < offsets[row] or offsets[row + 1] > size:
                return -1
            total += 1 + (offsets[row + 1] - offsets[row] + _UNIT - 1) // _UNIT
    return total


@compiled
def put(offsets, data, valid, rows, slots, column, columns, heap, headers, positions, top):
    """Append values ``rows`` of a column to the heap for ``slots``; returns the new top."""
    for i in range(len(rows)):
        row, slot = rows[i], slots[i]
        if len(valid) != 0 and not valid[row]:
            positions[slot, column] = -1
            continue
        start, length = offsets[row], offsets[row + 1] - offsets[row]
        positions[slot, column] = top
        headers[2 * top] = slot * columns + column
        headers[2 * top + 1] = length
        base = (top + 1) * _UNIT
        copy_bytes(heap, base, data, start, length)
        top += 1 + (length + _UNIT - 1) // _UNIT
    return top


@compiled
def release(slots, headers, positions):
    """Mark the entries of these slots as dead; returns the units that became free."""
    freed = 0
    for i in range(len(slots)):
        slot = slots[i]
        for column in range(positions.shape[1]):
            position = positions[slot, column]
            if position >= 0:
                headers[2 * position] = -1
                freed += 1 + (headers[2 * position + 1] + _UNIT - 1) // _UNIT
                positions[slot, column] = -1
    return freed


@compiled
def compact(heap, headers, positions, top):
    """Move live entries down over dead ones; returns the new top."""
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
    for i in range(len(slots)):
        position = positions[slots[i], column]
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
