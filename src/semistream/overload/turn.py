"""What a micro-batch does with waiting rows: the plan of the driver, and its execution by a task.

deferred rows, oldest first ─┐
own rows of the task ────────┴─ while there is time ─> look-up 0 ─> look-up 1 ─> sink
     rest ─> deferred                                   ^    │       ^    │
                                parked, key arrived ────┘    └───────┼────┴─> parked
                                                                     └ parked, key arrived
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from semistream.errors import SchemaError
from semistream.keys import Codes
from semistream.overload.arrivals import arrived_codes, rows_with
from semistream.overload.backlog import FILE_ROWS, Backlog
from semistream.overload.backlog_state import Changes, WaitingFile
from semistream.overload.row_set import RowSet

T = TypeVar("T")
CODE = "__semistream_code"
NULL_KEY = "a key column is null"
_GATHER_BYTES = 4 << 20  # parked rows of a look-up are gathered in memory up to here
# Of a batch's time, at most this share is kept free for serving what waits in the window.
_MOST_RESERVE = 0.8
_drain_seconds: dict[str, float] = {}  # by query: how long that took in this process's last task


@dataclass(frozen=True)
class Turn:
    """What the driver tells all tasks of a micro-batch. Picklable.

    ``base``: the number of the state before the batch. ``seconds`` from ``started``: the time
    budget; None: no limit. ``deferred`` and ``parked``: files that tasks may serve, oldest first;
    of the latter only those with a version behind ``versions``, the tables' versions by look-up.
    ``merges``: small parked files that become one. ``parks``: unmatched rows are parked.
    ``keeps_null_keys``: those without a key become dead letters.
    """

    backlog: Backlog
    base: int
    batch: int
    partitions: int = 1
    seconds: float | None = None
    started: float = 0.0
    deferred: tuple[WaitingFile, ...] = ()
    parked: tuple[WaitingFile, ...] = ()
    merges: tuple[tuple[WaitingFile, ...], ...] = ()
    versions: tuple[int, ...] = ()
    parks: bool = False
    keeps_null_keys: bool = False
    clock: Callable[[], float] = field(default=time.time)

    def share(self, files: Sequence[T], partition: int) -> Sequence[T]:
        """The files that this task may serve. They move on with every batch: a task that always
        begins late must not keep the same ones waiting."""
        if partition >= self.partitions:  # no file may have two tasks
            return ()
        return files[(partition + self.batch) % self.partitions :: self.partitions]


class TaskTurn:
    """One task's part of a turn."""

    def __init__(self, turn: Turn, partition: int, own: Iterable[pa.RecordBatch]) -> None:
        self._turn = turn
        self._deferred = turn.share(turn.deferred, partition)
        self._parked = turn.share(turn.parked, partition)
        self._merges = turn.share(turn.merges, partition)
        full = (batch for batch in own if batch.num_rows)
        first = next(full, None)
        self._own: Iterator[pa.RecordBatch] = full if first is None else chain([first], full)
        self._left: Iterator[pa.RecordBatch] = iter(())
        self._has_begun = False
        self._closed_at = self._written_at = turn.started
        self._drained = 0.0
        self._parkers: list[_Parker] = []
        self.changes = Changes()
        self.schema: pa.Schema | None = None if first is None else first.schema
        """The stream's columns; None if the task has nothing to do."""
        self.stages: Sequence[pa.Schema] = ()
        """The columns of the rows that each look-up receives; set before rows are served."""
        if first is None:
            waiting = [*self._deferred, *self._parked, *chain.from_iterable(self._merges)]
            if waiting:
                self.schema = turn.backlog.stream_schema(waiting[0])

    def admit(self) -> Iterator[pa.RecordBatch]:
        """Rows for the first look-up, while there is time; at least one batch, so that the
        backlog shrinks however short the time is."""
        for file in self._deferred:
            if self._is_over():
                self._left = self._own
                break
            self.changes.served.append(file.name)
            for batch in self._turn.backlog.read(file):
                yield conformed(batch, self.schema)
        else:
            for batch in self._own:
                if self._is_over():
                    self._left = chain([batch], self._own)
                    break
                yield batch
        self._closed_at = self._turn.clock()

    def _is_over(self) -> bool:
        turn = self._turn
        if turn.seconds is None:
            return False
        if not self._has_begun:
            self._has_begun = True
            return False
        reserve = min(_drain_seconds.get(turn.backlog.query, 0.0), _MOST_RESERVE * turn.seconds)
        return turn.clock() - turn.started >= turn.seconds - reserve

    def late(self, lookup: int, run: Any) -> Iterator[pa.RecordBatch]:
        """Parked rows whose key the table has now, for this look-up; only they are read."""
        turn = self._turn
        version = turn.versions[lookup] if turn.versions else 0
        arrived: dict[int, Codes | None] = {}
        for file in self._parked:
            if file.lookup != lookup:
                continue
            if turn.seconds is not None and turn.clock() - turn.started >= turn.seconds:
                return
            if file.version not in arrived:
                arrived[file.version] = arrived_codes(run.source.at_version(version), file.version)
            taken, gone, first = RowSet(file.rows), file.gone_rows, 0
            for batch in turn.backlog.read(file):
                rows = rows_with(batch.column(CODE).to_numpy(), arrived[file.version])
                rows = rows[~gone.mask(rows + first)]
                taken.add(rows + first)
                first += batch.num_rows
                if len(rows):
                    yield conformed(
                        batch.drop_columns([CODE]).take(pa.array(rows)), self.stages[lookup]
                    )
            if len(taken):
                self.changes.taken[file.name] = taken.to_text()
            self.changes.checked[file.name] = version

    def park_unmatched(self, runs: Sequence[Any]) -> None:
        """Take the unmatched rows of these runs, until ``release``."""
        if self._turn.parks:
            assert self.schema is not None
            for number, run in enumerate(runs):
                self._parkers.append(
                    _Parker(self._turn, number, run, len(self.schema), self.changes)
                )

    def release(self, runs: Sequence[Any]) -> None:
        for run in runs:
            run.parts[2].divert = None

    def finish(self) -> None:
        """All admitted rows have been joined: write the others, and those that were parked."""
        turn = self._turn
        self._drained = turn.clock() - self._closed_at
        for parker in self._parkers:
            parker.write()
        for group in self._merges:
            if turn.seconds is None or turn.clock() - turn.started < turn.seconds:
                self._merge(group)
        assert self.schema is not None
        self.changes.added += turn.backlog.defer(
            self._left, turn.base, since=turn.clock(), columns=len(self.schema)
        )
        self._written_at = turn.clock()

    def staged(self) -> None:
        """The sink has the rows: learn how long a task takes after its last admitted rows. Without
        writing deferred rows: if that counted, more would be deferred the more are."""
        if self.schema is not None:
            seconds = self._drained + self._turn.clock() - self._written_at
            _drain_seconds[self._turn.backlog.query] = max(0.0, seconds)

    def _merge(self, files: tuple[WaitingFile, ...]) -> None:
        backlog, newest = self._turn.backlog, files[-1]
        tables = [
            pa.Table.from_batches(backlog.read(file)).take(pa.array(file.gone_rows.others()))
            for file in files
        ]
        (rows,) = pa.concat_tables(tables).sort_by(CODE).combine_chunks().to_batches()
        self.changes.served += [file.name for file in files]
        self.changes.added += backlog.write(
            [rows], self._turn.base, since=newest.since, columns=newest.columns,
            lookup=newest.lookup, version=newest.version,
        )  # fmt: skip


class _Parker:
    """Gathers the unmatched rows of one look-up, and writes them sorted by the code of the key."""

    def __init__(self, turn: Turn, lookup: int, run: Any, columns: int, changes: Changes) -> None:
        self._turn, self._lookup, self._columns, self._changes = turn, lookup, columns, changes
        self._binding = run.parts[0].binding
        self._gathered: list[tuple[pa.RecordBatch, Codes]] = []
        self._rows = self._nbytes = 0
        run.parts[2].divert = self._take

    def _take(self, columns: Sequence[pa.Array], count: int) -> tuple[Sequence[pa.Array], int]:
        """Rows without a key never match: they are dead letters, or what ``how`` makes of them."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self._binding.stream_schema)
        codes, valid = self._binding.stream_codes(batch)
        rest = batch.slice(0, 0)
        if valid is not None and not valid.all():
            rest = batch.filter(pa.array(~valid))
            batch, codes = batch.filter(pa.array(valid)), codes[valid]
            if self._turn.keeps_null_keys and self._binding.how == "inner":
                self._add([rest], reason=NULL_KEY)
                rest = rest.slice(0, 0)
        if batch.num_rows:
            self._gathered.append((batch, np.array(codes)))
            self._rows += batch.num_rows
            self._nbytes += batch.nbytes
            if self._nbytes >= _GATHER_BYTES or self._rows >= FILE_ROWS:
                self.write()
        return rest.columns, rest.num_rows

    def write(self) -> None:
        if not self._gathered:
            return
        codes = np.concatenate([codes for _, codes in self._gathered])
        order = np.argsort(codes, kind="stable")
        rows = pa.concat_batches([batch for batch, _ in self._gathered]).take(pa.array(order))
        self._gathered, self._rows, self._nbytes = [], 0, 0
        version = self._turn.versions[self._lookup]
        self._add([rows.append_column(CODE, pa.array(codes[order]))], version=version)

    def _add(self, rows: list[pa.RecordBatch], **about: Any) -> None:
        self._changes.added += self._turn.backlog.write(
            rows, self._turn.base, since=self._turn.clock(), columns=self._columns,
            lookup=self._lookup, **about,
        )  # fmt: skip


def conformed(batch: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """Rows that waited, with the columns that the query has now."""
    if schema is None or batch.schema.equals(schema, check_metadata=True):
        return batch
    if batch.schema.names != schema.names or batch.schema.types != schema.types:
        raise SchemaError(
            f"rows that wait have the columns {', '.join(map(str, batch.schema))}, but the query "
            f"now has {', '.join(map(str, schema))}; drain them with the query as it was"
        )
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
