"""64-bit hashes of key columns."""

import numpy as np

from semistream.kernels.compile import compiled

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MUL_A = np.uint64(0xBF58476D1CE4E5B9)
_MUL_B = np.uint64(0x94D049BB133111EB)


@compiled(inline=True)
def mix(word):
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): mixes all bits."""
    word = (word ^ (word >> np.uint64(30))) * _MUL_A
    word = (word ^ (word >> np.uint64(27))) * _MUL_B
    return word ^ (word >> np.uint64(31))


@compiled
def fold_words(words, hashes):
    """Fold one column of 64-bit words into running hashes."""
    for i in range(len(words)):
        hashes[i] = mix((hashes[i] ^ np.uint64(words[i])) + _SEED)


@compiled
def fold_bytes(offsets, data, hashes):
    """Fold one column of byte strings into running hashes, eight bytes at a time."""
    for i in range(len(hashes)):
        position, end = offsets[i], offsets[i + 1]
        h = hashes[i] ^ (np.uint64(end - position) * _MUL_B)
        while position < end:
            word = np.uint64(0)
            stop = min(position + 8, end)
            shift = np.uint64(0)
            while position < stop:
                word |= np.uint64(data[position]) << shift
                shift += np.uint64(8)
                position += 1
            h = mix((h ^ word) + _SEED)
        hashes[i] = mix(h + _SEED)
