"""Row storage: byte strings of any length in one bounded heap, and gathers out of it.

A heap entry is an 8-byte header (owner, length) and the bytes, rounded up to 8. Entries lie in
allocation order, so that the heap is compacted in place by one walk, without sorting.
Positions count 8-byte units; -1 is a null.
"""

from numba import njit

from semistream.kernels.intrinsics import copy_bytes

_UNIT = 8


@njit(cache=True, nogil=True)
def units_needed(offsets, valid, rows):
    """Heap units that these values of one column take."""
    total = 0
    for i in range(len(rows)):
        row = rows[i]
        if len(valid) == 0 or valid[row]:
            total += 1 + (offsets[row + 1] - offsets[row] + _UNIT - 1) // _UNIT
    return total


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def compact(heap, headers, positions, top):
    """Slide live entries down over dead ones; returns the new top."""
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


@njit(cache=True, nogil=True)
def measure(slots, column, headers, positions, offsets, valid):
    """Offsets of the gathered values of one column; returns (bytes, nulls)."""
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


@njit(cache=True, nogil=True)
def gather(slots, column, heap, positions, offsets, out):
    for i in range(len(slots)):
        position = positions[slots[i], column]
        if position < 0:
            continue
        base = (position + 1) * _UNIT
        start = offsets[i]
        copy_bytes(out, start, heap, base, offsets[i + 1] - start)
