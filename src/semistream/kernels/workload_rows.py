"""Compiled row generators for :mod:`semistream.workload`: products and sales.

Like the keys, every field is a function of (seed key, position), so any slice is reproducible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.workload import mix64, tuple_state, unit

PRICE_STEPS = 99_999
_U3, _U7, _U16, _U20, _U32, _U40 = (np.uint64(i) for i in (3, 7, 16, 20, 32, 40))


@compiled
def prices(product_ids: Any, out: Any, key: Any) -> None:
    """Price in whole cents, 0.01 to 999.99, as a function of the product alone."""
    for i in range(product_ids.size):
        draw = tuple_state(key, product_ids[i])
        out[i] = (np.int64(draw % np.uint64(PRICE_STEPS)) + 1) / 100.0


@compiled
def product_attributes(
    rows: Any, suppliers: Any, supplier_count: Any, categories: Any, category_count: Any, key: Any
) -> None:
    """Supplier and category of each row, counted from 1."""
    for i in range(rows.size):
        draw = tuple_state(key, rows[i])
        suppliers[i] = np.int32((draw >> _U32) % np.uint64(supplier_count)) + 1
        categories[i] = np.int32((draw & np.uint64(0xFFFFFFFF)) % np.uint64(category_count)) + 1


@compiled
def descriptions(
    product_ids: Any, rows: Any, out: Any, prefix: Any, text: Any, word_starts: Any, key: Any
) -> None:
    """One fixed-width text per row: the prefix, twelve digits of the product, then words.

    ``out`` has one line per row. Each line is a substring of ``text`` from one of
    ``word_starts`` on, so lines differ but cost one copy each.
    """
    width = out.shape[1]
    head = min(prefix.size, width)
    tail = min(head + 13, width)
    choices = np.uint64(word_starts.size)
    for i in range(product_ids.size):
        for j in range(head):
            out[i, j] = prefix[j]
        rest = product_ids[i]
        for j in range(11, -1, -1):
            if head + j < width:
                out[i, head + j] = 48 + rest % 10
            rest //= 10
        if head + 12 < width:
            out[i, head + 12] = 32
        start = word_starts[np.int64(tuple_state(key, rows[i]) % choices)]
        line = out[i, tail:]
        source = text[start : start + width - tail]
        for j in range(line.size):
            line[j] = source[j]


@compiled
def quantities(out: Any, key: Any, offset: Any) -> None:
    """Random quantities from 1 to 7, small ones more often."""
    for i in range(out.size):
        draw = tuple_state(key, offset + i)
        out[i] = 1 + np.int32(min((draw >> _U40) % _U7, (draw >> _U16) % _U7))


@compiled
def add_misses_and_nulls(
    keys: Any,
    valid: Any,
    key: Any,
    offset: Any,
    domain: Any,
    stride: Any,
    unmatched: Any,
    nulls: Any,
) -> None:
    """Replace a fraction of the keys by absent keys, and another by nulls.

    The master's keys are stride, 2 * stride, ..., domain * stride. Absent keys are below, above,
    or, if the stride leaves gaps, inside that range, in equal parts.
    """
    kinds = np.uint64(3 if stride > 1 and domain > 1 else 2)
    top = domain * stride
    for i in range(keys.size):
        draw = tuple_state(key, offset + i)
        point = unit(draw)
        if point < nulls:
            valid[i] = 0
        elif point < nulls + unmatched:
            draw = mix64(draw)
            place = np.int64((draw >> _U20) % np.uint64(top))
            kind = draw % kinds
            if kind == np.uint64(0):
                keys[i] = -place
            elif kind == np.uint64(1):
                keys[i] = top + 1 + place
            else:
                step = 1 + np.int64((draw >> _U3) % np.uint64(stride - 1))
                keys[i] = (1 + place // stride % (domain - 1)) * stride + step
