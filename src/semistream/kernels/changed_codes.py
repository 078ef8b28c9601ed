"""Changed codes: those of two versions together, and a filter in front of them."""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.window import bucket_of

_OTHER = np.uint64(0x2545F4914F6CDD1D)  # an odd multiplier, independent of bucket_of's
_BIT = np.uint64(63)
_ONE = np.uint64(1)


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
    return (words[bucket_of(code, len(words))] & bits) == bits


@compiled
def add(codes, words):
    """Add codes to a filter."""
    for code in codes:
        words[bucket_of(code, len(words))] |= _bits(code)


@compiled
def merge(
    newer, newer_low, newer_high, older, older_low, older_high, codes, low, high, words
):  # fmt: skip
    """The union of two sorted lists of codes with their pages; of a code that is in both, the newer
    pages. Codes that are only in the newer list are added to the filter ``words``, if it has any.
    Returns the number of codes."""
    i, j, count = 0, 0, 0
    while i < len(newer) and j < len(older):
        if older[j] < newer[i]:
            codes[count], low[count], high[count] = older[j], older_low[j], older_high[j]
            j += 1
        else:
            codes[count], low[count], high[count] = newer[i], newer_low[i], newer_high[i]
            if older[j] == newer[i]:
                j += 1
            elif len(words):
                words[bucket_of(newer[i], len(words))] |= _bits(newer[i])
            i += 1
        count += 1
    while i < len(newer):
        codes[count], low[count], high[count] = newer[i], newer_low[i], newer_high[i]
        if len(words):
            words[bucket_of(newer[i], len(words))] |= _bits(newer[i])
        i += 1
        count += 1
    while j < len(older):
        codes[count], low[count], high[count] = older[j], older_low[j], older_high[j]
        j += 1
        count += 1
    return count
