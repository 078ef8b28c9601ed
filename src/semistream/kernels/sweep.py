"""Tuples grouped by the stretch of pages that holds their key, and matched to its rows.

    head[stretch] -> newest chunk -> next_chunk -> ... -> -1      slot = chunk * size + place

A stretch is a few adjacent pages. Its tuples are in chunks of adjacent slots: admission writes to
the end of a chunk, a visit reads whole chunks, and there is one link per chunk instead of one per
tuple. All chunks but the newest of a stretch are full.
"""

import numpy as np
from numba import carray

from semistream.kernels.changed_codes import END_PLACE, FIRST_PLACE, find
from semistream.kernels.compile import compiled
from semistream.kernels.counting_cache import add_to_sketch, prefetch_counters
from semistream.kernels.intrinsics import address_as_pointer, load_int64, prefetch_at
from semistream.kernels.sorted_codes import first_row, line
from semistream.kernels.states import MATCHED, REFUSED, WAITING

_AHEAD = 12  # tuples to prefetch ahead,
_NEAR = 5  # and those whose page is not the one of the tuple before them
_MOST_ROWS = 16  # of a key that is offered to a front stage
_FEW = 32  # tuples that are sorted by insertion


@compiled(inline=True)
def _stretch_of(code, firsts, base, slope):
    """The stretch whose codes begin at or before a code; 0 if none does."""
    last = len(firsts) - 1
    if code >= firsts[last]:
        return last
    guess = min(max(int((float(code) - base) * slope), 0), last)
    return max(first_row(firsts, code + 1, 0, guess) - 1, 0)


@compiled
def place(
    new_codes, rows, stretches, firsts, base_stretches, deltas,
    size, head, fill, next_chunk, free, free_count, codes, state, slots,
):  # fmt: skip
    """Assign slots to the tuples ``new_codes[rows]``, until a chunk is needed and none is free.

    ``stretches`` is the stretch of each tuple, or empty: then it is looked up in ``firsts``, the
    first code of every stretch, among those of the newest of ``deltas`` that has changed the code,
    or among ``base_stretches``, the first ones. Returns (tuples placed, free chunks left).
    """
    known, has_changes = len(stretches) > 0, len(deltas) > 0
    base_firsts = firsts[:base_stretches]
    base, slope = line(base_firsts)
    for i in range(len(rows)):
        code = new_codes[rows[i]]
        if known:
            stretch = int(stretches[i])
        else:
            delta = find(code, deltas) if has_changes else -1
            if delta < 0:
                stretch = _stretch_of(code, base_firsts, base, slope)
            else:
                first, end = deltas[delta, FIRST_PLACE], deltas[delta, END_PLACE]
                stretch = 0  # of a delta without rows: the code is deleted
                if first < end:
                    stretch = first + max(np.searchsorted(firsts[first:end], code, "right") - 1, 0)
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


@compiled(inline=True)
def _waiting(stretch, size, head, fill, next_chunk):
    """(tuples, chunks) in the list of a stretch."""
    chunks, chunk = 0, head[stretch]
    while chunk >= 0:
        chunks += 1
        chunk = next_chunk[chunk]
    return (chunks - 1) * size + fill[stretch] if chunks else 0, chunks


@compiled
def collect(begin, end, most, most_tuples, dense, first_page, size, head, fill, next_chunk):
    """Empty the lists of the next stretches from ``begin`` on, before ``end``, whose tuples need at
    most ``most`` pages together and are at most ``most_tuples``; at least the first one that has
    tuples. A stretch of which they need ``dense`` pages or more is visited alone.

    Returns (slots, their chunks, the stretch after the last one that had tuples: whoever comes
    for a later one is not behind the sweep).
    """
    tuples, chunks, pages, stretch, stop = 0, 0, 0, begin, begin
    while stretch < end:
        waiting, linked = _waiting(stretch, size, head, fill, next_chunk)
        needed = min(waiting, first_page[stretch + 1] - first_page[stretch])
        if tuples and (pages + needed > most or needed >= dense or tuples + waiting > most_tuples):
            break
        tuples += waiting
        chunks += linked
        pages += needed
        stretch += 1
        if waiting:
            stop = stretch
        if needed >= dense:
            break
    slots = np.empty(tuples, np.int32)
    freed = np.empty(chunks, np.int32)
    found, emptied = 0, 0
    for s in range(begin, stop):
        chunk, used = head[s], fill[s]
        while chunk >= 0:
            freed[emptied] = chunk
            emptied += 1
            for at in range(used):
                slots[found] = chunk * size + at
                found += 1
            used = size
            chunk = next_chunk[chunk]
        head[s], fill[s] = -1, size
    return slots, freed, stop


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
def in_order(codes, slots):
    """Sort tuples by code; returns (slots, their codes).

    Codes of a visit are dense or evenly spread, so interpolation puts nearly every tuple where it
    belongs: five times as fast as a comparison sort of some thousand tuples.
    """
    count = len(slots)
    found, ordered = np.empty(count, np.int64), np.empty(count, np.int32)
    if count == 0:
        return ordered, found
    keys = np.empty(count, np.int64)
    low = high = codes[slots[0]]
    for i in range(count):
        keys[i] = codes[slots[i]]
        low, high = min(low, keys[i]), max(high, keys[i])
    base, width = float(low), float(high) - float(low)
    slope = (count - 1) / width if width > 0 else 0.0
    ends = np.zeros(count + 1, np.int32)
    for i in range(count):
        ends[1 + int((float(keys[i]) - base) * slope)] += 1
    for place in range(1, count):
        ends[place] += ends[place - 1]
    for i in range(count):
        place = int((float(keys[i]) - base) * slope)
        at = ends[place]
        ends[place] = at + 1
        found[at], ordered[at] = keys[i], slots[i]
    begin = 0
    for place in range(count):
        _sort_few(found, ordered, begin, ends[place])
        begin = ends[place]
    return ordered, found


@compiled
def _sort_few(codes, slots, begin, end):
    """Sort the tuples from ``begin`` to ``end``, usually one or two."""
    at = begin + 1
    while at < end and codes[at - 1] <= codes[at]:  # one key may have many tuples
        at += 1
    if end - at > _FEW:
        order = np.argsort(codes[begin:end])
        codes[begin:end], slots[begin:end] = codes[begin:end][order], slots[begin:end][order]
        return
    for i in range(at, end):
        code, slot = codes[i], slots[i]
        j = i - 1
        while j >= begin and codes[j] > code:
            codes[j + 1], slots[j + 1] = codes[j], slots[j]
            j -= 1
        codes[j + 1], slots[j + 1] = code, slot


@compiled
def needed_pages(codes, firsts, continues, low, high, gap, pages, places):
    """The pages from ``low`` to ``high`` that can hold the codes of these tuples, which ascend;
    and up to ``gap`` pages between two of them, so that one request can read both.

    Writes the pages in order, and the place in ``pages`` of the first one that can hold each
    tuple's code. Returns the number of pages.
    """
    count, page = 0, low
    base, slope = line(firsts[low : high + 1])
    for i in range(len(codes)):
        code = codes[i]
        if page < high and firsts[page + 1] <= code:
            guess = low + min(max(int((float(code) - base) * slope), page - low), high - low)
            reached = first_row(firsts[: high + 1], code, page, guess)
            if reached > high or firsts[reached] != code or continues[reached - 1]:
                reached -= 1
            page = max(reached, page)
        first = page
        if count == 0 or pages[count - 1] < first:
            if count and first - pages[count - 1] <= gap + 1:
                for between in range(pages[count - 1] + 1, first):
                    pages[count] = between
                    count += 1
            pages[count] = first
            count += 1
        place = count - 1
        while pages[place] != first:
            place -= 1
        places[i] = place
        while page < high and continues[page] and firsts[page + 1] <= code:
            page += 1
            if pages[count - 1] < page:
                pages[count] = page
                count += 1
        page = first
    return count


@compiled
def match(
    pages, keys, sizes, slots, places, cursor, once, mark, codes, state,
    out_places, out_rows, out_slots,
):  # fmt: skip
    """Pair tuples with the page rows of the same code, as many as fit into the output.

    Page ``pages[p]`` has ``sizes[p]`` sorted codes at address ``keys[p]``; ``places[i]`` is the
    first page that can hold the code of tuple ``slots[i]``, and equal codes may go on in the next
    page. ``cursor`` (tuple, place, row or -1) is where to resume. With ``mark``, matched tuples
    are marked. Returns the pairs written.
    """
    found = 0
    i, resume_place, resume_row = cursor[0], cursor[1], cursor[2]
    opened, low, base, slope = -1, 0, 0.0, 0.0
    page_codes = carray(address_as_pointer(keys[0]), sizes[0])
    while i < len(slots):
        slot = slots[i]
        code = codes[slot]
        if i + _AHEAD < len(slots):
            ahead = places[i + _AHEAD]
            if ahead == opened:
                guess = int((float(codes[slots[i + _AHEAD]]) - base) * slope)
                prefetch_at(keys[ahead] + 8 * guess)
            else:
                prefetch_at(keys[ahead])
                prefetch_at(keys[ahead] + 8 * (sizes[ahead] - 1))
            near = places[i + _NEAR]
            if near != opened and sizes[near] > 0:
                first = float(load_int64(keys[near]))
                width = float(load_int64(keys[near] + 8 * (sizes[near] - 1))) - first
                if width > 0:
                    part = (float(codes[slots[i + _NEAR]]) - first) / width
                    prefetch_at(keys[near] + 8 * int(part * (sizes[near] - 1)))
        if not once or state[slot] != MATCHED:
            place, row = resume_place, resume_row
            if row < 0:
                place = places[i]
            if opened != place:
                opened, low = place, 0
                page_codes = carray(address_as_pointer(keys[place]), sizes[place])
                base, slope = line(page_codes)
            if row < 0:
                end = len(page_codes)
                row = end
                if end:
                    guess = min(max(int((float(code) - base) * slope), low), end - 1)
                    row = first_row(page_codes, code, low, guess)
                    low = min(row, end - 1)
            done = False
            while not done:
                if row == len(page_codes):  # equal codes may go on in the next page
                    if (
                        place + 1 == len(pages)
                        or pages[place + 1] != pages[place] + 1
                        or sizes[place + 1] == 0
                        or load_int64(keys[place + 1]) != code
                    ):
                        break
                    place += 1
                    row = 0
                    opened, low = place, 0
                    page_codes = carray(address_as_pointer(keys[place]), sizes[place])
                    base, slope = line(page_codes)
                if page_codes[row] != code:
                    break
                if found == len(out_rows):
                    cursor[0], cursor[1], cursor[2] = i, place, row
                    return found
                out_places[found], out_rows[found], out_slots[found] = place, row, slot
                found += 1
                if mark:
                    state[slot] = MATCHED
                    done = once
                row += 1
        resume_row = -1
        i += 1
    cursor[0], cursor[1], cursor[2] = i, 0, -1
    return found


@compiled
def keep_passing(passed, once, state, places, rows, slots):
    """Move the pairs that passed the conditions to the front; returns how many they are.

    Their tuples are marked as matched, the others as refused. With ``once``, a tuple has one pair
    at most.
    """
    kept = 0
    for i in range(len(slots)):
        slot = slots[i]
        if not passed[i]:
            if state[slot] == WAITING:
                state[slot] = REFUSED
        elif not once or state[slot] != MATCHED:
            state[slot] = MATCHED
            places[kept], rows[kept], slots[kept] = places[i], rows[i], slot
            kept += 1
    return kept


@compiled
def hot_keys(places, rows, pairs, codes, sketch, least):
    """Of pairs that are grouped by key, and within it by tuple: for each key whose worth by the
    front stage's sketch reaches ``least`` the number of its first pair, its rows and its worth.

    A key with more than sixteen rows is left out, and so is one whose last tuple lacks pairs.
    """
    first = np.empty(len(rows), np.int64)
    counts = np.empty(len(rows), np.int64)
    worth = np.empty(len(rows), np.int64)
    found, begin = 0, 0
    for i in range(1, len(rows) + 1):
        if i + _AHEAD < len(rows):
            prefetch_counters(codes[pairs[i + _AHEAD]], sketch)
        if i < len(rows) and codes[pairs[i]] == codes[pairs[begin]]:
            continue
        per_tuple = 1
        while begin + per_tuple < i and pairs[begin + per_tuple] == pairs[begin]:
            per_tuple += 1
        tuples = (i - begin) // per_tuple
        value = add_to_sketch(codes[pairs[begin]], tuples, sketch)
        whole = tuples * per_tuple == i - begin and per_tuple <= _MOST_ROWS
        if whole and value >= least:
            first[found], counts[found], worth[found] = begin, per_tuple, value
            found += 1
        begin = i
    return first[:found], counts[:found], worth[:found]
