"""Copies the rows of waiting tuples out of scattered pages of a file, a few pages at a time.

    for the next few pages that tuples need:
        read them into frames, or map them
        find the rows that have the tuples' codes
        copy these rows
        unmap the pages, when those that are mapped reach their limit

All of it is one call: a call per few pages would cost more than the pages. The frames stay in the
CPU cache, which makes reading faster than into a large buffer. Where the page cache has a file in
huge pages, a fault maps one of them: 2 MB become resident for a single row, but a second row from
there costs nothing, and no page is copied.
"""

import numpy as np
from numba import carray, types

from semistream.kernels.column_forms import (
    BITS,
    CONTENT,
    DONE,
    OUT_BITMAP,
    OUT_CONTENT,
    OUT_END,
    OUT_NULLS,
    OUT_VALUES,
    SIZE,
    VALIDITY,
    VALUES,
)
from semistream.kernels.compile import compiled
from semistream.kernels.disk import read_from
from semistream.kernels.intrinsics import address_as_pointer, load_int64, prefetch_at
from semistream.kernels.page_columns import open_columns
from semistream.kernels.pages import append
from semistream.kernels.sorted_codes import first_row, line

# What a call returns instead of a node that lacks room or a bitmap.
FULL = -3  # there is no room for the rows of the next tuple
DAMAGED = -4  # a page is not as it was when it was checked
UNREADABLE = -5  # a page cannot be read

_madvise = types.ExternalFunction("madvise", types.int32(types.uintp, types.uintp, types.int32))
_DONTNEED = 4
_POPULATE_READ = 22  # Linux 5.14: an error where an access would kill the process (SIGBUS)
_NO_PAGE = -6
_BLOCK = 4096
_HUGE = 21  # bits of a position within a huge page
# Of a huge page of the page cache, one call maps everything, gap or not; of small ones, it maps the
# gap, too. A call costs as much as a gap of 16 KiB of small pages; few pages are small.
_GAP = 128 << 10


@compiled(inline=True)
def _drop(base, limit, first, last):
    """Unmap the huge pages ``first`` to ``last`` of a map from ``base`` to ``limit``."""
    begin = max(first << _HUGE, base)
    _madvise(begin, min((last + 1) << _HUGE, limit) - begin, _DONTNEED)


@compiled
def _populate(begins, ends):
    """Map pages, neighbours with one call; returns whether all can be read."""
    count, first = len(begins), 0
    for p in range(count):
        if p + 1 == count or begins[p + 1] - ends[p] > _GAP:
            begin = begins[first] // _BLOCK * _BLOCK
            if _madvise(begin, ends[p] - begin, _POPULATE_READ) != 0:
                return False
            first = p + 1
    return True


@compiled
def _read(begins, ends, offsets, files):
    """Read the pages at these offsets of the segment into frames; returns whether all could be
    read. ``files``: where each file begins in the segment, and its descriptor."""
    f = 0
    for p in range(len(begins)):
        while f + 1 < files.shape[1] and files[0, f + 1] <= offsets[p]:
            f += 1
        size = ends[p] - begins[p]
        if read_from(files[1, f], begins[p], size, offsets[p] - files[0, f]) != size:
            return False
    return True


@compiled
def huge_pages(pages, offsets):
    """How many huge pages these ascending pages begin in."""
    count, last = 0, np.int64(-1)
    for i in range(len(pages)):
        huge = offsets[pages[i]] >> _HUGE
        count += huge != last
        last = huge
    return count


@compiled
def _find(code, place, local, numbers, codes, sizes, pairs, pair_places, pair_rows, most):
    """Append the rows of a code, from opened page ``local`` on, which is page ``numbers[place]``.

    Returns the number of pairs; NO_PAGE if it may go on in a page that is not opened, FULL if there
    are more than ``most`` pairs.
    """
    row = size = sizes[local]
    if size > 0:
        page_codes = carray(address_as_pointer(codes[local]), size)
        base, slope = line(page_codes)
        guess = min(max(int((float(code) - base) * slope), 0), size - 1)
        row = first_row(page_codes, code, 0, guess)
    while True:
        if row == size:  # equal codes may go on in the next page
            if place + 1 == len(numbers) or numbers[place + 1] != numbers[place] + 1:
                return pairs
            if local + 1 == len(sizes):
                return _NO_PAGE
            place, local, row = place + 1, local + 1, 0
            size = sizes[local]
            if size == 0:
                return pairs
        if load_int64(codes[local] + 8 * row) != code:
            return pairs
        if pairs == most:
            return FULL
        pair_places[pairs], pair_rows[pairs] = local, row
        pairs += 1
        row += 1


@compiled
def _prefetch(tuple_codes, places, first, place, codes, sizes):
    """Prefetch the codes that the tuples of opened pages are compared with; returns the tuple after
    the last of them."""
    count, i = len(sizes), first
    for p in range(count):
        prefetch_at(codes[p])
        prefetch_at(codes[p] + 8 * (sizes[p] - 1))
    while i < len(places) and places[i] < place + count:
        p = places[i] - place
        if sizes[p] > 0:
            low = float(load_int64(codes[p]))
            width = float(load_int64(codes[p] + 8 * (sizes[p] - 1))) - low
            if width > 0:
                part = min(max((float(tuple_codes[i]) - low) / width, 0.0), 1.0)
                prefetch_at(codes[p] + 8 * int(part * (sizes[p] - 1)))
        i += 1
    return i


@compiled
def copy(
    tuple_codes, places, first, numbers, offsets, lengths, base, limit, most, frame, files,
    spec, buffers, wanted, code_buffer, columns, forms, at, out, out_codes, pair_places, pair_rows,
):  # fmt: skip
    """Copy the rows that have the codes of tuples ``first`` on, which ascend; once each.

    Tuple i needs page ``numbers[places[i]]``, and those after it where its code goes on. Pages are
    read into ``most`` frames of ``frame`` bytes, from ``base`` on; if ``frame`` is 0, they are in a
    map of their file from ``base`` to ``limit``, of which up to ``most`` huge pages are resident at
    a time. They were checked before, and are opened as :func:`page_columns.open_columns` does. Rows
    go from row ``at`` on to the output buffers, as with :func:`pages.append`, and their codes to
    ``out_codes``.

    Returns (DONE, or why it has stopped, or the node that lacks a bitmap or room; the next tuple;
    rows copied; bytes of the pages).
    """
    group = columns.shape[2]
    begins, ends, sizes = np.empty((3, group), np.int64)
    codes, rows = np.empty((2, group), np.int64)
    held, lowest, highest = 0, 0, -1  # huge pages that are mapped
    i, status, nbytes = first, FULL, 0
    while i < len(places):
        # The pages of the next tuples.
        place, count, fresh, is_full = places[i], 0, 0, False
        next_pages = numbers[place : place + group]
        if frame > 0:
            count = min(most, len(next_pages))
            for p in range(count):
                begins[p] = base + p * frame
                ends[p] = begins[p] + lengths[next_pages[p]]
        while frame == 0 and count < len(next_pages):
            begin = base + offsets[next_pages[count]]
            end = begin + lengths[next_pages[count]]
            low, high = begin >> _HUGE, (end - 1) >> _HUGE
            more = max(0, high - max(low, highest + 1) + 1)  # 0: mapped for tuples before
            if held + more > most:
                is_full = True
                break
            if held == 0:
                lowest = low
            held += more
            fresh += more
            highest = max(high, highest)
            begins[count], ends[count] = begin, end
            count += 1
        if count == 0:
            if held == 0:
                break  # not even one page fits
            _drop(base, limit, lowest, highest)
            held, highest = 0, -1
            continue
        # Open them.
        if frame > 0:
            can_read = _read(begins[:count], ends[:count], offsets[next_pages[:count]], files)
        else:
            can_read = _populate(begins[:count], ends[:count])
        if not can_read:
            status = UNREADABLE
            break
        for p in range(count):
            sizes[p] = ends[p] - begins[p]
            nbytes += sizes[p]
        bad = open_columns(
            begins[:count], sizes, spec, buffers, wanted, code_buffer, columns, codes, rows
        )
        if bad >= 0:
            status = DAMAGED
            break
        # Find the rows of the tuples.
        begun, pairs, found = i, 0, 0
        end = _prefetch(tuple_codes, places, i, place, codes, rows[:count])
        while i < end:
            if i == begun or tuple_codes[i] != tuple_codes[i - 1]:
                local = places[i] - place
                found = _find(
                    tuple_codes[i], places[i], local, numbers, codes, rows[:count], pairs,
                    pair_places, pair_rows, len(out_codes) - at,
                )  # fmt: skip
                if found < 0:
                    break
                out_codes[at + pairs : at + found] = tuple_codes[i]
                pairs = found
            i += 1
        # Copy them.
        if pairs:
            lacking = append(
                columns, forms, 0, len(forms), pair_places[:pairs], pair_rows[:pairs], at, out
            )
            if lacking != DONE:
                i, status = begun, lacking
                break
            at += pairs
        if found == FULL:
            break
        if found == _NO_PAGE and i == begun:
            if not is_full or held == fresh:  # in frames nothing is held
                break  # its pages do not fit
            _drop(base, limit, lowest, highest)
            held, highest = 0, -1
    else:
        status = DONE
    if held:
        _drop(base, limit, lowest, highest)
    return status, i, at, nbytes


@compiled
def as_page(out, forms, page):
    """Describe output buffers as a page: what :mod:`column_forms` lists, by node."""
    for n in range(len(forms)):
        page[VALIDITY, n, 0] = 8 * out[OUT_BITMAP, n] if out[OUT_NULLS, n] else 0
        page[VALUES, n, 0] = (8 if forms[n] == BITS else 1) * out[OUT_VALUES, n]
        page[CONTENT, n, 0] = out[OUT_CONTENT, n]
        page[SIZE, n, 0] = out[OUT_END, n]
