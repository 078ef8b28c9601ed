"""A micro-batch with waiting rows after a crash at any point: every row is somewhere, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from overload.kit import MASTER, numbers
from overload.waiting_kit import Query, batches, build_table
from reliability.crash_points import QUICK, try_all
from reliability.disk import POWER, Crash, Loss
from reliability.recorder import recording
from reliability.tally import Tally

LONG = (pytest.mark.slow, pytest.mark.long)
FIRST = [*range(24), None]
SECOND = [*range(20, 40), None]
ALL = [*range(25), *range(100, 121)]


def open_query(folder: Path) -> Query:
    return Query(folder, batch_time="3s", parking={"max_rows": 6})


def everywhere(query: Query) -> list[int]:
    kinds = ("deferred", "parked")
    return sorted(
        [*numbers(query.rows()), *query.dead(), *(n for k in kinds for n in query.waiting(k))]
    )


@pytest.mark.parametrize(
    ("what", "losses"),
    [
        pytest.param("a batch", QUICK, id="a batch", marks=pytest.mark.slow),
        pytest.param("a drain", QUICK, id="a drain", marks=LONG),
        pytest.param("a batch", POWER, id="a batch, power", marks=LONG),
        pytest.param("a drain", POWER, id="a drain, power", marks=LONG),
    ],
)
def test_waiting_rows(what: str, losses: Sequence[Loss], tmp_path: Path, tally: Tally) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    table = build_table(disk, list(range(0, 40, 2)))
    query = open_query(disk)
    query.run(0, [batches(FIRST, 0, 4)])
    table.upsert(pa.Table.from_pylist([{"k": 1, "v": 1, "text": "late"}], MASTER))
    with recording(disk) as recorder:
        if what == "a batch":
            query.run(1, [batches(SECOND, 100, 4)])
        else:
            query.drain()

    def check(place: Path, crash: Crash) -> None:
        again = open_query(place)
        if what == "a batch":  # Spark replays it
            again.run(1, [batches(SECOND[:7], 100, 4), batches(SECOND[7:], 107, 4)])
        else:
            again.drain()
            again.run(1, [batches(SECOND, 100, 4)])
        assert everywhere(again) == ALL
        again.run(2, [[]])
        again.drain()
        assert everywhere(again) == ALL
        assert again.waiting("deferred") == []

    tally("crash points of waiting rows", try_all(recorder, losses, tmp_path, check))
