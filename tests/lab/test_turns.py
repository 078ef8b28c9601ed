"""The comparison by instructions: differences of two runs, ratios, the cells, what a file keeps."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.bench_turns import cell_of, every_cell, is_decided, prepare, rate, standard_error
from lab.instruction_cell import COUNTED, Cell, WorkClock, in_a_fork
from lab.instructions import Count, compared, difference, parse_counts
from lab.turns_cell import HERE, Slice, Turn
from lab.turns_report import SLOW_SHARE, merged, planned, table
from semistream.stats import Stats

LOG = """==17== Cachegrind, a cache and branch-prediction profiler
==17== brk segment overflow in thread #1: can't grow to 0x483c000
==18==
==18== I   refs:      4,258,785,397
==19==
==19== I   refs:      5,246,145,779
==17== I   refs:      312
"""


def counters(value: int, **others: int) -> dict[str, int]:
    return {**dict.fromkeys(COUNTED, value), **others}


def cell(**others: Any) -> Cell:
    return planned(["hybridjoin"], ["direct"], [10.0], [1.0], ["scattered"], **others)[0]


def test_instructions_are_read_for_every_process() -> None:
    assert parse_counts(LOG) == {18: 4_258_785_397, 19: 5_246_145_779, 17: 312}


def test_the_long_run_minus_the_short_one() -> None:
    runs = {"short": {"pid": 18, **counters(10)}, "long": {"pid": 19, **counters(30, matched=25)}}
    count = difference(runs, parse_counts(LOG))
    assert count == Count(987_360_382, counters(20, matched=15))


def test_a_run_that_was_not_counted_is_an_error() -> None:
    runs = {"short": {"pid": 18, **counters(1)}, "long": {"pid": 20, **counters(2)}}
    with pytest.raises(RuntimeError, match="process 20"):
        difference(runs, parse_counts(LOG))


def test_the_ratio_is_above_one_if_fewer_instructions_are_executed_now() -> None:
    line = compared(cell(), Count(300, counters(100)), Count(200, counters(100, pages_read=90)))
    assert line["ratio"] == 1.5
    assert line["different"] == {"pages_read": [100, 90]}
    assert line["instructions_per_tuple"] == 2.0
    assert Count(1, counters(100, front_stage_hits=25)).hit_rate == 0.25


def test_the_table_shows_ratios_and_different_counters() -> None:
    same = compared(cell(), Count(300, counters(100)), Count(200, counters(100)))
    other = compared(cell(), Count(90, counters(100)), Count(100, counters(100, iterations=7)))
    text = io.StringIO()
    Console(width=200, file=text).print(table([same, other]))
    lines = text.getvalue().splitlines()
    assert any("1.500" in line and "equal" in line for line in lines)
    assert any("0.900" in line and "iterations 100 -> 7" in line for line in lines)


def test_sweepjoin_is_measured_with_more_keys_and_slow_joins_with_fewer_tuples() -> None:
    joins, modes = ["sweepjoin", "inlj", "meshjoin"], ["warm", "direct"]
    cells = planned(joins, modes, [10.0], [1.0], ["scattered"])
    assert len(cells) == len(set(cells)) == 6 + 5
    sweeps = {(c.exponent, c.scattered) for c in cells if c.join == "sweepjoin" and c.direct}
    assert sweeps == {(e, s) for e in (0.0, 0.5, 1.0) for s in (True, False)}
    tuples = {c.join: c.tuples for c in cells}
    assert tuples["inlj"] * SLOW_SHARE == tuples["meshjoin"] == tuples["sweepjoin"]
    assert all(c.warm_tuples % c.push == 0 and c.warm_tuples >= c.push for c in cells)


def test_a_file_keeps_other_cells_of_the_same_checkouts_only() -> None:
    def report(now: str, rows: int, instructions: int) -> dict[str, Any]:
        count = Count(instructions, counters(1))
        return {"before": "a", "now": now, "cells": [compared(cell(rows=rows), count, count)]}

    old, again, more = report("b", 1, 10), report("b", 1, 20), report("b", 2, 30)
    assert merged(old, again)["cells"] == again["cells"]
    assert merged(old, more)["cells"] == old["cells"] + more["cells"]
    assert merged(old, report("c", 2, 30))["cells"] == more["cells"]


def test_a_fork_returns_its_counters_and_its_process_id() -> None:
    result = in_a_fork(lambda: {"parent": os.getppid()})
    assert result["parent"] == os.getpid() != result["pid"]


def test_a_fork_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="failed"):
        in_a_fork(lambda: {"never": 1 // 0})
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_the_modelled_clock_advances_with_the_work_only() -> None:
    clock, stats = WorkClock(), Stats()
    clock.stats = stats
    assert clock() == clock() == 0.0
    stats.matched, stats.bytes_read = 1_000_000, 2_500_000_000
    assert clock() == clock() == pytest.approx(1.3)


def test_the_rate_is_of_all_slices_together() -> None:
    assert rate([Slice(100, 1.0, 1.0), Slice(500, 2.0, 1.0)]) == 200.0


@pytest.mark.slow
def test_a_process_measures_slice_by_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMISTREAM_LAB_DATA", str(tmp_path))
    prepare(HERE, 50_000)
    small = {"rows": 50_000, "check_tuples": 10_000, "warm_tuples": 20_000, "tuples": 50_000}
    turn = Turn(HERE, {**cell_of("sweepjoin", 10.0), **small, "push": 5_000})
    slices = [turn.measure(0.05) for _ in range(2)]
    turn.close()
    assert all(each.rows > 0 and each.seconds > 0 for each in slices)


@pytest.mark.slow
def test_a_process_that_cannot_measure_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEMISTREAM_LAB_DATA", str(tmp_path))
    prepare(HERE, 1_000)
    with pytest.raises(RuntimeError, match=r"meshjoin with .* cannot hold one page"):
        Turn(HERE, {**cell_of("meshjoin", 1.0), "rows": 1_000})


@pytest.mark.parametrize(
    ("ratios", "decided"),
    [
        ([1.2], False),
        ([1.2, 1.2, 1.21], True),
        ([0.8, 0.81, 0.8], True),
        ([1.0, 0.9, 1.1, 1.0], False),
        ([1.0, 0.98, 1.02, 1.0] * 5, True),
    ],
)
def test_turns_go_on_until_a_ratio_is_decided(ratios: list[float], decided: bool) -> None:
    assert is_decided(ratios, 0.97) is decided


def test_the_standard_error_falls_with_the_number_of_turns() -> None:
    few, many = [0.9, 1.1], [0.9, 1.1] * 8
    assert standard_error(many) < standard_error(few) / 2.5
    assert standard_error([1.0]) == float("inf")


def test_every_cell_of_two_benchmarks() -> None:
    cells = every_cell(["hybridjoin", "sweepjoin"], [10.0])
    assert len(cells) == len(set(cells)) == 14
    assert ("direct", 10.0, 0.5, "clustered", 50_000, "sweepjoin") in cells
    assert ("warm", 10.0, 1.0, "scattered", 100, "hybridjoin") in cells
