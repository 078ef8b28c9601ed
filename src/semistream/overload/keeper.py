"""The driver's side of waiting rows: plans a micro-batch, and commits it together with the sink.

    begin    the ledger's mark -> the state before the batch -> a plan for the tasks
    commit   changes of all tasks -> the next state, proposed
             rows and the state's number -> the sink's ledger, in one atomic step
             dead letters of the state -> their sink, once per state

A crash before the atomic step leaves the state before the batch, and the batch is replayed. After
it, the next ``begin`` finds the new state, and writes its dead letters if that had not been done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SemistreamError
from semistream.overload.backlog import FILE_ROWS, Backlog
from semistream.overload.backlog_state import Changes, State, WaitingFile
from semistream.overload.options import Parking
from semistream.overload.topic_rows import TopicRows
from semistream.overload.turn import Turn
from semistream.sinks.contract import Batch, Mark, Sink, Staged

REASON = "dead_letter_reason"


@dataclass(frozen=True)
class Waiting:
    """The options: how long a batch may take, and what happens to unmatched rows.

    ``path``: the folder of waiting rows. ``dead_letters``: where parked rows go in the end.
    ``deferred_topic``: where deferred rows wait, instead of the folder.
    """

    path: str | Path
    seconds: float | None = None
    parking: Parking | None = None
    dead_letters: Sink | None = None
    deferred_topic: TopicRows | None = None
    clock: Callable[[], float] = field(default=time.time)


class Keeper:
    """The waiting rows of one query, whose other rows are in ``sink``."""

    def __init__(self, options: Waiting, sink: Sink, query: str) -> None:
        self._options = options
        self._sink = sink
        self.backlog = Backlog(options.path, query, topic=options.deferred_topic)
        self.state = State()
        self._written = 0  # the state whose dead letters this keeper has written

    def begin(
        self,
        batch: int,
        partitions: int,
        versions: Callable[[], Sequence[int]],
        limited: bool = True,
    ) -> Turn:
        """Plan a micro-batch. ``versions``: of the tables, by look-up; asked if rows are parked."""
        options = self._options
        started = options.clock()
        self.state = state = self.backlog.state(self._sink.mark(self.backlog.query))
        self._write_dead_letters(state)
        parks = options.parking is not None
        found = tuple(versions()) if parks or state.parked else ()
        stale = [file for file in state.parked if file.version < found[file.lookup or 0]]
        merges: list[tuple[WaitingFile, ...]] = []
        if options.parking is not None:
            merges = state.merges(options.parking, FILE_ROWS)
        looked_for = {file.name for file in stale}
        return Turn(
            backlog=self.backlog,
            base=state.number,
            batch=batch,
            partitions=max(1, partitions),
            seconds=options.seconds if limited else None,
            started=started,
            deferred=tuple(state.deferred),
            parked=tuple(stale),
            merges=tuple(group for group in merges if not looked_for & {f.name for f in group}),
            versions=found,
            parks=parks,
            keeps_null_keys=options.dead_letters is not None,
            clock=options.clock,
        )

    def commit(self, staged: Sequence[Staged], batch: Batch, turn: Turn) -> bool:
        """Commit the rows and what the tasks did with waiting rows; False: it was done before."""
        query = self.backlog.query
        changes = [Changes.from_text(part.note) for part in staged if part.note]
        with self.backlog.lock(alone=batch.query != query):  # a drain
            mark = self._sink.mark(query)
            if (0 if mark is None else mark.number) != turn.base:
                raise SemistreamError(
                    f"the waiting rows of query {query} were changed while batch {batch.number} "
                    "ran, by a drain or by another driver of the query; nothing is lost: restart "
                    "the query, which replays the batch, or stop it, if its successor is running"
                )
            state = self.state.after(changes)
            if self._options.parking is not None:
                state = state.expired(self._options.parking, self._options.clock())
            if not state.rows and not self.state.rows:
                return self._sink.commit(staged, batch)  # nothing waits, and nothing did
            added = [file for one in changes for file in one.added]
            proposed = self.backlog.publish(state, added)
            new_mark = Mark(query, proposed.number, proposed.rows)
            if not self._sink.commit(staged, batch, new_mark):
                self.backlog.discard(proposed)
                return False
            self.state = proposed
            self._write_dead_letters(proposed)
            self.backlog.sweep(proposed)
        return True

    def drain_batch(self, turn: Turn) -> Batch:
        """The ledger key of a commit that belongs to no micro-batch."""
        return Batch(Mark(self.backlog.query, 0, 0).drains, turn.base)

    def _write_dead_letters(self, state: State) -> None:
        """Write a state's dead letters, unless their sink has them: its batch is the state."""
        if not state.dead or self._written == state.number:
            return
        sink = self._options.dead_letters
        if sink is None:
            raise ConfigError(
                f"{sum(file.waiting for file in state.dead)} rows of query {self.backlog.query} "
                "are dead letters; give dead_letters=, a folder for them"
            )
        batch = Batch(f"{self.backlog.query}-dead", state.number)
        rows = (part for file in state.dead for part in self._dead_rows(file))
        sink.commit([sink.stage(rows, None, batch, 0)], batch)
        self._written = state.number

    def _dead_rows(self, file: WaitingFile) -> Iterator[pa.RecordBatch]:
        """The stream's columns and the reason."""
        waiting, first = file.gone_rows.others(), 0
        for batch in self.backlog.read(file):
            rows = waiting[(waiting >= first) & (waiting < first + batch.num_rows)] - first
            first += batch.num_rows
            columns: list[Any] = batch.take(pa.array(rows)).columns[: file.columns]
            fields = [one.with_nullable(True) for one in batch.schema][: file.columns]
            yield pa.RecordBatch.from_arrays(
                [*columns, pa.array([file.reason] * len(rows), pa.string())],
                schema=pa.schema([*fields, pa.field(REASON, pa.string())]),
            )
