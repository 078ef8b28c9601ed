"""Tuples grouped by the stretch of pages that holds their key, and matched to its rows.

    head[stretch] -> newest chunk -> next_chunk -> ... -> -1      slot = chunk * size + place

A stretch is a few adjacent pages. Its tuples are in chunks of adjacent slots: admission writes to
the end of a chunk, a visit reads whole chunks, and there is one link per chunk instead of one per
tuple. All chunks but the newest of a stretch are full.
"""

import numpy as np
from numba import carray

from semistream.kernels.compile import compiled
from semistream.kernels.counting_cache import add_to_sketch
from semistream.kernels.intrinsics import address_as_pointer, load_int64, prefetch_at
from semistream.kernels.states import MATCHED, WAITING

_AHEAD = 12  # tuples to prefetch ahead


@compiled(inline=True)
def _line(sorted_codes):
    """(first code, slope) of the line through the first and last code, to interpolate rows."""
    if len(sorted_codes) == 0:
        return 0.0, 0.0
    base = float(sorted_codes[0])
    width = float(sorted_codes[len(sorted_codes) - 1]) - base
    return base, (len(sorted_codes) - 1) / width if width > 0 else 0.0


@compiled(inline=True)
def _first_row(page_codes, code, low, guess):
    """The first row from ``low`` on whose code is not below ``code``, by a search around a guess.

    Keys are often dense; then the guess is exact, and one cache line is touched.
    """
    end = len(page_codes)
    step = 1
    if page_codes[guess] < code:
        begin, stop = guess + 1, guess + 1
        while stop < end and page_codes[stop] < code:
            begin = stop + 1
            stop += step
            step <<= 1
        stop = min(stop, end)
    else:
        begin, stop = guess - 1, guess
        while begin >= low and page_codes[begin] >= code:
            stop = begin
            begin -= step
            step <<= 1
        begin = max(begin + 1, low)
    while begin < stop:
        middle = (begin + stop) >> 1
        if page_codes[middle] < code:
            begin = middle + 1
        else:
            stop = middle
    return begin


@compiled
def place(
    new_codes, rows, stretches, firsts, size, head, fill, next_chunk, free, free_count,
    codes, state, slots,
):  # fmt: skip
    """Assign slots to the tuples ``new_codes[rows]``, until a chunk is needed and none is free.

    ``stretches`` is the stretch of each tuple, or empty: then it is looked up in ``firsts``, the
    first code of every stretch. Returns (tuples placed, free chunks left).
    """
    known = len(stretches) > 0
    last = len(firsts) - 1
    base, slope = _line(firsts)
    for i in range(len(rows)):
        code = new_codes[rows[i]]
        if known:
            stretch = int(stretches[i])
        elif code >= firsts[last]:
            stretch = last
        else:
            guess = min(max(int((float(code) - base) * slope), 0), last)
            stretch = max(_first_row(firsts, code + 1, 0, guess) - 1, 0)
        at = fill[stretch]
        if at == size:
            if free_count == 0:
                return i, free_count
            free_count -= 1
            next_chunk[free[free_count]] = head[stretch]
            head[stretch] = free[free_count]
            at = 0
        slot = head[stretch] * size + at
        fill[stretch] = at + 1
        codes[slot] = code
        state[slot] = WAITING
        slots[i] = slot
    return len(rows), free_count


@compiled
def collect(stretch, size, head, fill, next_chunk):
    """Empty a stretch's list; returns the slots and the chunks of its tuples."""
    count = 0
    chunk = head[stretch]
    while chunk >= 0:
        count += 1
        chunk = next_chunk[chunk]
    chunks = np.empty(count, np.int32)
    slots = np.empty(max(0, count - 1) * size + (fill[stretch] if count else 0), np.int32)
    chunk, used, found = head[stretch], fill[stretch], 0
    for i in range(count):
        chunks[i] = chunk
        for place in range(used):
            slots[found] = chunk * size + place
            found += 1
        used = size
        chunk = next_chunk[chunk]
    head[stretch], fill[stretch] = -1, size
    return slots, chunks


@compiled
def next_needed(begin, head):
    """The first stretch from ``begin`` on, wrapping around, with waiting tuples; -1: none."""
    for i in range(len(head)):
        stretch = begin + i
        if stretch >= len(head):
            stretch -= len(head)
        if head[stretch] >= 0:
            return stretch
    return -1


@compiled
def match(page_codes, slots, cursor, once, codes, state, rows, pairs):
    """Pair tuples with the page rows of the same code, as many as fit into ``rows``.

    Both ``page_codes`` and the tuples' codes are sorted. ``cursor`` (tuple, row or -1) is
    where to resume. Matched tuples are marked. Returns the pairs written.
    """
    found, end = 0, len(page_codes)
    i, resume = cursor[0], cursor[1]
    low = 0
    base, slope = _line(page_codes)
    while i < len(slots) and end:
        slot = slots[i]
        if not once or state[slot] == WAITING:
            code = codes[slot]
            row = resume
            if row < 0:
                guess = min(max(int((float(code) - base) * slope), low), end - 1)
                low = row = _first_row(page_codes, code, low, guess)
                low = min(low, end - 1)
            while row < end and page_codes[row] == code:
                if found == len(rows):
                    cursor[0], cursor[1] = i, row
                    return found
                rows[found], pairs[found] = row, slot
                found += 1
                state[slot] = MATCHED
                if once:
                    break
                row += 1
        resume = -1
        i += 1
    cursor[0], cursor[1] = len(slots), -1
    return found


@compiled
def match_hashes(page_codes, order, slots, cursor, once, codes, state, rows, pairs):
    """The same for codes that are hashes: ``page_codes[order]`` is sorted, the tuples are not.

    Equal codes do not imply equal keys, so nothing is marked here.
    """
    found, end = 0, len(page_codes)
    i, resume = cursor[0], cursor[1]
    while i < len(slots):
        slot = slots[i]
        code = codes[slot]
        at = resume
        if once and state[slot] != WAITING:
            at = end
        elif at < 0:
            at, stop = 0, end
            while at < stop:
                middle = (at + stop) >> 1
                if page_codes[order[middle]] < code:
                    at = middle + 1
                else:
                    stop = middle
        while at < end and page_codes[order[at]] == code:
            if found == len(rows):
                cursor[0], cursor[1] = i, at
                return found
            rows[found], pairs[found] = order[at], slot
            found += 1
            at += 1
        resume = -1
        i += 1
    cursor[0], cursor[1] = i, -1
    return found


@compiled
def match_mapped(keys, sizes, slots, cursor, once, codes, state, places, rows, pairs):
    """:func:`match` for pages given by address: page ``i`` has ``sizes[i]`` sorted codes at
    ``keys[i]``, each code in one page only. ``places`` receives the page of each pair.
    """
    found = 0
    i, resume, place = cursor[0], cursor[1], cursor[2]
    opened = -1
    low, slope, base = 0, 0.0, 0.0
    page_codes = carray(address_as_pointer(keys[0]), sizes[0])
    while i < len(slots):
        slot = slots[i]
        code = codes[slot]
        if i + _AHEAD < len(slots):
            guess = int((float(codes[slots[i + _AHEAD]]) - base) * slope)
            prefetch_at(keys[place] + 8 * guess)
        while place + 1 < len(keys) and load_int64(keys[place + 1]) <= code:
            place += 1
        if opened != place:
            opened, low = place, 0
            page_codes = carray(address_as_pointer(keys[place]), sizes[place])
            base, slope = _line(page_codes)
        if not once or state[slot] == WAITING:
            end = len(page_codes)
            row = resume
            if row < 0:
                guess = min(max(int((float(code) - base) * slope), low), end - 1)
                row = _first_row(page_codes, code, low, guess)
                low = min(row, end - 1)
            while row < end and page_codes[row] == code:
                if found == len(rows):
                    cursor[0], cursor[1], cursor[2] = i, row, place
                    return found
                places[found], rows[found], pairs[found] = place, row, slot
                found += 1
                state[slot] = MATCHED
                if once:
                    break
                row += 1
        resume = -1
        i += 1
    cursor[0], cursor[1], cursor[2] = i, -1, place
    return found


@compiled
def frequent(places, rows, pairs, codes, sketch, least):
    """Of pairs that are grouped by page row: the first pair and the worth of every row whose worth,
    by the front stage's sketch, is at least ``least``."""
    first = np.empty(len(rows), np.int64)
    worth = np.empty(len(rows), np.int64)
    found, begin = 0, 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i] != rows[begin] or places[i] != places[begin]:
            value = add_to_sketch(codes[pairs[begin]], i - begin, sketch)
            if value >= least:
                first[found], worth[found] = begin, value
                found += 1
            begin = i
    return first[:found], worth[:found]
