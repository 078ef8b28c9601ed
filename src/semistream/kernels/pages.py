"""Gathers rows from many Arrow pages in one call, by the addresses of the pages' buffers.

A column is one or more *nodes*: itself, the fields of a struct, the items of a list.
``column_forms`` has their forms, and the rows of the arrays ``pages`` and ``out``.
"""

from semistream.kernels.arrow_buffers import (
    is_large,
    load_bit,
    load_offset,
    store_bit,
    store_offset,
)
from semistream.kernels.column_forms import (
    BITS,
    CONTENT,
    CORRUPT,
    DONE,
    EMPTY,
    LIST,
    NO_BITMAP,
    OUT_BITMAP,
    OUT_CONTENT,
    OUT_END,
    OUT_NULLS,
    OUT_ROOM,
    OUT_VALUES,
    SIZE,
    VALIDITY,
    VALUES,
)
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    copy_raw,
    load_int32,
    load_int64,
    load_uint8,
    prefetch_at,
    store_int32,
    store_int64,
    store_uint8,
)

_AHEAD = 8  # rows whose texts are prefetched
_SCATTERED = 64  # rows per page, below which they are: half of a page of usual rows
_LINE = 64  # bytes of a cache line


@compiled
def has_nulls(validity, places):
    """Whether a page may have nulls: one of ``places``, or any if there are fewer pages."""
    found = False
    if len(places) < len(validity):
        for i in range(len(places)):
            found |= validity[places[i]] != 0
    else:
        for place in range(len(validity)):
            found |= validity[place] != 0
    return found


@compiled
def append(pages, forms, first, stop, places, rows, at, out):
    """Append row ``rows[i]`` of page ``places[i]`` to nodes ``first`` to ``stop - 1``, for all i.

    The rows come to the output buffers from row ``at`` on. Returns DONE; or CORRUPT if a text or
    list is outside its page; or a node that lacks a bitmap (its OUT_END is NO_BITMAP) or room (its
    OUT_END is the room needed). Then call it again from this node on.
    """
    for n in range(first, stop):
        form, starts, target = forms[n], pages[VALUES, n], out[OUT_VALUES, n]
        if has_nulls(pages[VALIDITY, n], places):
            if out[OUT_BITMAP, n] == 0:
                out[OUT_END, n] = NO_BITMAP
                return n
            if _append_validity(pages[VALIDITY, n], places, rows, at, out[OUT_BITMAP, n]):
                out[OUT_NULLS, n] = 1
        if form == 8:
            for i in range(len(rows)):
                value = load_int64(starts[places[i]] + rows[i] * 8)
                store_int64(target + (at + i) * 8, value)
        elif form == 4:
            for i in range(len(rows)):
                value = load_int32(starts[places[i]] + rows[i] * 4)
                store_int32(target + (at + i) * 4, value)
        elif form == 1:
            for i in range(len(rows)):
                store_uint8(target + at + i, load_uint8(starts[places[i]] + rows[i]))
        elif form > 0:
            for i in range(len(rows)):
                copy_raw(target + (at + i) * form, starts[places[i]] + rows[i] * form, form)
        elif form == BITS:
            for i in range(len(rows)):
                store_bit(target, at + i, load_bit(starts[places[i]] + rows[i]))
        elif form != EMPTY:
            sizes, large = pages[SIZE, n], is_large(form)
            room, begin_at = out[OUT_ROOM, n], load_offset(target, at, large)
            if form <= LIST:
                end = _append_lists(starts, sizes, large, places, rows, at, target, begin_at)
            else:
                end = _append_texts(
                    starts, pages[CONTENT, n], sizes, large, places, rows, at, target, begin_at,
                    out[OUT_CONTENT, n], room,
                )  # fmt: skip
            if end < 0:
                return CORRUPT
            out[OUT_END, n] = end
            if end > room:
                return n
    return DONE


@compiled
def _append_validity(validity, places, rows, at, bitmap):
    """Write the validity bits of these rows; returns whether one is null."""
    found = False
    for i in range(len(rows)):
        position = validity[places[i]]
        bit = 1
        if position != 0:
            bit = load_bit(position + rows[i])
        if bit == 0:
            found = True
        store_bit(bitmap, at + i, bit)
    return found


@compiled
def _append_texts(starts, contents, sizes, large, places, rows, at, target, end, content, room):
    """Append texts from byte ``end`` on, as far as there is room; returns the new end, or -1."""
    width = 8 if large else 4
    # Where most rows of a page are wanted, the CPU prefetches them itself.
    last = len(rows) - 2 * _AHEAD if len(rows) < _SCATTERED * len(starts) else 0
    for i in range(len(rows)):
        if i < last:
            far, near = i + 2 * _AHEAD, i + _AHEAD
            prefetch_at(starts[places[far]] + rows[far] * width)
            position = contents[places[near]] + load_offset(starts[places[near]], rows[near], large)
            prefetch_at(position)
            prefetch_at(position + _LINE)
        start = starts[places[i]]
        begin = load_offset(start, rows[i], large)
        stop = load_offset(start, rows[i] + 1, large)
        if begin < 0 or stop < begin or stop > sizes[places[i]]:
            return -1
        length = stop - begin
        if end + length <= room:
            copy_raw(content + end, contents[places[i]] + begin, length)
        end += length
        store_offset(target, at + i + 1, large, end)
    return end


@compiled
def _append_lists(starts, sizes, large, places, rows, at, target, end):
    """The same for the offsets of lists, whose items are appended later."""
    for i in range(len(rows)):
        start = starts[places[i]]
        begin = load_offset(start, rows[i], large)
        stop = load_offset(start, rows[i] + 1, large)
        if begin < 0 or stop < begin or stop > sizes[places[i]]:
            return -1
        end += stop - begin
        store_offset(target, at + i + 1, large, end)
    return end


@compiled(inline=True)
def _rows_of(code, address, size):
    """(first row, end) of a code among the sorted codes at an address."""
    begin, end = 0, size
    while begin < end:
        middle = (begin + end) >> 1
        if load_int64(address + middle * 8) < code:
            begin = middle + 1
        else:
            end = middle
    while end < size and load_int64(address + end * 8) == code:
        end += 1
    return begin, end


@compiled
def find(addresses, sizes, pages, codes, low, high):
    """Find the rows ``low[i] .. high[i] - 1`` of each code in its page, whose codes are sorted."""
    for i in range(len(codes)):
        low[i], high[i] = _rows_of(codes[i], addresses[pages[i]], sizes[pages[i]])


@compiled
def pair(addresses, sizes, pages, codes, tuples, owners, places, rows):
    """Pair each tuple ``tuples[i]`` with the rows of its code in page ``pages[i]``.

    Writes for every pair the number i of its tuple, the page and the row, as long as all pairs of
    a tuple fit. Returns (tuples served, pairs).
    """
    found = 0
    for i in range(len(pages)):
        page = pages[i]
        begin, end = _rows_of(codes[tuples[i]], addresses[page], sizes[page])
        if found + end - begin > len(rows):
            return i, found
        for row in range(begin, end):
            owners[found], places[found], rows[found] = i, page, row
            found += 1
    return len(pages), found


@compiled
def hide(codes, ends, changed, shown):
    """Mark the rows of adjacent pages that have a changed code as hidden. Codes ascend within a
    page, and ``changed`` ascends."""
    row, count = 0, len(changed)
    for page in range(len(ends)):
        at = 0
        while row < ends[page]:
            code = codes[row]
            step = 1
            begin = at
            while at < count and changed[at] < code:  # gallop, then bisect
                begin = at + 1
                at += step
                step <<= 1
            stop = min(at, count)
            while begin < stop:
                middle = (begin + stop) >> 1
                if changed[middle] < code:
                    begin = middle + 1
                else:
                    stop = middle
            at = begin
            if at < count and changed[at] == code:
                shown[row] = False
            row += 1
