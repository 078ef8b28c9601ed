"""``order="stream"``: a run around a run, whose rows come in the order of the stream.

Tuples are numbered as they arrive, in a further column. They are served in *portions*: a portion
is pushed, all its tuples are served, and its rows are sorted by number and returned::

    push -> queue -> [ portion -> run -> flush -> rows ] -> sort by number -> caller

A portion has as many tuples as have rows for one reorder buffer, by the rows of the portions before
it. Should its rows not fit, they are discarded, and the older half of the portion is served first;
a single tuple needs no buffer. So the buffer never exceeds its part of the budget, for any number
of rows per tuple, and every algorithm keeps its loop. What is waiting in the queue, and the rows of
a portion, are counted as ``reorder buffer``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.conditions import ARRIVAL as NUMBER
from semistream.engine.run import Run
from semistream.errors import BudgetError, ConfigError, SchemaError
from semistream.keys import int64_view
from semistream.master.merge import joined
from semistream.memory import format_size
from semistream.stats import MemoryUse, Stats

ORDERS = ("stream",)
_SHARE = 4  # reorder buffer = budget // 4
_ROWS_PART = 0.4  # of it for rows, which exist twice while they are sorted
_QUEUE_PART = 0.1  # of it for tuples that wait, which exist twice when they become a portion
_FIRST = 256  # tuples of the first portion
_GROWTH = 4  # of a portion, at most
_RESTORED = ("matched", "unmatched", "rows_out", "front_stage_hits")


class OrderedRun:
    """The interface of a run; ``open_run(memory)`` opens the inner one."""

    def __init__(self, join: Any, open_run: Callable[[int], Run], follow: bool) -> None:
        self.join = join
        self._buffer = int(join.memory) // _SHARE
        self._run = _opened(join.memory, lambda: open_run(int(join.memory) - self._buffer))
        self._follow = follow
        self._wanted = self._run.version
        self._queue: deque[tuple[pa.RecordBatch, int]] = deque()
        self._portion: tuple[pa.RecordBatch, int] | None = None  # that is being served
        self._before: dict[str, int] = {}  # counters when it began
        self._rows: list[pa.RecordBatch] = []
        self._rows_bytes = 0
        self._sorted: tuple[pa.RecordBatch, Any] | None = None  # rows to return, and their order
        self._kept_bytes = 0  # of tuples that stay in the queue from one call to the next
        self._arrived = 0
        self._most = _FIRST
        self._row_bytes = 0.0  # of the rows of a tuple, as measured
        self._closed = False

    # -- public interface ------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Push a batch; iterate over the result to get the rows that are ready."""
        self._check_open()
        version = self._run.source.newest_version() if self._follow else self._wanted
        numbered = self._numbered(batch)
        self._run.check(numbered)
        self.stats.tuples_in += batch.num_rows
        self._arrived += batch.num_rows
        self._queue.append((numbered, version))
        return self._serve(lambda: self._queued >= self._most or self._queue_is_full)

    def step(self) -> Iterator[pa.RecordBatch]:
        """Serve one portion of the tuples that wait."""
        self._check_open()
        target = self.stats.iterations + 1
        return self._serve(lambda: self.stats.iterations < target and bool(self._queue))

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve all waiting tuples."""
        self._check_open()
        return self._serve(lambda: bool(self._queue))

    def close(self) -> None:
        """Release memory and files. Waiting tuples are discarded: flush first."""
        self._closed = True
        self._queue.clear()
        self._portion = self._sorted = None
        self._rows.clear()
        self._run.close()

    def __enter__(self) -> OrderedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use(self, version: int) -> None:
        """Join batches pushed from now on with this version of the master table.

        This includes queued batches whose version could not be opened.
        """
        self._check_open()
        self._follow = False
        self._wanted = version
        failed = self._run.failed_version
        if failed is not None:
            changed = [(batch, version if of == failed else of) for batch, of in self._queue]
            self._queue = deque(changed)
            if self._portion is not None and self._portion[1] == failed:
                self._portion = self._portion[0], version
            self._run.use(version)

    @property
    def stats(self) -> Stats:
        return self._run.stats

    @property
    def version(self) -> int:
        return self._run.version

    @property
    def schema(self) -> pa.Schema | None:
        schema = self._run.schema
        return None if schema is None else schema.remove(schema.get_field_index(NUMBER))

    @property
    def memory(self) -> MemoryUse:
        """Bytes by component."""
        rows = self._rows_bytes
        if self._sorted is not None:
            rows = self._sorted[0].get_total_buffer_size() + self._sorted[1].nbytes
        components = {**self._run.memory, "reorder buffer": 2 * (rows + self._kept_bytes)}
        return MemoryUse(components, int(self.join.memory))

    @property
    def plan(self) -> Any:
        return self._run.plan

    @property
    def longest_wait(self) -> int | None:
        """None: tuples wait until they make a portion."""
        return None

    # -- the queue -------------------------------------------------------------------------

    def _numbered(self, batch: Any) -> pa.RecordBatch:
        if not isinstance(batch, pa.RecordBatch):
            self._run.check(batch)  # raises
        if NUMBER in batch.schema.names:
            raise SchemaError(f"column {NUMBER!r}: the name is reserved by order; rename it")
        numbers = np.arange(self._arrived, self._arrived + batch.num_rows)
        field = pa.field(NUMBER, pa.int64(), nullable=False)
        schema = batch.schema.append(field)
        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(numbers)], schema=schema)

    @property
    def _queued(self) -> int:
        return sum(batch.num_rows for batch, _ in self._queue)

    @property
    def _queue_is_full(self) -> bool:
        nbytes = sum(batch.nbytes for batch, _ in self._queue)
        return self._queued > 0 and nbytes > _QUEUE_PART * self._buffer

    @property
    def _rows_room(self) -> int:
        return int(_ROWS_PART * self._buffer)

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this run is closed; open the join again")

    # -- portions --------------------------------------------------------------------------

    def _serve(self, more: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        while not self._closed:
            if self._sorted is not None:
                yield self._next_rows()
            elif self._portion is not None:
                yield from self._go_on()
            elif more():
                self._begin()
            else:
                self._keep_copies()
                return

    def _begin(self) -> None:
        """Take the oldest tuples off the queue, as many as a portion has, all of one version."""
        parts: list[pa.RecordBatch] = []
        wanted, version = self._most, self._queue[0][1]
        while self._queue and wanted and self._queue[0][1] == version:
            batch, _ = self._queue.popleft()
            if batch.num_rows > wanted:
                self._queue.appendleft((batch.slice(wanted), version))
                batch = batch.slice(0, wanted)
            wanted -= batch.num_rows
            parts.append(batch)
        self._hand_to_run(joined(parts), version)

    def _hand_to_run(self, batch: pa.RecordBatch, version: int) -> None:
        self._before = {name: getattr(self.stats, name) for name in _RESTORED}
        self._run.use(version)
        try:
            self._run.push(batch)
        except BaseException:
            self._queue.appendleft((batch, version))
            raise
        self.stats.tuples_in -= batch.num_rows  # which the run has counted again
        self._portion = batch, version

    def _go_on(self) -> Iterator[pa.RecordBatch]:
        """Serve the portion; can be continued after a failed read."""
        assert self._portion is not None
        portion, version = self._portion
        fits = True
        for rows in self._run.flush():
            if portion.num_rows == 1:
                yield rows.drop_columns([NUMBER])
                continue
            self._rows.append(rows)
            self._rows_bytes += rows.get_total_buffer_size()
            if self._rows_bytes > self._rows_room:
                fits = False
                self._rows, self._rows_bytes = [], 0
        self._portion = None
        if not fits or (portion.num_rows > 1 and self._lost_rows):
            self._again(portion, version)
        elif self._rows:
            self._sort(portion.num_rows)
        else:
            self._most = min(_GROWTH * self._most, 1 << 20)

    @property
    def _lost_rows(self) -> bool:
        """Whether rows of the portion were discarded before its read failed."""
        counted = self.stats.rows_out - self._before["rows_out"]
        return bool(counted != sum(rows.num_rows for rows in self._rows))

    def _again(self, portion: pa.RecordBatch, version: int) -> None:
        """Its rows do not fit: the tuples go back to the queue, and the older half goes first."""
        for name, value in self._before.items():
            setattr(self.stats, name, value)
        self._rows, self._rows_bytes = [], 0
        self._queue.appendleft((portion, version))
        self._most = max(1, portion.num_rows // 2)

    def _sort(self, tuples: int) -> None:
        rows, nbytes = self._rows, self._rows_bytes
        self._rows, self._rows_bytes = [], 0
        together = joined(rows)
        rows.clear()
        numbers = int64_view(together.column(NUMBER))
        order = None
        if np.any(numbers[1:] < numbers[:-1]):
            order = np.argsort(numbers, kind="stable")
        together = together.drop_columns([NUMBER])
        self.stats.rows_out -= together.num_rows  # which are counted when they are returned
        self._sorted = together, np.arange(together.num_rows) if order is None else order
        each = nbytes / tuples
        self._row_bytes = max(each, 0.8 * self._row_bytes)
        fit = int(0.7 * self._rows_room / max(1.0, self._row_bytes))
        self._most = max(1, min(fit, _GROWTH * self._most, 1 << 20))

    def _next_rows(self) -> pa.RecordBatch:
        assert self._sorted is not None
        rows, order = self._sorted
        most = max(1, self._run.plan.output_rows)
        some = rows.take(pa.array(order[:most]))
        self._sorted = (rows, order[most:]) if len(order) > most else None
        self.stats.rows_out += some.num_rows
        return some

    def _keep_copies(self) -> None:
        """Tuples that stay in the queue: a slice would keep all of its batch in memory."""
        self._queue = deque(
            (batch.take(pa.array(np.arange(batch.num_rows))), version)
            for batch, version in self._queue
            if batch.num_rows
        )
        self._kept_bytes = sum(batch.nbytes for batch, _ in self._queue)


def _opened(memory: int, open_run: Callable[[], Run]) -> Run:
    try:
        return open_run()
    except BudgetError as error:
        raise BudgetError(
            f"{error}. With order='stream', the join has three quarters of memory="
            f"{format_size(memory)}; the rest is the reorder buffer"
        ) from error
