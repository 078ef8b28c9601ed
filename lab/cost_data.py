"""The tables of the cost benchmark: plain ones, with text keys, with deltas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import semistream as ss
from lab import page_cache
from lab.build_once import DATA, build_once, forget_unreadable
from lab.engine_data import ROW_BYTES, EngineData
from semistream import workload

KINDS = ("plain", "text", "deltas")
_CHANGED = 50  # one row of so many is in a delta
_KEY = "product_id"
_AT_ONCE = 64  # pages


@dataclass(frozen=True)
class CostData:
    """A table of a kind, and streams of its keys."""

    rows: int
    kind: str = "plain"
    seed: int = 0

    @property
    def _plain(self) -> EngineData:
        return EngineData(self.rows, self.seed, root=DATA)

    @property
    def nbytes(self) -> int:
        return self.rows * ROW_BYTES

    @property
    def master(self) -> Path:
        if self.kind == "plain":
            return self._plain.master
        return DATA / f"cost-{self.kind}-{self.rows}-{self.seed}" / "master"

    def prepare(self, log: Callable[[str], None]) -> None:
        """Build what is missing, and have it in the page cache."""
        if self.kind == "plain":
            self._plain.prepare(log, lmdb=False)
        else:
            forget_unreadable(self.master, log)
            what = f"building a table of {self.rows:,} rows ({self.kind})"
            build_once(self.master, self._build, log, what)
        page_cache.read(self.master)

    def opened(self) -> ss.MasterTable:
        """The table, the same one for all cells: a page is checked when it is first read."""
        return _open(self.master)

    def _build(self, path: Path) -> None:
        reader = workload.products(self.rows, ROW_BYTES, self.seed)
        if self.kind == "text":
            schema = _text(reader.schema.empty_table().to_batches(), reader.schema)[1]
            texts = (batch for some in reader for batch in _text([some], reader.schema)[0])
            reader = pa.RecordBatchReader.from_batches(schema, texts)
        table = ss.MasterTable.build(reader, path, key=_KEY, unique=True)
        if self.kind == "deltas":
            for part in range(2):
                table = table.upsert(self._changed(part))

    def _changed(self, part: int) -> pa.Table:
        rows = workload.products(self.rows, ROW_BYTES, self.seed + 1).read_all()
        chosen = np.random.default_rng(part).choice(self.rows, self.rows // _CHANGED // 2, False)
        return rows.take(pa.array(np.sort(chosen)))

    def stream(
        self, n: int, batch_rows: int, offset: int, exponent: float, scattered: bool
    ) -> list[pa.RecordBatch]:
        batches = self._plain.stream(n, batch_rows, offset, exponent, scattered)
        return batches if self.kind != "text" else _text(batches, batches[0].schema)[0]


@cache
def _open(path: Path) -> ss.MasterTable:
    """Open a table, and read every page once."""
    table = ss.MasterTable.open(path)
    reader = table.reader(_AT_ONCE)
    for first in range(0, table.num_pages, _AT_ONCE):
        reader.read(first, min(_AT_ONCE, table.num_pages - first))
    reader.close()
    return table


def _text(
    batches: list[pa.RecordBatch] | Iterator[pa.RecordBatch], schema: pa.Schema
) -> tuple[list[pa.RecordBatch], pa.Schema]:
    """The same with keys such as "product 17"."""
    place = schema.get_field_index(_KEY)
    schema = schema.set(place, pa.field(_KEY, pa.string()))
    renamed = []
    for batch in batches:
        keys = pc.cast(batch.column(place), pa.string())
        texts = pc.binary_join_element_wise("product", keys, " ")
        columns = [*batch.columns[:place], texts, *batch.columns[place + 1 :]]
        renamed.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return renamed, schema
