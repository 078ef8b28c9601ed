"""Gathers rows from many Arrow pages in one call, by the addresses of the pages' buffers."""

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    copy_from,
    copy_raw,
    load_int32,
    load_int64,
    store_int32,
    store_int64,
)


@compiled
def gather_fixed(addresses, pages, rows, width, out):
    """Gather values of ``width`` bytes: row ``rows[i]`` of page ``pages[i]``, for every i."""
    if width == 8:
        for i in range(len(rows)):
            copy_from(out, i * 8, addresses[pages[i]] + rows[i] * 8, 8)
    elif width == 4:
        for i in range(len(rows)):
            copy_from(out, i * 4, addresses[pages[i]] + rows[i] * 4, 4)
    else:
        for i in range(len(rows)):
            copy_from(out, i * width, addresses[pages[i]] + rows[i] * width, width)


@compiled(inline=True)
def _offset(address, row, large):
    if large:
        return load_int64(address + row * 8)
    return int(load_int32(address + row * 4))


@compiled
def measure_text(starts, sizes, pages, rows, large, offsets, total):
    """Write the offsets of the gathered texts, from ``total`` on; returns the last.

    ``sizes`` are the bytes of the pages' contents. Returns -1 if a text is outside them.
    """
    offsets[0] = total
    for i in range(len(rows)):
        address, row = starts[pages[i]], rows[i]
        begin, end = _offset(address, row, large), _offset(address, row + 1, large)
        if begin < 0 or end < begin or end > sizes[pages[i]]:
            return -1
        total += end - begin
        offsets[i + 1] = total
    return total


@compiled
def gather_text(starts, contents, pages, rows, large, offsets, out):
    for i in range(len(rows)):
        page = pages[i]
        begin = contents[page] + _offset(starts[page], rows[i], large)
        copy_from(out, offsets[i], begin, offsets[i + 1] - offsets[i])


@compiled
def append(values, texts, sizes, widths, places, rows, at, out, contents, used, room):
    """Append rows of all columns to the buffers at addresses ``out``, from row ``at`` on.

    ``widths[c]`` is the bytes of a fixed value, or -4 or -8 for a text with offsets of that size;
    ``used[c]`` of ``room[c]`` bytes of its content are used, and ``sizes[c]`` are the bytes of
    the pages' contents. Returns -1, or the first column whose content lacks room: then call it
    again with more room. Returns -2 if a text is outside its page.
    """
    for c in range(len(widths)):
        width = widths[c]
        if width == 8:
            for i in range(len(rows)):
                value = load_int64(values[c, places[i]] + rows[i] * 8)
                store_int64(out[c] + (at + i) * 8, value)
        elif width == 4:
            for i in range(len(rows)):
                value = load_int32(values[c, places[i]] + rows[i] * 4)
                store_int32(out[c] + (at + i) * 4, value)
        elif width > 0:
            for i in range(len(rows)):
                copy_raw(out[c] + (at + i) * width, values[c, places[i]] + rows[i] * width, width)
        else:
            large = width == -8
            end = used[c]
            for i in range(len(rows)):
                start = values[c, places[i]]
                begin = _offset(start, rows[i], large)
                length = _offset(start, rows[i] + 1, large) - begin
                if begin < 0 or length < 0 or begin + length > sizes[c, places[i]]:
                    return -2
                if end + length > room[c]:
                    return c
                copy_raw(contents[c] + end, texts[c, places[i]] + begin, length)
                end += length
                if large:
                    store_int64(out[c] + (at + i + 1) * 8, end)
                else:
                    store_int32(out[c] + (at + i + 1) * 4, end)
            used[c] = end
    return -1


@compiled
def find(addresses, sizes, pages, codes, low, high):
    """Find the rows ``low[i] .. high[i] - 1`` of each code in its page, whose codes are sorted."""
    for i in range(len(codes)):
        address, code = addresses[pages[i]], codes[i]
        begin, end = 0, sizes[pages[i]]
        while begin < end:
            middle = (begin + end) >> 1
            if load_int64(address + middle * 8) < code:
                begin = middle + 1
            else:
                end = middle
        low[i] = begin
        while begin < sizes[pages[i]] and load_int64(address + begin * 8) == code:
            begin += 1
        high[i] = begin
