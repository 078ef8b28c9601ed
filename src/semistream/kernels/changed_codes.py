"""The codes that each delta of a table has changed: a sorted list, and a Bloom filter in front.

A version has a few deltas. Compiled code gets them as a table, the newest first: the newest delta
that has changed a code has its rows. A delta has one row for each of its lists: those of deltas
that were folded are merged in steps, after a run has moved to the new version.
"""

import numpy as np
from numba import carray

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import address_as_pointer
from semistream.kernels.sorted_codes import position_of
from semistream.kernels.window import bucket_of

_OTHER = np.uint64(0x2545F4914F6CDD1D)  # an odd multiplier, independent of bucket_of's
_BIT = np.uint64(63)
_ONE = np.uint64(1)

# Columns of the table of deltas.
CODES, COUNT, FIRST, LAST = 0, 1, 2, 3  # address and number of the codes; the first and the last
WORDS, WORD_COUNT, FILTERED = 4, 5, 6  # address and size of the filter, which has all codes up to
# FILTERED; none if WORD_COUNT is 0
FIRST_PLACE, END_PLACE = 7, 8  # where its rows are: pages or, in SweepJoin, stretches
COLUMNS = 9


@compiled(inline=True)
def _bits(code):
    """Three bits of a word, by the highest bits of a product."""
    mixed = np.uint64(code) * _OTHER
    return (
        (_ONE << (mixed >> np.uint64(58)))
        | (_ONE << ((mixed >> np.uint64(52)) & _BIT))
        | (_ONE << ((mixed >> np.uint64(46)) & _BIT))
    )


@compiled(inline=True)
def may_contain(code, words):
    """Whether a code may be among those that were added; a Bloom filter in one word per code."""
    bits = _bits(code)
    return (np.uint64(words[bucket_of(code, len(words))]) & bits) == bits


@compiled
def add(codes, words):
    """Add codes to a filter."""
    for code in codes:
        words[bucket_of(code, len(words))] |= _bits(code)


@compiled
def find(code, deltas):
    """The row of the newest delta that has changed a code; -1 if none has."""
    for row in range(len(deltas)):
        if code < deltas[row, FIRST] or code > deltas[row, LAST]:
            continue
        if deltas[row, WORD_COUNT] and code <= deltas[row, FILTERED]:
            words = carray(address_as_pointer(deltas[row, WORDS]), deltas[row, WORD_COUNT])
            if not may_contain(code, words):
                continue
        codes = carray(address_as_pointer(deltas[row, CODES]), deltas[row, COUNT])
        if position_of(code, codes) >= 0:
            return row
    return -1


@compiled
def find_all(codes, deltas, rows):
    """The row of the newest delta that has changed each code; -1 if none has."""
    for i in range(len(codes)):
        rows[i] = find(codes[i], deltas)
