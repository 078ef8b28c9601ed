"""SweepJoin's front stage: a hash table of keys that counts hits, and a clock hand that ages them.

An entry is a key with all its master rows, named by the slot of its first row; ``sibling`` links
the further ones. ``hits`` is 0 for a slot that is not an entry's first, else 1 + recent hits.
"""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import prefetch
from semistream.kernels.window import bucket_of, find

_BLOCK = 32  # tuples whose cache lines are prefetched together
_MOST = 255
_OTHER = 0x2545F4914F6CDD1D  # an odd multiplier, independent of bucket_of's


@compiled
def look_up(
    codes, valid, start, most_misses, once, heads, chain, held, sibling, hits,
    hit_rows, hit_slots, miss_rows,
):  # fmt: skip
    """Split stream tuples from ``start`` on into hits (paired with rows) and misses.

    Stops before a tuple whose pairs no longer fit, or when ``most_misses`` are reached.
    Returns (next tuple, pairs, misses, tuples hit).
    """
    pairs, misses, found = 0, 0, 0
    most_misses = min(most_misses, len(miss_rows))
    first = np.empty(_BLOCK, np.int64)
    i = start
    while i < len(codes):
        block = min(_BLOCK, len(codes) - i)
        for j in range(block):
            first[j] = bucket_of(codes[i + j], len(heads))
            prefetch(heads, first[j])
        for j in range(block):
            first[j] = heads[first[j]]
            if first[j] >= 0:
                prefetch(held, first[j])
                prefetch(chain, first[j])
                prefetch(hits, first[j])
        for j in range(block):  # the second key of a bucket, where the first one is another
            slot = first[j]
            if slot >= 0 and held[slot] != codes[i + j]:
                first[j] = slot = chain[slot]
                if slot >= 0:
                    prefetch(held, slot)
        for j in range(block):
            slot = first[j]
            if len(valid) != 0 and not valid[i + j]:
                slot = -1
            while slot >= 0 and held[slot] != codes[i + j]:
                slot = chain[slot]
            if slot < 0:
                if misses == most_misses:
                    return i + j, pairs, misses, found
                miss_rows[misses] = i + j
                misses += 1
                continue
            before, entry = pairs, slot
            while slot >= 0 and pairs < len(hit_rows):
                hit_rows[pairs], hit_slots[pairs] = i + j, slot
                pairs += 1
                slot = -1 if once else sibling[slot]
            if slot >= 0:
                return i + j, before, misses, found
            found += 1
            if hits[entry] < _MOST:
                hits[entry] += 1
        i += block
    return i, pairs, misses, found


@compiled(inline=True)
def _counters(code, counters):
    """The two counters of a key in a sketch."""
    return bucket_of(code, counters), bucket_of((code ^ (code >> 15)) * _OTHER, counters)


@compiled(inline=True)
def prefetch_counters(code, sketch):
    if len(sketch) != 0:
        one, two = _counters(code, len(sketch))
        prefetch(sketch, one)
        prefetch(sketch, two)


@compiled(inline=True)
def add_to_sketch(code, count, sketch):
    """Add to a key's count in the sketch, if there is one; returns the new count. Each key has
    two counters, and the smaller one is an upper bound, as in a count-min sketch."""
    if len(sketch) == 0:
        return min(count, _MOST)
    one, two = _counters(code, len(sketch))
    value = min(min(sketch[one], sketch[two]) + count, _MOST)
    sketch[one], sketch[two] = max(sketch[one], value), max(sketch[two], value)
    return value


@compiled
def count(codes, counts, sketch):
    """:func:`add_to_sketch` for many keys; keys with a count of zero are skipped."""
    values = np.zeros(len(codes), np.int64)
    for i in range(len(codes)):
        if counts[i] > 0:
            values[i] = add_to_sketch(codes[i], counts[i], sketch)
    return values


@compiled
def advance_hand(hits, hand, steps):
    """Advance the clock hand over ``steps`` slots, and halve the hits of the entries there.

    Returns (the entries' slots, their hits before, the hand's new position).
    """
    slots = np.empty(steps, np.int32)
    values = np.empty(steps, np.int16)  # NumPy sorts these by radix
    found = 0
    for _ in range(steps):
        if hits[hand] > 0:
            value = hits[hand] - 1
            slots[found], values[found] = hand, value
            found += 1
            hits[hand] = 1 + (value >> 1)
        hand = hand + 1 if hand + 1 < len(hits) else 0
    return slots[:found], values[:found], hand


@compiled
def remove(entries, heads, chain, held, sibling, hits, free, free_count):
    """Remove entries; pushes their rows' slots to the ``free`` stack. Returns its new height."""
    for entry in entries:
        bucket = bucket_of(held[entry], len(heads))
        before, other = -1, heads[bucket]
        while other != entry:
            before, other = other, chain[other]
        if before < 0:
            heads[bucket] = chain[entry]
        else:
            chain[before] = chain[entry]
        hits[entry] = 0
        slot = entry
        while slot >= 0:
            free[free_count] = slot
            free_count += 1
            slot = sibling[slot]
    return free_count


@compiled
def enter(
    codes, counts, frequencies, heads, chain, held, sibling, hits, free, free_count, slots
):  # fmt: skip
    """Insert keys that are not held, with ``counts`` rows each, into free slots.

    Writes one slot per row and returns the stack's new height.
    """
    row = 0
    for i in range(len(codes)):
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
                hits[slot] = 0
            previous = slot
        held[first] = codes[i]
        hits[first] = 1 + min(frequencies[i], _MOST - 1)
        bucket = bucket_of(codes[i], len(heads))
        chain[first] = heads[bucket]
        heads[bucket] = first
    return free_count


@compiled
def held_entries(codes, heads, chain, held):
    """The entry of each code, or -1."""
    entries = np.empty(len(codes), np.int32)
    for i in range(len(codes)):
        entries[i] = find(codes[i], heads, chain, held)
    return entries


@compiled
def rows_of(entries, sibling):
    """The slots of all rows of these entries, and how many each has."""
    counts = np.zeros(len(entries), np.int64)
    total = 0
    for i in range(len(entries)):
        slot = entries[i]
        while slot >= 0:
            counts[i] += 1
            slot = sibling[slot]
        total += counts[i]
    slots = np.empty(total, np.int32)
    row = 0
    for i in range(len(entries)):
        slot = entries[i]
        while slot >= 0:
            slots[row] = slot
            row += 1
            slot = sibling[slot]
    return slots, counts
