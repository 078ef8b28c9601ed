"""A warmed-up run, measured for one second at a time.

The speed of a shared machine varies over time. Runs that are compared are measured alternately, one
second each, so that both see the same conditions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import semistream as ss
from lab.engine_cell import Cell, warm_up, wrong
from lab.engine_data import EngineData


@dataclass
class Turn:
    """The counters of one measurement."""

    rows: int = 0
    seconds: float = 0.0
    bytes_read: int = 0

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def __add__(self, other: Turn) -> Turn:
        return Turn(
            self.rows + other.rows,
            self.seconds + other.seconds,
            self.bytes_read + other.bytes_read,
        )


class Settled:
    """The join of a cell, checked, warmed up, and ready."""

    def __init__(self, data: EngineData, cell: Cell) -> None:
        pa.set_cpu_count(1)
        self._data, self._cell = data, cell
        self._batches: list[pa.RecordBatch] = []
        master = ss.MasterTable.open(data.master)
        join = ss.join(cell.join, memory=int(data.nbytes * cell.percent / 100))
        trouble = wrong(join, master, cell, data)
        if trouble is not None:
            raise RuntimeError(trouble)
        self._run: Any = join.open(master, on="product_id", direct=cell.direct)
        self._pushed, _ = warm_up(self._run, cell, data)

    def prepare(self) -> None:
        """Generate the stream of a turn, off the clock."""
        missing = self._cell.tuples - sum(batch.num_rows for batch in self._batches)
        missing -= missing % self._cell.push
        if missing > 0:
            made = self._cell.stream(self._data, missing, self._cell.push, self._pushed)
            self._batches = [*made, *self._batches]  # taken from the end
            self._pushed += missing

    def turn(self, seconds: float = 1.0) -> Turn:
        """Join for ``seconds``, or until the prepared stream ends."""
        rows, before = 0, self._run.stats.bytes_read
        began = time.perf_counter()
        while self._batches and time.perf_counter() - began < seconds:
            rows += sum(out.num_rows for out in self._run.push(self._batches.pop()))
        elapsed = time.perf_counter() - began
        return Turn(rows, elapsed, self._run.stats.bytes_read - before)

    def close(self) -> None:
        self._run.close()
