"""64-bit hashes of key columns."""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import load_uint8, load_uint64

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MUL_A = np.uint64(0xBF58476D1CE4E5B9)
_MUL_B = np.uint64(0x94D049BB133111EB)


@compiled(inline=True)
def mix(word):
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): mixes all bits."""
    word = (word ^ (word >> np.uint64(30))) * _MUL_A
    word = (word ^ (word >> np.uint64(27))) * _MUL_B
    return word ^ (word >> np.uint64(31))


@compiled(inline=True)
def fold_word(running, word):
    """A running hash after one more 64-bit word."""
    return mix((running ^ word) + _SEED)


@compiled
def fold_text(running, content, begin, end, size):
    """A running hash after one more byte string, read eight bytes at a time.

    It is ``begin .. end - 1`` of the ``size`` bytes at the address ``content``.
    """
    running ^= np.uint64(end - begin) * _MUL_B
    position = begin
    while position + 8 <= end:
        running = fold_word(running, load_uint64(content + position))
        position += 8
    if position < end:
        if position + 8 <= size:
            unused = np.uint64(8 * (8 - (end - position)))
            word = (load_uint64(content + position) << unused) >> unused
        else:
            word, shift = np.uint64(0), np.uint64(0)
            while position < end:
                word |= np.uint64(load_uint8(content + position)) << shift
                shift += np.uint64(8)
                position += 1
        running = fold_word(running, word)
    return mix(running + _SEED)


@compiled
def fold_words(words, hashes):
    """Fold one column of 64-bit words into running hashes."""
    for i in range(len(words)):
        hashes[i] = fold_word(hashes[i], np.uint64(words[i]))


@compiled
def fold_bytes(offsets, data, hashes):
    """Fold one column of byte strings into running hashes.

    Offsets outside ``data`` are cut off at its ends.
    """
    address, size = data.ctypes.data, len(data)
    for i in range(len(hashes)):
        begin, end = max(offsets[i], 0), min(offsets[i + 1], size)
        hashes[i] = fold_text(hashes[i], address, begin, end, size)
