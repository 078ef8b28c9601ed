"""Streams and master tables of every shape that is known to break joins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from conformance.suite import conform, every_join
from harness import ALL_AT_ONCE, Case

EVERY_CUT = (1, 7, 1000, ALL_AT_ONCE)


def master(keys: Iterable[int | None]) -> pa.Table:
    """About thirty rows to a page of 1 KiB; every row differs, also under one key."""
    keys = list(keys)
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(range(len(keys)), pa.int64()),
            "name": pa.array([f"row {i}" for i in range(len(keys))], pa.string()),
        }
    )


def stream(keys: Iterable[int | None]) -> pa.Table:
    """Every tuple has a unique number, so that a lost and a duplicated one do not cancel out."""
    keys = list(keys)
    return pa.table({"n": pa.array(range(len(keys)), pa.int64()), "k": pa.array(keys, pa.int64())})


def draw(seed: int, count: int, low: int, high: int) -> list[int]:
    return np.random.default_rng(seed).integers(low, high, count).tolist()


def skewed(seed: int, count: int, domain: int) -> list[int]:
    ranks = np.random.default_rng(seed).zipf(1.3, count) % domain
    return (ranks * 7919 % domain).tolist()


EVEN = master(range(0, 1000, 2))
LOW, HIGH = -(2**63), 2**63 - 1

CASES = [
    # keys below, between and above the master's
    Case("some match", stream(draw(1, 300, -20, 1020)), EVEN, cuts=EVERY_CUT),
    Case("all match", stream([2 * k for k in draw(2, 200, 0, 500)]), EVEN),
    Case("skewed", stream(skewed(3, 600, 1000)), EVEN, cuts=EVERY_CUT),
    Case("all below", stream(range(-100, 0)), EVEN),
    Case("all between", stream(range(1, 999, 4)), EVEN),
    Case("all above", stream(range(1000, 1100)), EVEN),
    Case("first and last of the master", stream([0, 998, -1, 999, 0, 998]), EVEN),
    Case("extreme keys", stream([LOW, HIGH, LOW + 1, HIGH - 1, 0]), master([LOW, -1, 0, HIGH])),
    Case("in key order", stream(range(-10, 1010, 3)), EVEN),
    Case("against key order", stream(range(1010, -10, -3)), EVEN),
    Case("hot spot that moves", stream(draw(4, 150, 0, 40) + draw(5, 150, 900, 940)), EVEN),
    # duplicate keys in the stream: a map from key to one tuple loses all but the last
    Case("three stream keys", stream(draw(6, 300, 4, 7)), EVEN, cuts=EVERY_CUT),
    Case("one stream key", stream([500] * 300), EVEN, cuts=EVERY_CUT),
    Case("one stream key without a match", stream([501] * 300), EVEN, cuts=EVERY_CUT),
    # duplicate keys in the master: equal keys lie together, and may cross pages
    Case("many to many", stream(draw(7, 120, 0, 130)), master(sorted(draw(8, 400, 0, 120)))),
    Case(
        "a key over many pages",
        stream([7, 6, 8, 7, 5, 9, 7] * 3),
        master([1, 6, 6] + [7] * 300 + [8, 8, 8, 10]),
        cuts=(1, ALL_AT_ONCE),
    ),
    Case("all master rows have one key", stream([1, 3, 1, 2, 1]), master([1] * 300)),
    Case("two keys share a border page", stream([1, 2, 1, 2]), master([1] * 45 + [2] * 45)),
    # nulls never match, on either side
    Case(
        "null stream keys",
        stream([None if k % 3 == 0 else k for k in draw(9, 200, 0, 1000)]),
        EVEN,
        cuts=EVERY_CUT,
    ),
    Case("only null stream keys", stream([None] * 100), EVEN),
    Case(
        "null keys on both sides",
        stream([None, 1, None, 2, 3] * 20),
        master([None] * 40 + [1, 2] * 20),
    ),
    # empty and tiny
    Case("an empty master", stream(draw(10, 100, 0, 50)), master([]), cuts=EVERY_CUT),
    Case("an empty stream", stream([]), EVEN),
    Case("an empty stream and master", stream([]), master([])),
    Case("one master row", stream([4, 5, 6, None] * 20), master([5])),
    Case("one tuple that matches", stream([400]), EVEN),
    Case("one tuple without a match", stream([401]), EVEN),
    # page counts that divide nothing, and streams that end before one cycle does
    Case("shorter than one cycle", stream([998, 0, 501]), EVEN),
    Case("shorter than one cycle, buffer of 3 pages", stream([998, 0, 501]), EVEN, cuts=(1, 2)),
    *(
        Case(f"{rows} master rows", stream(draw(rows, 150, 0, rows + 5)), master(range(rows)))
        for rows in (2, 29, 31, 211, 499)
    ),
    # a head of the queue that no page holds
    Case("unmatched head", stream([501, *[2 * k for k in draw(11, 200, 0, 500)]]), EVEN),
    Case("unmatched heads all the time", stream([501, 0, 0, 0, 0, 503, 998] * 30), EVEN),
    Case("null head", stream([None, *draw(12, 200, 0, 1000)]), EVEN),
]


@every_join(CASES)
def test_shapes(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))
