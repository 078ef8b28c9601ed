"""SweepJoin's model: the pages that a sweep reads, and the share of a drained batch."""

from __future__ import annotations

import math

import pytest

from cost.shapes import case
from semistream.cost import predict
from semistream.cost.sweepjoin import one_sweep


def test_a_sweep_reads_a_page_if_any_tuple_needs_it() -> None:
    """1 - exp(-M q) for each page, with equal loads q."""
    found = case("sweepjoin", "20MB", exponent=0.0, clustered=False, front_stage=0.01)
    stretches = found.loads(found.traffic.keys, found.plan.buffer_pages)
    tuples, pages = one_sweep(found, stretches), found.table.num_pages
    needed = pages * (1.0 - math.exp(-tuples / pages))
    assert predict(found).pages_per_tuple == pytest.approx(needed / tuples, rel=0.1)


def test_a_drained_tuple_needs_one_page_at_most() -> None:
    for push in (1, 100, 10_000):
        found = case("sweepjoin", "20MB", clustered=False, drained=True, push=push)
        prediction = predict(found)
        assert prediction.pages_per_tuple <= 1.0 - prediction.front_share + 1e-6


def test_a_bigger_window_reads_less() -> None:
    pages = [
        predict(case("sweepjoin", memory, exponent=0.5)).pages_per_tuple
        for memory in ("10MB", "40MB", "160MB")
    ]
    assert pages == sorted(pages, reverse=True)
