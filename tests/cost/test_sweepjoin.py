"""SweepJoin's model: the pages that a sweep reads, and the share of a drained batch."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cost.shapes import case
from semistream.cost import FACTORS, Machine, predict
from semistream.cost.sweepjoin import one_sweep


def test_a_sweep_reads_a_page_if_any_tuple_needs_it() -> None:
    """1 - exp(-M q) for each page, with equal loads q."""
    found = case("sweepjoin", "20MB", exponent=0.0, clustered=False, front_stage=0.01)
    stretches = found.loads(found.traffic.keys, found.plan.buffer_pages)
    tuples, pages = one_sweep(found, stretches, found.plan.visit_pages), found.table.num_pages
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


def test_rows_are_copied_out_of_mapped_pages_where_that_is_faster() -> None:
    """The tuples of a large batch share huge pages; a copied page is not read."""
    found = case("sweepjoin", "256MB", clustered=False, drained=True, push=100_000, rows=20_000_000)
    work = predict(found).work
    assert found.plan.copied_rows
    assert "sweep.page" not in work
    assert 0.0 < work["sweep.huge"] < work["sweep.copied"] / 4


def test_huge_pages_are_those_with_a_needed_page() -> None:
    """With few needed pages, each has a huge page of its own."""
    found = case("sweepjoin", "256MB", clustered=False, drained=True, push=10, rows=20_000_000)
    dear = ("sweep.page", "sweep.single")
    machine = Machine({name: 1.0 if name in dear else 1e-9 for name in FACTORS})
    work = predict(replace(found, machine=machine)).work
    assert work["sweep.huge"] == pytest.approx(work["sweep.copied"], rel=0.05)


def test_pages_of_a_table_that_stays_mapped_are_not_read() -> None:
    found = case("sweepjoin", "256MB", clustered=False, drained=True, push=10_000, rows=20_000_000)
    resident = replace(found, table=replace(found.table, resident=True))
    work = predict(resident).work
    assert work["sweep.copied"] > 0.0
    assert not {"sweep.huge", "sweep.page"} & work.keys()
    assert predict(resident).rate > predict(found).rate


def test_pages_that_the_page_cache_does_not_have_are_read() -> None:
    found = case("sweepjoin", "256MB", clustered=False, drained=True, push=100_000, rows=20_000_000)
    cold = replace(found, machine=Machine(is_cached=False))
    assert "sweep.copied" not in predict(cold).work
