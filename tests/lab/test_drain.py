"""The drain benchmark: targets by batch size, wrong answers, tables, a tiny run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab import bench_drain, bench_tables, page_cache
from lab.drain import report
from lab.drain.cell import FEWEST_BATCHES, figures, in_turns
from lab.engine_cell import DESCRIPTION_BYTES
from lab.engine_data import EngineData
from lab.lru_lmdb import LruLmdb
from semistream import workload

DATA = EngineData(rows=5_000, seed=1)


def joined(batch: pa.RecordBatch, seed: int = 1) -> list[pa.RecordBatch]:
    return [batch.append_column("price", pa.array(workload.price_of(batch["product_id"], seed)))]


@pytest.mark.parametrize(
    ("join", "batch", "wanted"),
    [
        ("sweepjoin", 1, None),
        ("sweepjoin", 100, 1.0),
        ("sweepjoin", 1_000, 2.0),
        ("sweepjoin", 10_000, 3.0),
        ("sweepjoin", 100_000, 5.0),
        ("sweepjoin", 1_000_000, 5.0),
        ("inlj", 1, 0.5),
        ("cinlj", 1_000, 0.5),
    ],
)
def test_targets_by_batch_size(join: str, batch: int, wanted: float | None) -> None:
    assert report.least(join, batch) == wanted


def size(batch: int, ours: float, rivals: float) -> dict[str, Any]:
    sides = {"join": figures([ours] * 3, batch), "rival": figures([rivals] * 3, batch)}
    return {"batch": batch, "count": 3, **sides}


def cell(**changed: Any) -> dict[str, Any]:
    told = {"join": "sweepjoin", "rows": 20_000_000, "percent": 10.0, "mode": "mapped"}
    return {**told, "batches": [1, 100, 1_000], "load": [0.1, 0.1, 0.1], **changed}


def test_verdicts_compare_median_times() -> None:
    sizes = [size(1, 1.0, 0.1), size(100, 0.002, 0.004), size(1_000, 0.04, 0.02)]
    judged = report.verdicts([cell(sizes=sizes)])
    assert [(v.target.rsplit(" ", 1)[1], v.least, v.ratio, v.met) for v in judged] == [
        ("100", 1.0, 2.0, True),
        ("1,000", 2.0, 0.5, False),
    ]
    shown = report.grid([cell(sizes=sizes)]).rows
    assert shown[1][3:] == ["warm", "100", "2", "2", "4", "4", "0.05", "0.025", "2.00", "1"]
    assert shown[2][-2] == "0.50 (missed)"


def test_direct_io_is_compared_with_a_warm_and_a_cold_rival() -> None:
    both = {**size(100, 0.002, 0.001), "cold": size(100, 0.002, 0.008)}
    direct = cell(mode="direct", batches=[100], sizes=[both])
    judged = report.verdicts([direct])
    assert [(v.target.rpartition("of ")[2], v.ratio) for v in judged] == [
        ("100", 0.5),
        ("100, LMDB cold", 4.0),
    ]
    shown = [(row[3], row[-2]) for row in report.grid([direct]).rows]
    assert shown == [("warm", "0.50 (missed)"), ("cold", "4.00")]


def test_a_cold_rival_has_no_rows_in_the_page_cache(disk_path: Path) -> None:
    data = EngineData(rows=5_000, seed=1, root=disk_path)
    data.prepare(lambda _: None)
    file, (batch,) = data.lmdb / "data.mdb", data.stream(50, 50)
    rival = LruLmdb(data.lmdb, None, "packed", DESCRIPTION_BYTES)
    warm = rival.push(batch)
    read = page_cache.cached(file)
    assert rival.drop_rows() == 0
    assert page_cache.cached(file) < read
    assert rival.push(batch) == warm
    rival.close()


@pytest.mark.parametrize("trouble", ["refused", "wrong", "error", "too_slow"])
def test_a_cell_without_figures_misses_its_targets(trouble: str) -> None:
    failed = cell(**{trouble: "no"})
    assert [verdict.met for verdict in report.verdicts([failed])] == [False, False]
    (row,) = report.grid([failed]).rows
    assert row[4] in ("refused", "WRONG ANSWER", "FAILED", "too slow")
    assert len(row) == len(report.grid([]).heads)


def test_figures_of_a_batch_size() -> None:
    found = figures([0.001] * 98 + [0.1] * 2, 10)
    assert found["median"] == 0.001
    assert found["p99"] == pytest.approx(0.1)
    assert found["rate"] == pytest.approx(1_000 / 0.298)


def test_both_sides_get_the_same_batches_in_alternating_order() -> None:
    given: list[tuple[str, int]] = []

    def side(name: str) -> Any:
        def drained(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
            given.append((name, batch["sale_id"][0].as_py()))
            return joined(batch)

        return drained

    found = in_turns({"join": side("join"), "rival": side("rival")}, DATA, 20, 100, 0.0, 9)
    assert isinstance(found, dict)
    assert found["count"] == FEWEST_BATCHES
    assert given[:4] == [("join", 100), ("rival", 100), ("rival", 120), ("join", 120)]
    assert found["tuples"] == 20 * len(given) // 2


def test_a_wrong_row_on_either_side_ends_the_cell() -> None:
    sides = {"join": joined, "rival": lambda batch: joined(batch, seed=2)}
    assert "rival, batches of 20: a price" in str(in_turns(sides, DATA, 20, 0, 0.0, 9))
    sides = {"join": lambda batch: [], "rival": joined}
    assert "join, batches of 20: 20 sales missing" in str(in_turns(sides, DATA, 20, 0, 0.0, 9))


@pytest.mark.slow
def test_a_tiny_benchmark_and_its_page(tmp_path: Path, disk_path: Path) -> None:
    out = tmp_path / "results" / "drain.json"
    arguments = ["--size", "small", "--rows", "5000", "--percents", "300", "--seconds", "0.05"]
    arguments += ["--joins", "sweepjoin,cinlj", "--batches", "1,100", "--modes", "mapped,direct"]
    # Of files in memory, none could be dropped from the page cache.
    arguments += ["--data", str(disk_path / "data"), "--out", str(out)]
    assert bench_drain.main(arguments) == 0
    held = json.loads(out.read_text())
    measured = [
        (one["join"], one["mode"], [size["batch"] for size in one["sizes"]])
        for one in held["cells"]
    ]
    assert measured == [
        ("sweepjoin", "mapped", [1, 100]),
        ("cinlj", "mapped", [1, 1_000]),
        ("sweepjoin", "direct", [1, 100]),
        ("cinlj", "direct", [1, 1_000]),
    ]
    assert ["cold" in size for one in held["cells"] for size in one["sizes"]] == 4 * [False] + (
        4 * [True]
    )
    assert len(held["targets"]) == 9
    assert list((disk_path / "data").iterdir()) == []  # deleted afterwards
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- drain -->\nold\n<!-- end drain -->\nAfter.\n")
    assert bench_tables.main(["--results", str(out.parent), "--page", str(page)]) == 0
    assert "| sweepjoin | 0.005 M, 300 % | mapped | warm | 100 |" in page.read_text()


def test_a_page_without_the_markers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "drain.json").write_text(
        json.dumps(
            {
                "cells": [cell(sizes=[])],
                "seconds": 1.0,
                "machine": {
                    "packages": {},
                    "time": "now",
                    "processor": "a",
                    "cores": 1,
                    "memory": "1",
                    "python": "3",
                },
            }
        )
    )
    page = tmp_path / "page.md"
    page.write_text("no markers\n")
    with pytest.raises(SystemExit, match="has no <!-- drain -->"):
        bench_tables.main(["--results", str(tmp_path), "--page", str(page)])
    assert bench_tables.main(["--results", str(tmp_path / "none"), "--page", str(page)]) == 1
