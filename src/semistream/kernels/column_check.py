"""Checks the columns of a page: lengths, null counts, sizes of buffers, offsets."""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import load_int32, load_int64, load_uint8, load_uint64
from semistream.kernels.page_nodes import (
    ANY_NULLS,
    BOOLEAN,
    COLUMN,
    CONTENT,
    FINE,
    FIXED,
    FIXED_LIST,
    KIND,
    LIST,
    NO_KEY_NULLS,
    NULL,
    NULL_IN_MAP,
    NULL_KEY,
    NULLS,
    PARENT,
    SIZE,
    STRUCT,
    TEXT,
    TOO_SHORT,
    VALIDITY,
    VALUES,
    WRONG_COLUMNS,
    WRONG_LENGTH,
    WRONG_NULLS,
    WRONG_OFFSETS,
)

_LARGEST = 2**63 - 1


@compiled
def check_nodes(nodes, rows, heads, entries, body):
    """The first problem and its column; ``heads`` and ``entries`` are inside the page.

    Lengths, null counts and buffers must be consistent, at least as Arrow's full validation
    demands. It is stricter where compiled code relies on it: null counts are known, and a
    validity buffer has no bytes if there are no nulls.
    """
    for n in range(len(nodes)):
        length, nulls = load_int64(heads + 16 * n), load_int64(heads + 16 * n + 8)
        found = _check_length(nodes, n, rows, length, heads)
        if found == FINE:
            found = _check_nulls(nodes, n, length, nulls, entries, body)
        if found == FINE:
            found = _check_values(nodes, n, length, heads, entries, body)
        if found != FINE:
            return found, nodes[n, COLUMN]
    return FINE, np.int64(0)


@compiled
def _check_length(nodes, n, rows, length, heads):
    if length < 0:
        return WRONG_LENGTH
    parent = nodes[n, PARENT]
    if parent < 0:
        return FINE if length == rows else WRONG_LENGTH
    above = load_int64(heads + 16 * parent)
    if nodes[parent, KIND] == STRUCT:
        return FINE if length == above else WRONG_LENGTH
    if nodes[parent, KIND] == FIXED_LIST:
        items = nodes[parent, SIZE]
        if items > 0 and above > _LARGEST // items:
            return WRONG_LENGTH
        return FINE if length == above * items else WRONG_LENGTH
    return FINE  # the items of a list: compared with its offsets


@compiled
def _check_nulls(nodes, n, length, nulls, entries, body):
    if nodes[n, KIND] == NULL:
        return FINE if nulls == length else WRONG_NULLS
    if nulls < 0 or nulls > length:
        return WRONG_NULLS
    if nulls > 0 and nodes[n, NULLS] != ANY_NULLS:
        return NULL_KEY if nodes[n, NULLS] == NO_KEY_NULLS else NULL_IN_MAP
    entry = entries + 16 * nodes[n, VALIDITY]
    size = load_int64(entry + 8)
    if nulls == 0:
        return FINE if size == 0 else WRONG_NULLS
    if size < _bytes_of_bits(length):
        return TOO_SHORT
    return FINE if length - _ones(body + load_int64(entry), length) == nulls else WRONG_NULLS


@compiled(inline=True)
def _bytes_of_bits(bits):
    return (bits >> 3) + (1 if bits & 7 else 0)


@compiled
def _ones(address, bits):
    """The number of ones among the first ``bits`` bits."""
    total = np.uint64(0)
    for i in range(bits >> 6):
        total += _popcount(load_uint64(address + 8 * i))
    for i in range((bits >> 6) * 8, bits >> 3):
        total += _popcount(np.uint64(load_uint8(address + i)))
    if bits & 7:
        last = np.uint64(load_uint8(address + (bits >> 3)))
        total += _popcount(last & np.uint64((1 << (bits & 7)) - 1))
    return np.int64(total)


@compiled(inline=True)
def _popcount(word):
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    two = np.uint64(0x3333333333333333)
    word = (word & two) + ((word >> np.uint64(2)) & two)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@compiled
def _check_values(nodes, n, length, heads, entries, body):
    kind, size = nodes[n, KIND], nodes[n, SIZE]
    if kind in (STRUCT, FIXED_LIST, NULL):
        return FINE
    entry = entries + 16 * nodes[n, VALUES]
    values, held = body + load_int64(entry), load_int64(entry + 8)
    if kind == FIXED:
        return FINE if size == 0 or length <= held // size else TOO_SHORT
    if kind == BOOLEAN:
        return FINE if _bytes_of_bits(length) <= held else TOO_SHORT
    if kind != TEXT and kind != LIST:
        return WRONG_COLUMNS
    if length == 0 and held == 0:  # without rows there may be no offsets
        return FINE
    if length >= held // size:
        return TOO_SHORT
    if kind == TEXT:
        limit = load_int64(entries + 16 * nodes[n, CONTENT] + 8)
    else:
        limit = load_int64(heads + 16 * (n + 1))
    if size == 4:
        return FINE if _ascend_32(values, length, limit) else WRONG_OFFSETS
    return FINE if _ascend_64(values, length, limit) else WRONG_OFFSETS


# A loop without a branch for each offset: the compiler turns it into vector instructions.
@compiled
def _ascend_32(offsets, length, limit):
    wrong = load_int32(offsets) < 0
    for i in range(length):
        wrong |= load_int32(offsets + 4 * i + 4) < load_int32(offsets + 4 * i)
    return not wrong and load_int32(offsets + 4 * length) <= limit


@compiled
def _ascend_64(offsets, length, limit):
    wrong = load_int64(offsets) < 0
    for i in range(length):
        wrong |= load_int64(offsets + 8 * i + 8) < load_int64(offsets + 8 * i)
    return not wrong and load_int64(offsets + 8 * length) <= limit
