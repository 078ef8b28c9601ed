"""A streaming query with waiting rows, without Spark: its driver and its tasks are calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss

pytest.importorskip("pyspark")

from overload.kit import MASTER, STREAM
from semistream.overload import turn
from semistream.overload.keeper import Keeper, Waiting
from semistream.overload.options import Parking
from semistream.sinks import Batch, open_sink
from semistream.spark.sink import WarehouseWriter
from semistream.spark.sink_options import options_of, plan_of
from semistream.spark.waiting import stage, waiting_options
from servers import query

QUERY = "query-1"


class Ticks:
    """A clock whose every call takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


class Query:
    """``run`` is a micro-batch; a crash may come at any call that ``fault`` is told of."""

    def __init__(
        self,
        folder: Path,
        how: str = "inner",
        output: str = "parquet",
        url: str = "",
        more: Sequence[ss.Lookup] = (),
        **options: Any,
    ) -> None:
        self.folder, self.output, self.url = folder, output, url
        self.clock = Ticks()
        turn._drain_seconds.clear()  # what tasks of a query before have learned
        self.fault: Callable[[str], None] = lambda point: None
        lookup = ss.Lookup(str(folder / "table"), on="k", how=how)
        place: dict[str, Any] = {"url": url, "table": "facts"} if url else {"path": folder / "out"}
        self.texts = options_of([lookup, *more], memory="4MB", output=output, **place)
        if "parking" in options:
            options["unmatched"] = "park"
            options["parking"] = Parking(folder / "parked", **options["parking"])
        self.options = options
        self.restart()

    def restart(self) -> None:
        """A new driver."""
        plan = plan_of(self.texts)
        waits = waiting_options(
            plan, dead_letters=str(self.folder / "dead"), clock=self.clock, **self.options
        )
        assert isinstance(waits, Waiting)
        self.keeper = Keeper(waits, plan.sink, QUERY)
        self.writer = WarehouseWriter(self.texts, None, 1)
        self._watch(plan.sink, "commit", "committed")
        self._watch(waits.dead_letters, "commit", "dead letters")
        self._watch(self.keeper.backlog, "publish", "published")
        self._watch(self.keeper.backlog, "sweep", "swept")

    def _watch(self, owner: Any, name: str, point: str) -> None:
        """Call ``fault`` after a call."""
        call = getattr(owner, name)

        def watched(*arguments: Any) -> Any:
            result = call(*arguments)
            self.fault(point)
            return result

        setattr(owner, name, watched)

    def run(self, number: int, parts: list[list[pa.RecordBatch]]) -> bool:
        """A micro-batch, with the rows of each partition."""
        batch = Batch(QUERY, number)
        plan = self.keeper.begin(number, len(parts), lambda: self.writer.versions(None))
        staged = [stage(self.writer, plan, batch, p, own) for p, own in enumerate(parts)]
        self.fault("staged")
        return self.keeper.commit(staged, batch, plan)

    def drain(self) -> None:
        plan = self.keeper.begin(0, 1, lambda: self.writer.versions(None), limited=False)
        if not self.keeper.state.rows:
            return
        batch = self.keeper.drain_batch(plan)
        staged = [stage(self.writer, plan, batch, 0, ())]
        self.fault("staged")
        self.keeper.commit(staged, batch, plan)

    # -- what became of the rows -----------------------------------------------------------

    def rows(self) -> naive.Rows:
        out = self.folder / "out"
        if self.url:
            exists = query(self.url, "select to_regclass('facts') is not null")[0][0]
            return query(self.url, "select * from facts") if exists else []
        if self.output == "delta":
            from deltalake import DeltaTable

            is_there = DeltaTable.is_deltatable(str(out))
            return naive.rows_of([DeltaTable(out).to_pyarrow_table()]) if is_there else []
        files = open_sink("parquet", path=out).files() if out.exists() else []
        return naive.rows_of([pq.read_table(file) for file in files])

    def dead(self) -> list[int]:
        files = list((self.folder / "dead").glob("*.parquet"))
        return sorted(n for file in files for n in pq.read_table(file)["n"].to_pylist())

    def waiting(self, kind: str) -> list[int]:
        """The tuples that wait, as a new driver finds them."""
        backlog = self.keeper.backlog
        state = backlog.state(plan_of(self.texts).sink.mark(QUERY))
        found: list[int] = []
        for file in getattr(state, kind):
            table = pa.Table.from_batches(backlog.read(file))
            found += table.take(pa.array(file.gone_rows.others()))["n"].to_pylist()
        return sorted(found)


def build_table(folder: Path, keys: list[int]) -> Any:
    rows = [{"k": key, "v": key, "text": f"row {key}"} for key in keys]
    return ss.MasterTable.build(
        pa.Table.from_pylist(rows, MASTER), folder / "table", key="k", unique=True, page_bytes=512
    )


def batches(keys: list[int | None], first: int, size: int = 10) -> list[pa.RecordBatch]:
    """Tuples in small batches, as Spark passes them to a task."""
    rows = [{"n": first + i, "k": key} for i, key in enumerate(keys)]
    return pa.Table.from_pylist(rows, STREAM).to_batches(max_chunksize=size)
