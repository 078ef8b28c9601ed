"""A warehouse after a crash at any point: a batch is stored completely or not at all, and a
restarted driver stores it exactly once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reliability.crash_points import QUICK_AND_SLOW, try_all
from reliability.disk import Crash, Loss
from reliability.recorder import recording
from reliability.tally import Tally
from semistream.errors import SemistreamError
from semistream.sinks import Batch, Staged, open_sink

OLD, NEW, NEXT = (Batch("query-1", number) for number in range(3))


def stage(sink: Any, batch: Batch, cuts: Sequence[int] = (0, 6, 10)) -> list[Staged]:
    """Rows 0 to 9 of a batch, cut into tasks."""
    staged = []
    for partition, (begin, end) in enumerate(pairwise(cuts)):
        rows = pa.table({"batch": [batch.number] * (end - begin), "n": range(begin, end)})
        staged.append(sink.stage(rows.to_batches(), rows.schema, batch, partition))
    return staged


def write(sink: Any, batch: Batch, cuts: Sequence[int] = (0, 6, 10)) -> None:
    sink.check()
    sink.commit(stage(sink, batch, cuts), batch)


def write_in_vain(sink: Any) -> None:
    sink.abort(stage(sink, NEW), NEW)


def write_with_a_dead_task(sink: Any) -> None:
    """A task that was killed or ran twice has staged rows that no commit names."""
    stage(sink, NEW, (0, 6))
    write(sink, NEW)


def write_twice(sink: Any) -> None:
    """The reply of the first commit was lost."""
    write(sink, NEW)
    write(sink, NEW, (0, 3, 4, 10))


def abort_late(sink: Any) -> None:
    """Spark may abort a committed batch, if it did not get the reply."""
    staged = stage(sink, NEW)
    sink.commit(staged, NEW)
    sink.abort(staged, NEW)


@dataclass(frozen=True)
class Scenario:
    """What is recorded, whether the old batch is there before, and the new one afterwards."""

    run: Callable[[Any], None]
    has_old: bool = True
    has_new: bool = True


SCENARIOS = {
    "the first batch": Scenario(lambda sink: write(sink, NEW), has_old=False),
    "a batch": Scenario(lambda sink: write(sink, NEW)),
    "a batch with a dead task": Scenario(write_with_a_dead_task),
    "a batch that is written twice": Scenario(write_twice),
    "a batch that is aborted": Scenario(write_in_vain, has_new=False),
    "a batch that is aborted after its commit": Scenario(abort_late),
}


class Warehouse:
    """A folder that a sink writes to, and what its readers see."""

    def __init__(self, output: str, folder: Path) -> None:
        self.output, self.folder = output, folder

    def sink(self) -> Any:
        return open_sink(self.output, path=self.folder)

    def rows(self) -> list[tuple[int, int]]:
        """Rows of whole batches only."""
        if self.output == "parquet":
            return _rows([pq.read_table(file) for file in self.sink().files()])
        return self.rows_for_anyone()

    def rows_for_anyone(self) -> list[tuple[int, int]]:
        """The rows that a generic Parquet or Delta reader returns."""
        if self.output == "parquet":
            return _rows([pq.read_table(file) for file in self.folder.glob("*.parquet")])
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.folder)):
            return []
        return _rows([DeltaTable(self.folder).to_pyarrow_table()])


def _rows(tables: list[pa.Table]) -> list[tuple[int, int]]:
    return sorted(
        (batch, n) for t in tables for batch, n in zip(*t.to_pydict().values(), strict=True)
    )


def rows_of(*batches: Batch) -> list[tuple[int, int]]:
    return sorted((batch.number, n) for batch in batches for n in range(10))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("output", ["parquet", "delta"])
@pytest.mark.parametrize("losses", QUICK_AND_SLOW)
def test_a_batch_is_atomic(
    output: str, name: str, losses: Sequence[Loss], tmp_path: Path, tally: Tally
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    scenario = SCENARIOS[name]
    sink = Warehouse(output, disk / "w").sink()
    if scenario.has_old:
        write(sink, OLD)
    # delta-rs writes an entry of its log to another name first, and links it when it is whole
    with recording(disk, is_atomic=lambda path: "_delta_log/" in path) as recorder:
        scenario.run(sink)
    points = try_all(
        recorder,
        losses,
        tmp_path,
        lambda place, crash: check(Warehouse(output, place / "w"), crash, scenario),
    )
    tally(f"crash points of {output} sinks", points)


def mend(warehouse: Warehouse) -> None:
    """What the error says that the user should do. Only power that fails makes it necessary: no
    entry of a Delta log is synced before it has its name."""
    for _ in range(2):
        try:
            warehouse.sink().check()
        except SemistreamError as error:
            (entry,) = re.findall(r"^(\S+/_delta_log/\d+\.json) is truncated", str(error))
            Path(entry).unlink()


def check(warehouse: Warehouse, crash: Crash, scenario: Scenario) -> None:
    if not crash.is_done and crash.is_power:
        mend(warehouse)
    old = [OLD] if scenario.has_old else []
    found = warehouse.rows()
    if crash.is_done:
        assert found == rows_of(*old, *([NEW] if scenario.has_new else []))
    else:
        assert found in (rows_of(*old), rows_of(*old, NEW))
    write(warehouse.sink(), NEW, (0, 1, 5, 10))
    assert warehouse.rows() == warehouse.rows_for_anyone() == rows_of(*old, NEW)
    write(warehouse.sink(), NEXT)
    assert warehouse.rows() == warehouse.rows_for_anyone() == rows_of(*old, NEW, NEXT)
