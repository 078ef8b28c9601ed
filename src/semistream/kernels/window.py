"""The window's multi-hash-map: many stream tuples per key, a fixed number of slots.

    heads[bucket] -> representative of a key -> chain -> representative of another key ...
                          |  dup (circular, oldest next to the representative)
                          v
                     oldest tuple -> ... -> newest tuple = the representative

The representative is the newest tuple of its key, so its ``dup`` is the oldest one: inserting
and expiring are both O(1) even for a key with a million waiting tuples, and a chain has one entry
per distinct key. All links are slot numbers; -1 ends a list.
"""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import prefetch
from semistream.kernels.states import MATCHED, WAITING

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_BLOCK = 32  # rows whose cache lines are prefetched together


@compiled(inline=True)
def bucket_of(code, buckets):
    """Multiply-shift hash to any number of buckets, without a division."""
    return np.int64((((np.uint64(code) * _GOLDEN) >> _HALF) * np.uint64(buckets)) >> _HALF)


@compiled(inline=True)
def find(code, heads, chain, codes):
    slot = heads[bucket_of(code, len(heads))]
    while slot >= 0 and codes[slot] != code:
        slot = chain[slot]
    return slot


@compiled
def insert(new_codes, rows, slots, heads, chain, dup, codes, state):
    """Insert the tuples ``new_codes[rows]`` into the free slots ``slots``, in arrival order."""
    for i in range(len(rows)):
        if i + _BLOCK < len(rows):
            prefetch(heads, bucket_of(new_codes[rows[i + _BLOCK]], len(heads)))
        slot, code = slots[i], new_codes[rows[i]]
        codes[slot] = code
        state[slot] = WAITING
        bucket = bucket_of(code, len(heads))
        before, other = -1, heads[bucket]
        while other >= 0 and codes[other] != code:
            before, other = other, chain[other]
        if other < 0:
            dup[slot] = slot
            chain[slot] = heads[bucket]
            heads[bucket] = slot
        else:
            dup[slot] = dup[other]
            dup[other] = slot
            chain[slot] = chain[other]
            if before < 0:
                heads[bucket] = slot
            else:
                chain[before] = slot


@compiled(inline=True)
def _relink(bucket, before, old, new, heads, chain):
    """In a bucket's chain, replace ``old`` by ``new``, or remove it if ``new`` is -1."""
    after = chain[old]
    if new >= 0:
        chain[new] = after
        after = new
    if before < 0:
        heads[bucket] = after
    else:
        chain[before] = after


@compiled
def expire(first, count, capacity, heads, chain, dup, codes):
    """Remove the ``count`` oldest tuples, which are in a ring of slots from ``first`` on."""
    for i in range(count):
        if i + _BLOCK < count:
            prefetch(heads, bucket_of(codes[(first + i + _BLOCK) % capacity], len(heads)))
        slot = (first + i) % capacity
        code = codes[slot]
        bucket = bucket_of(code, len(heads))
        before, newest = -1, heads[bucket]
        while codes[newest] != code:
            before, newest = newest, chain[newest]
        if newest == slot:
            _relink(bucket, before, slot, -1, heads, chain)
        else:
            dup[newest] = dup[slot]


@compiled
def probe(page_codes, valid, cursor, mark, once, heads, chain, dup, codes, state, rows, slots):
    """Pair page rows with the waiting tuples of the same code, as many as fit into ``rows``.

    ``cursor`` (row, slot or -1) is where to resume. ``mark`` marks matched tuples at once;
    ``once`` skips tuples that are already marked. Returns the pairs written.
    """
    found = 0
    row, resume = cursor[0], np.int32(cursor[1])
    first = np.empty(_BLOCK, np.int64)
    while row < len(page_codes):
        block = min(_BLOCK, len(page_codes) - row)
        for i in range(block):  # three short passes, so that cache misses overlap
            first[i] = bucket_of(page_codes[row + i], len(heads))
            prefetch(heads, first[i])
        for i in range(block):
            first[i] = heads[first[i]]
            if first[i] >= 0:
                prefetch(codes, first[i])
        for i in range(block):
            newest = np.int32(first[i])
            code = page_codes[row + i]
            if len(valid) != 0 and not valid[row + i]:
                newest = -1
            while newest >= 0 and codes[newest] != code:
                newest = chain[newest]
            if newest >= 0:
                slot = dup[newest] if resume < 0 else resume
                while True:
                    if not once or state[slot] == WAITING:
                        if found == len(rows):
                            cursor[0], cursor[1] = row + i, slot
                            return found
                        rows[found], slots[found] = row + i, slot
                        found += 1
                        if mark:
                            state[slot] = MATCHED
                    if slot == newest:
                        break
                    slot = dup[slot]
            resume = np.int32(-1)
        row += block
    cursor[0], cursor[1] = row, -1
    return found


@compiled
def tuples_of(code, start, heads, chain, dup, codes, slots):
    """Slots of the waiting tuples with ``code``, oldest first, from ``start`` on (-1: the oldest).

    Returns (number of slots, next start or -1).
    """
    newest = find(code, heads, chain, codes)
    if newest < 0:
        return 0, -1
    slot = dup[newest] if start < 0 else start
    found = 0
    while True:
        if found == len(slots):
            return found, slot
        slots[found] = slot
        found += 1
        if slot == newest:
            return found, -1
        slot = dup[slot]


@compiled
def settle(done_codes, heads, chain, dup, codes, state, older, newer, free, free_count):
    """Remove every tuple with one of these codes whose state is no longer WAITING.

    Pushes slots to the ``free`` stack and unlinks them from the queue. Waiting tuples with the
    same code but another key stay. Returns the new height of the stack.
    """
    for i in range(len(done_codes)):
        if i + _BLOCK < len(done_codes):
            prefetch(heads, bucket_of(done_codes[i + _BLOCK], len(heads)))
        code = done_codes[i]
        bucket = bucket_of(code, len(heads))
        before, newest = -1, heads[bucket]
        while newest >= 0 and codes[newest] != code:
            before, newest = newest, chain[newest]
        if newest < 0:
            continue
        slot, kept, first_kept = dup[newest], -1, -1
        while True:
            following = dup[slot]
            if state[slot] == WAITING:
                if kept < 0:
                    first_kept = slot
                else:
                    dup[kept] = slot
                kept = slot
            else:
                newer[older[slot]] = newer[slot]
                older[newer[slot]] = older[slot]
                free[free_count] = slot
                free_count += 1
            if slot == newest:
                break
            slot = following
        if kept < 0:
            _relink(bucket, before, newest, -1, heads, chain)
        else:
            dup[kept] = first_kept
            if kept != newest:
                _relink(bucket, before, newest, kept, heads, chain)
    return free_count


@compiled
def enqueue(slots, older, newer):
    """Append tuples to the doubly linked queue; its sentinel is the slot after the last."""
    sentinel = len(older) - 1
    for i in range(len(slots)):
        slot, last = slots[i], older[sentinel]
        older[slot], newer[slot] = last, sentinel
        newer[last] = slot
        older[sentinel] = slot


@compiled
def oldest(newer, slots):
    """The first ``len(slots)`` tuples of the queue, oldest first."""
    slot = newer[len(newer) - 1]
    for i in range(len(slots)):
        slots[i] = slot
        slot = newer[slot]


@compiled
def count_pairs(rows, counts):
    """Count the pairs of each page row: the frequency f of the papers."""
    for i in range(len(rows)):
        counts[rows[i]] += 1
