"""Tuples grouped by the page that holds their key, and matched to its rows.

    first[group] -> tuple -> following[tuple] -> ... -> -1

A group is a page, or several that one key runs through. Page rows are sorted, so a tuple finds
its rows by bisection: no hash table, four bytes of links per tuple.
"""

import numpy as np
from numba import njit

from semistream.kernels.intrinsics import prefetch
from semistream.kernels.states import MATCHED, WAITING

_AHEAD = 16


@njit(cache=True, nogil=True)
def locate(new_codes, rows, firsts, groups):
    """The last group whose first key is not above each tuple's; the first for keys below all."""
    for i in range(len(rows)):
        code = new_codes[rows[i]]
        low, high = 0, len(firsts)
        while low < high:
            middle = (low + high) >> 1
            if firsts[middle] <= code:
                low = middle + 1
            else:
                high = middle
        groups[i] = max(low - 1, 0)


@njit(cache=True, nogil=True)
def insert(new_codes, rows, slots, groups, first, following, codes, state):
    """Put the tuples ``new_codes[rows]`` into free slots, at the head of their group's list."""
    for i in range(len(rows)):
        slot, group = slots[i], groups[i]
        codes[slot] = new_codes[rows[i]]
        state[slot] = WAITING
        following[slot] = first[group]
        first[group] = slot


@njit(cache=True, nogil=True)
def count_waiters(begin, end, first, following):
    total = 0
    for group in range(begin, end):
        slot = first[group]
        while slot >= 0:
            total += 1
            slot = following[slot]
    return total


@njit(cache=True, nogil=True)
def collect(begin, end, first, following, slots):
    """Slots of all tuples that wait for groups ``begin`` to ``end - 1``, and empty their lists.

    The lists are walked side by side, a block at a time, so that their cache misses overlap.
    """
    found = 0
    group = begin
    heads = np.empty(_AHEAD, np.int64)
    while group < end:
        width = min(_AHEAD, end - group)
        for i in range(width):
            heads[i] = first[group + i]
            first[group + i] = -1
        alive = width
        while alive:
            alive = 0
            for i in range(width):
                slot = heads[i]
                if slot >= 0:
                    slots[found] = slot
                    found += 1
                    heads[i] = following[slot]
                    if heads[i] >= 0:
                        prefetch(following, heads[i])
                        alive += 1
        group += width
    return found


@njit(cache=True, nogil=True)
def next_needed(begin, first):
    """The first group from ``begin`` on, going round, that a tuple waits for; -1 for none."""
    for i in range(len(first)):
        group = begin + i
        if group >= len(first):
            group -= len(first)
        if first[group] >= 0:
            return group
    return -1


@njit(cache=True, nogil=True)
def match(page_codes, order, slots, cursor, mark, once, codes, state, rows, pairs):
    """Pair waiting tuples with page rows of the same code, as many as fit into ``rows``.

    ``page_codes[order]`` is sorted (``order`` is empty if ``page_codes`` itself is). ``cursor``
    (tuple, row) says where to go on. Returns the pairs written; pair i is (rows[i], pairs[i]).
    """
    found = 0
    i, resume = cursor[0], cursor[1]
    ordered = len(order) == 0
    while i < len(slots):
        if i + _AHEAD < len(slots):
            prefetch(codes, slots[i + _AHEAD])
        slot = slots[i]
        if not once or state[slot] == WAITING:
            code = codes[slot]
            position = resume
            if position < 0:
                low, high = 0, len(page_codes)
                while low < high:
                    middle = (low + high) >> 1
                    if page_codes[middle if ordered else order[middle]] < code:
                        low = middle + 1
                    else:
                        high = middle
                position = low
            while position < len(page_codes):
                row = position if ordered else order[position]
                if page_codes[row] != code:
                    break
                if found == len(rows):
                    cursor[0], cursor[1] = i, position
                    return found
                rows[found], pairs[found] = row, slot
                found += 1
                if mark:
                    state[slot] = MATCHED
                    if once:
                        break
                position += 1
        resume = -1
        i += 1
    cursor[0], cursor[1] = i, -1
    return found
