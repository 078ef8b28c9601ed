"""Merges pages that are adjacent in a file into ranges, each read with one request."""

from semistream.kernels.compile import compiled


@compiled
def merge(begins, ends, block, ranges, starts):
    """The ranges of pages from ``begins`` to ``ends``, ascending, rounded out to whole blocks.

    Writes a column of ``ranges`` for each: its offset and size in the file, its position in the
    buffer, and the bytes up to the end of its last page; and the position of every page in the
    buffer. Returns (ranges, bytes of their pages, bytes of the buffer).
    """
    count, needed, position, page = 0, 0, 0, 0
    while page < len(begins):
        last = page
        while last + 1 < len(begins) and begins[last + 1] == ends[last]:
            last += 1
        offset = begins[page] // block * block
        least = ends[last] - offset
        size = (least + block - 1) // block * block
        needed += ends[last] - begins[page]
        for p in range(page, last + 1):
            starts[p] = position + begins[p] - offset
        ranges[0, count] = offset
        ranges[1, count] = size
        ranges[2, count] = position
        ranges[3, count] = least
        position += size
        count += 1
        page = last + 1
    return count, needed, position
