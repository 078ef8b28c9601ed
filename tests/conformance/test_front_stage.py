"""The front stage caches the most requested rows, whatever its initial settings."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from harness import drive, takes
from semistream.testing import RecordingObserver

ROWS, TUPLES, BATCH = 8_000, 48_000, 2_000
WEIGHTS = 1 / np.arange(1, ROWS + 1)
WEIGHTS /= WEIGHTS.sum()
RNG = np.random.default_rng(1)
KEYS = RNG.permutation(ROWS)[RNG.choice(ROWS, TUPLES, p=WEIGHTS)]

with_front_stage = [name for name in ss.ALGORITHMS if takes(name, "front_stage")]
with_threshold = [name for name in ss.ALGORITHMS if takes(name, "threshold")]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("front") / "table"
    table = pa.table({"k": range(ROWS), "v": range(ROWS), "pad": ["x" * 60] * ROWS})
    return ss.MasterTable.build(table, path, key="k", unique=True, page_bytes=1024)


def batches(keys: Any = KEYS) -> list[pa.RecordBatch]:
    return [pa.record_batch({"k": keys[i : i + BATCH]}) for i in range(0, len(keys), BATCH)]


def hit_rate(name: str, master: Any, **options: Any) -> tuple[float, int, int]:
    """(share of hits in the second half of the stream, rows held, pages read)."""
    observer = RecordingObserver()
    join = ss.join(name, memory="600KB", front_stage="60KB", **options)
    with join.open(master, on="k", select=["v"], observer=observer) as run:
        drive(run, batches()[: TUPLES // BATCH // 2])
        before = run.stats.front_stage_hits
        drive(run, batches()[TUPLES // BATCH // 2 :])
        most = max(rows for _, _, rows, _ in observer.named("front_stage_changed"))
        hits = run.stats.front_stage_hits - before
        return 2 * hits / TUPLES, most, run.stats.pages_read


def fifo_rate(rows: int) -> float:
    """Share of hits in the second half with FIFO replacement."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for place, key in enumerate(KEYS.tolist()):
        if key in held:
            hits += place >= TUPLES // 2
            continue
        held[key] = None
        if len(held) > rows:
            held.popitem(last=False)
    return 2 * hits / TUPLES


@pytest.mark.parametrize("algorithm", with_front_stage)
def test_hot_rows_are_cached(algorithm: str, master: Any) -> None:
    """Close to the best possible hit rate of this many rows, and clearly above FIFO."""
    rate, rows, _ = hit_rate(algorithm, master)
    best, fifo = float(WEIGHTS[:rows].sum()), fifo_rate(rows)
    assert fifo < best
    assert rate > fifo + (best - fifo) / 3, f"{rate} of {best}, {rows} rows; FIFO {fifo}"


@pytest.mark.parametrize("algorithm", with_threshold)
def test_a_threshold_that_is_too_high_falls(algorithm: str, master: Any) -> None:
    """Even a threshold that no row reaches, so that nothing is admitted until it falls."""
    usual, _, _ = hit_rate(algorithm, master)
    high, rows, _ = hit_rate(algorithm, master, threshold=1_000)
    assert rows > 100
    assert high > 0.8 * usual


def test_cinlj_reads_fewer_pages_than_inlj(master: Any) -> None:
    with ss.join("inlj", memory="600KB").open(master, on="k", select=["v"]) as run:
        drive(run, batches())
        without = run.stats.pages_read
    _, _, pages = hit_rate("cinlj", master)
    assert pages < 0.75 * without
