"""``order="stream"``: a run around a run, whose rows come in the order of the stream.

Tuples are numbered as they arrive. They are served in *portions*: the key of each tuple of a
portion, what conditions read of it and its number are pushed into a run, all are served, and the
rows are returned in the order of the numbers, with the other columns of the stream::

    push -> queue -> portion -- key, number --> run -> flush -- number, master columns --+
                        |                                                                |
                        +--------------- columns of the stream --------> rows in order -> caller

A portion has as many tuples as have rows for one reorder buffer, by the rows of the portions before
it. Should its rows not fit, they are discarded, and the older half of the portion is served first;
a single tuple needs no buffer. So the buffer never exceeds its part of the budget, for any number
of rows per tuple, and every algorithm keeps its loop. What is waiting in the queue, and the rows of
a portion, are counted as ``reorder buffer``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.conditions import ARRIVAL as NUMBER
from semistream.engine.reorder_buffer import ReorderBuffer
from semistream.engine.run import Run
from semistream.engine.settings import DEFAULTS
from semistream.engine.tuple_queue import TupleQueue
from semistream.errors import BudgetError, ConfigError, SchemaError
from semistream.master.pages import PageSource
from semistream.memory import format_size
from semistream.stats import MemoryUse, Stats

ORDERS = ("stream",)
# Of the budget. A portion often costs a sweep over the table, so it should be large; but the run
# that serves it needs memory for large visits, and for its front stage.
_SHARE = 0.56
_ROWS_PART = 0.7  # of the reorder buffer
_TUPLES_PART = 0.2  # of it for the portion; twice, before there are rows, when it is put together
_OUTPUT_PART = 0.1  # of it for the batch that is returned
_FIRST = 256  # tuples of the first portion
_GROWTH = 4  # of a portion, at most
_RESTORED = ("matched", "unmatched", "rows_out", "front_stage_hits")


class OrderedRun:
    """The interface of a run; ``open_run(memory)`` opens the inner one."""

    def __init__(
        self, join: Any, open_run: Callable[[int], Run], binding: Binding, follow: bool
    ) -> None:
        self.join = join
        self._binding = binding  # of the whole tuples; the inner run has only a part of them
        self._buffer = int(int(join.memory) * _SHARE)
        self._run = _opened(join.memory, lambda: open_run(int(join.memory) - self._buffer))
        self._follow = follow
        self._wanted = self._run.version
        self._queue = TupleQueue()
        self._portion: tuple[pa.RecordBatch, int] | None = None  # that is being served
        self._before: dict[str, int] = {}  # counters when it began
        self._rows = ReorderBuffer(int(_ROWS_PART * self._buffer))
        self._served = 0  # tuples of the portions before this one
        self._most = _FIRST
        self._row_bytes = 0.0  # of the rows of a tuple, as measured
        self._each = 1.0  # bytes of a row of this portion
        self._closed = False

    # -- public interface ------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Push a batch; iterate over the result to get the rows that are ready."""
        self._check_open()
        version = self.next_version
        self._check_batch(batch)
        self.stats.tuples_in += batch.num_rows
        self._queue.push(batch, version)
        return self._serve(lambda: self._queue.tuples >= self._most or self._queue_is_full)

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise if ``push`` would."""
        self._check_open()
        self._check_batch(batch)

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
        self._portion = None
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
            self._queue.redirect(failed, version)
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
    def failed_version(self) -> int | None:
        """A version of a queued batch that could not be opened."""
        return self._run.failed_version

    @property
    def next_version(self) -> int:
        """The version with which a batch is joined that is pushed now."""
        return self._run.source.newest_version() if self._follow else self._wanted

    @property
    def age(self) -> float | None:
        """Seconds since the open version was last known to be in step with its source."""
        return self._run.age

    @property
    def source(self) -> PageSource:
        """The master table at :attr:`version`."""
        return self._run.source

    @property
    def schema(self) -> pa.Schema | None:
        return self._binding.schema

    @property
    def memory(self) -> MemoryUse:
        """Bytes by component."""
        # Of a larger batch, the rest belongs to the caller.
        tuples = min(self._queue.nbytes + self._rows.portion.nbytes, self._tuples_room)
        reordered = self._rows.nbytes + tuples
        components = {**self._run.memory, "reorder buffer": reordered}
        return MemoryUse(components, int(self.join.memory))

    @property
    def plan(self) -> Any:
        return self._run.plan

    @property
    def longest_wait(self) -> int | None:
        """None: tuples wait until they make a portion."""
        return None

    # -- the queue -------------------------------------------------------------------------

    def _check_batch(self, batch: Any) -> None:
        is_first = self._binding.schema is None
        self._binding.check_batch(batch)
        try:
            if NUMBER in batch.schema.names:
                raise SchemaError(f"column {NUMBER!r}: the name is reserved by order; rename it")
            self._run.check(self._numbered(batch))
        except BaseException:
            if is_first:
                self._binding.unbind()
            raise

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the inner run needs of these tuples, which are the next to be served."""
        names = self._binding.needed_of_stream()
        fields = [batch.schema.field(name) for name in names]
        schema = pa.schema([*fields, pa.field(NUMBER, pa.int64(), nullable=False)])
        numbers = pa.array(np.arange(self._served, self._served + batch.num_rows))
        columns = [batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays([*columns, numbers], schema=schema)

    @property
    def _tuples_room(self) -> int:
        return int(_TUPLES_PART * self._buffer)

    @property
    def _queue_is_full(self) -> bool:
        return self._queue.nbytes > self._tuples_room

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this run is closed; open the join again")

    # -- portions --------------------------------------------------------------------------

    def _serve(self, more: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        while not self._closed:
            if self._rows.is_sorted:
                yield self._next_rows()
            elif self._portion is not None:
                yield from self._go_on()
            elif more():
                self._hand_to_run(*self._queue.take(self._portion_size))
            else:
                self._queue.keep_copies()
                return

    @property
    def _portion_size(self) -> int:
        """Tuples of the next portion: also no more than may wait at once."""
        each = self._queue.nbytes / max(1, self._queue.tuples)
        return max(1, min(self._most, int(self._tuples_room / max(1.0, each))))

    def _hand_to_run(self, batch: pa.RecordBatch, version: int) -> None:
        self._before = {name: getattr(self.stats, name) for name in _RESTORED}
        self._run.use(version)
        try:
            self._run.push(self._numbered(batch))
        except BaseException:
            self._queue.put_back(batch, version)
            raise
        self.stats.tuples_in -= batch.num_rows  # which the run has counted again
        self._portion = batch, version
        self._rows.begin(batch, self._served)

    def _go_on(self) -> Iterator[pa.RecordBatch]:
        """Serve the portion; can be continued after a failed read."""
        assert self._portion is not None
        portion, version = self._portion
        fits = True
        for rows in self._run.flush():
            number = rows.schema.get_field_index(NUMBER)
            columns = rows.columns[number + 1 :]
            if portion.num_rows == 1:
                yield self._rows_of(portion, columns, rows.num_rows)
                continue
            fits = fits and self._rows.add(rows.column(number), columns)
            if not fits:
                self._rows.clear()
        self._portion = None
        if not fits or (portion.num_rows > 1 and self._lost_rows):
            self._again(portion, version)
            return
        self._served += portion.num_rows
        if self._rows.rows:
            self._sort(portion.num_rows)
        else:
            self._most = min(_GROWTH * self._most, 1 << 20)

    def _rows_of(self, one: pa.RecordBatch, master: list[pa.Array], count: int) -> pa.RecordBatch:
        stream = one.take(pa.array(np.zeros(count, np.int64))).columns
        return pa.RecordBatch.from_arrays([*stream, *master], schema=self.schema)

    @property
    def _lost_rows(self) -> bool:
        """Whether rows of the portion were discarded before its read failed."""
        counted = self.stats.rows_out - self._before["rows_out"]
        return bool(counted != self._rows.rows)

    def _again(self, portion: pa.RecordBatch, version: int) -> None:
        """Its rows do not fit: the tuples go back to the queue, and the older half goes first."""
        for name, value in self._before.items():
            setattr(self.stats, name, value)
        self._rows.clear()
        self._queue.put_back(portion, version)
        self._most = max(1, portion.num_rows // 2)

    def _sort(self, tuples: int) -> None:
        rows = self._rows
        self.stats.rows_out -= rows.rows  # which are counted when they are returned
        rows.sort()
        self._each = rows.nbytes / rows.rows + rows.portion.nbytes / tuples
        self._row_bytes = max(rows.nbytes / tuples, 0.8 * self._row_bytes)
        fit = int(0.95 * rows.room / max(1.0, self._row_bytes))
        self._most = max(1, min(fit, _GROWTH * self._most, 1 << 20))

    def _next_rows(self) -> pa.RecordBatch:
        fit = int(_OUTPUT_PART * self._buffer / self._each)
        some = self._rows.take(max(1, min(DEFAULTS.slice_rows, fit)), self.schema)
        self.stats.rows_out += some.num_rows
        return some


def _opened(memory: int, open_run: Callable[[], Run]) -> Run:
    try:
        return open_run()
    except BudgetError as error:
        raise BudgetError(
            f"{error}. With order='stream', the join has 44 % of memory="
            f"{format_size(memory)}; the rest is the reorder buffer"
        ) from error
