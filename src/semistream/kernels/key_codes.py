"""Compares the codes that pages store with their keys, in order to trust the codes from then on.

Computes the same codes as :class:`semistream.keys.KeyCodec`, directly from the pages' buffers.
"""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.hashing import fold_text, fold_word
from semistream.kernels.intrinsics import (
    load_int8,
    load_int16,
    load_int32,
    load_int64,
    load_uint8,
    load_uint16,
    load_uint32,
)
from semistream.kernels.key_parts import (
    BIT,
    BITS,
    BYTES,
    DECIMAL,
    HASHED,
    KIND,
    OFFSET,
    PACKED,
    SIGNED,
    TEXT,
    WIDE_DECIMAL,
    WIDTH,
)
from semistream.kernels.page_nodes import FINE, OUT_OF_ORDER, WRONG_CODES, WRONG_ENDS

_SIGN = np.int64(-(2**63))
_DIGITS_HIGH, _DIGITS_LOW = np.uint64(10**38 >> 64), np.uint64(10**38 % 2**64)
_BLOCK = 1024  # rows whose codes are computed at once


@compiled
def check_codes(codes, rows, first_codes, last_codes, problem):
    """Check the order of each page's int64 codes, which are at the address ``codes[p]``.

    The first and last must be those of the page index. Writes into ``problem[p, 0]`` where that
    is FINE.
    """
    for p in range(len(codes)):
        if problem[p, 0] == FINE and rows[p] > 0:
            address, last = codes[p], rows[p] - 1
            if (
                load_int64(address) != first_codes[p]
                or load_int64(address + 8 * last) != last_codes[p]
            ):
                problem[p, 0] = WRONG_ENDS
            else:
                wrong = False
                for i in range(last):
                    wrong |= load_int64(address + 8 * i) > load_int64(address + 8 * i + 8)
                if wrong:
                    problem[p, 0] = OUT_OF_ORDER


@compiled
def check_keys(codes, rows, parts, how, values, contents, sizes, problem):
    """Check that each page's codes are those of its keys, which have no nulls.

    ``parts`` describes the key columns (see key_parts.py) and ``how`` makes a code of them.
    ``values[k, p]`` is the address of the values or offsets of key column ``k`` in page ``p``,
    ``contents[k, p]`` and ``sizes[k, p]`` the address and bytes of its texts.
    """
    block = np.empty(_BLOCK, np.int64)
    for p in range(len(codes)):
        first = 0
        while first < rows[p] and problem[p, 0] == FINE:
            count = min(_BLOCK, rows[p] - first)
            wrong = not _compute(
                parts, how, values[:, p], contents[:, p], sizes[:, p], first, block[:count]
            )
            for i in range(count):
                wrong |= load_int64(codes[p] + 8 * (first + i)) != block[i]
            if wrong:
                problem[p, 0] = WRONG_CODES
            first += count


@compiled
def _compute(parts, how, values, contents, sizes, first, codes):
    """The codes of rows from ``first`` on; False if a key has no code."""
    codes[:] = 0
    fits, bits = True, 0
    for k in range(len(parts)):
        kind, width = parts[k, KIND], parts[k, WIDTH]
        if how != HASHED:
            fits &= _put(parts, k, how == PACKED, values[k], first, codes)
            bits += parts[k, BITS]
        elif kind == TEXT:
            _fold_texts(values[k], width, contents[k], sizes[k], first, codes)
        elif kind == BYTES:
            for i in range(len(codes)):
                begin = (first + i) * width
                folded = fold_text(np.uint64(codes[i]), values[k], begin, begin + width, sizes[k])
                codes[i] = np.int64(folded)
        else:
            fits &= _fold_words(kind, width, values[k], first, codes)
    if how == PACKED and bits == 64:
        for i in range(len(codes)):
            codes[i] ^= _SIGN
    return fits


@compiled
def _put(parts, k, packed, address, first, codes):
    """Set the codes to the values of a column, or append its bits to them."""
    kind, width, bits = parts[k, KIND], parts[k, WIDTH], np.uint64(parts[k, BITS])
    offset, fits = np.uint64(parts[k, OFFSET]), True
    for i in range(len(codes)):
        if kind == DECIMAL:
            value, _, known = _decimal(address, first + i, width)
            fits &= known
        else:
            value = _integer(kind, address, first + i, width)
        if packed:
            ones = (np.uint64(1) << bits) - np.uint64(1)
            number = (np.uint64(value) + offset) & ones
            value = np.int64((np.uint64(codes[i]) << bits) | number)
        codes[i] = value
    return fits


@compiled
def _fold_texts(offsets, width, content, size, first, codes):
    for i in range(len(codes)):
        if width == 4:
            begin = np.int64(load_int32(offsets + 4 * (first + i)))
            end = np.int64(load_int32(offsets + 4 * (first + i) + 4))
        else:
            begin = load_int64(offsets + 8 * (first + i))
            end = load_int64(offsets + 8 * (first + i) + 8)
        codes[i] = np.int64(fold_text(np.uint64(codes[i]), content, begin, end, size))


@compiled
def _fold_words(kind, width, address, first, codes):
    """Fold a column of fixed width; False if a decimal has too many digits."""
    fits = True
    for i in range(len(codes)):
        folded = np.uint64(codes[i])
        if kind == DECIMAL:
            low, high, known = _decimal(address, first + i, width)
            fits &= known
            folded = fold_word(fold_word(folded, np.uint64(low)), np.uint64(high))
        elif kind == WIDE_DECIMAL:
            for word in range(4):
                at = address + 32 * (first + i) + 8 * word
                folded = fold_word(folded, np.uint64(load_int64(at)))
        else:
            folded = fold_word(folded, np.uint64(_integer(kind, address, first + i, width)))
        codes[i] = np.int64(folded)
    return fits


@compiled
def _integer(kind, address, row, width):
    if kind == BIT:
        return np.int64((load_uint8(address + (row >> 3)) >> (row & 7)) & 1)
    at = address + row * width
    if width == 8:
        return load_int64(at) if kind == SIGNED else load_int64(at) ^ _SIGN
    if width == 4:
        return np.int64(load_int32(at)) if kind == SIGNED else np.int64(load_uint32(at))
    if width == 2:
        return np.int64(load_int16(at)) if kind == SIGNED else np.int64(load_uint16(at))
    return np.int64(load_int8(at)) if kind == SIGNED else np.int64(load_uint8(at))


@compiled
def _decimal(address, row, width):
    """A decimal as two words, low and high, and whether it has at most 38 digits."""
    at = address + row * width
    if width <= 8:
        value = _integer(SIGNED, address, row, width)
        return value, value >> 63, True
    low, high = load_int64(at), load_int64(at + 8)
    if width == 16:
        return low, high, True
    rest = high >> 63
    if load_int64(at + 16) != rest or load_int64(at + 24) != rest:
        return low, high, False
    below, above = np.uint64(low), np.uint64(high)
    if high < 0:  # the magnitude
        below, above = ~below + np.uint64(1), ~above
        if below == 0:
            above += np.uint64(1)
    known = above < _DIGITS_HIGH or (above == _DIGITS_HIGH and below < _DIGITS_LOW)
    return low, high, known
