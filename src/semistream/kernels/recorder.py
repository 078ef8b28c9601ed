"""The front stage's hash table and frequency recorder.

An entry is a key with all its master rows, identified by the slot of its first row; ``sibling``
links the further rows; -1 ends that list and the bucket chains. The frequency
recorder is one circular list of entries per frequency, newest first, linked by ``higher`` and
``lower``; its sentinels follow the slots. So the least frequent entry is found without a search.
"""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.states import LISTS
from semistream.kernels.window import bucket_of, find


@compiled
def look_up(
    codes, valid, start, most_misses, once, heads, chain, held, sibling,
    hit_rows, hit_slots, miss_rows,
):  # fmt: skip
    """Split stream tuples from ``start`` on into hits (paired with rows) and misses.

    Stops before a tuple whose pairs no longer fit, or when ``most_misses`` are reached.
    Returns (next tuple, pairs, misses, tuples hit).
    """
    pairs, misses, hits = 0, 0, 0
    i = start
    while i < len(codes):
        slot = -1
        if len(valid) == 0 or valid[i]:
            slot = find(codes[i], heads, chain, held)
        if slot < 0:
            if misses == most_misses or misses == len(miss_rows):
                break
            miss_rows[misses] = i
            misses += 1
        else:
            before = pairs
            while slot >= 0 and pairs < len(hit_rows):
                hit_rows[pairs], hit_slots[pairs] = i, slot
                pairs += 1
                slot = -1 if once else sibling[slot]
            if slot >= 0:
                pairs = before
                break
            hits += 1
        i += 1
    return i, pairs, misses, hits


@compiled(inline=True)
def _unrank(entry, higher, lower):
    lower[higher[entry]] = lower[entry]
    higher[lower[entry]] = higher[entry]


@compiled(inline=True)
def _rank(entry, f, higher, lower):
    sentinel = len(higher) - LISTS + f
    first = lower[sentinel]
    higher[entry], lower[entry] = sentinel, first
    higher[first] = entry
    lower[sentinel] = entry


@compiled
def remove(entry, heads, chain, held, sibling, higher, lower, free, free_count):
    """Remove an entry; pushes its rows' slots to the ``free`` stack. Returns its new height."""
    _unrank(entry, higher, lower)
    bucket = bucket_of(held[entry], len(heads))
    before, other = -1, heads[bucket]
    while other != entry:
        before, other = other, chain[other]
    if before < 0:
        heads[bucket] = chain[entry]
    else:
        chain[before] = chain[entry]
    while entry >= 0:
        free[free_count] = entry
        free_count += 1
        entry = sibling[entry]
    return free_count


@compiled
def evict(rows, heads, chain, held, sibling, higher, lower, free, free_count):
    """Remove the least frequent entries, oldest first, until ``rows`` slots are free."""
    for sentinel in range(len(higher) - LISTS, len(higher)):
        while free_count < rows and higher[sentinel] != sentinel:
            free_count = remove(
                higher[sentinel], heads, chain, held, sibling, higher, lower, free, free_count
            )
    return free_count


@compiled
def admit(
    codes, counts, frequencies, heads, chain, held, sibling, higher, lower,
    free, free_count, slots,
):  # fmt: skip
    """Insert keys with ``counts`` rows each into free slots; re-rank those already held.

    Writes one slot per row (-1 for a key already held) and returns the stack's new height.
    """
    row = 0
    for i in range(len(codes)):
        f = min(frequencies[i], LISTS - 1)
        entry = find(codes[i], heads, chain, held)
        if entry >= 0:
            _unrank(entry, higher, lower)
            _rank(entry, f, higher, lower)
            for _ in range(counts[i]):
                slots[row] = -1
                row += 1
            continue
        first, previous = -1, -1
        for _ in range(counts[i]):
            free_count -= 1
            slot = free[free_count]
            slots[row] = slot
            row += 1
            sibling[slot] = -1
            if first < 0:
                first = slot
            else:
                sibling[previous] = slot
            previous = slot
        held[first] = codes[i]
        bucket = bucket_of(codes[i], len(heads))
        chain[first] = heads[bucket]
        heads[bucket] = first
        _rank(first, f, higher, lower)
    return free_count


@compiled
def drop(codes, heads, chain, held, sibling, higher, lower, free, free_count):
    """Remove these keys, if held. Returns the stack's new height."""
    for i in range(len(codes)):
        entry = find(codes[i], heads, chain, held)
        if entry >= 0:
            free_count = remove(
                entry, heads, chain, held, sibling, higher, lower,
                free, free_count,
            )  # fmt: skip
    return free_count


@compiled
def count_recent(codes, rows, table, seen, stamp, span):
    """The temporary buffer: how often each key was seen within the last ``span`` tuples.

    ``table`` is an open hash of codes with ``seen`` counts; ``stamp[0]`` counts tuples, and
    the buffer is cleared when it reaches ``span``. Returns the count of each tuple's key.
    """
    counts = np.empty(len(rows), np.int32)
    for i in range(len(rows)):
        if stamp[0] >= span:
            seen[:] = 0
            stamp[0] = 0
        stamp[0] += 1
        code = codes[rows[i]]
        place = bucket_of(code, len(table))
        while seen[place] > 0 and table[place] != code:
            place = place + 1 if place + 1 < len(table) else 0
        table[place] = code
        seen[place] += 1
        counts[i] = seen[place]
    return counts
