"""Late master rows: unmatched tuples are parked until a version of the table has their key.

    unmatched -> gathered in memory -> parked store --key arrives--> intake of the run
                                            |
                                            +--max_age, max_rows--> dead letters

A version of the table lists the codes that it changed. When the run moves to a new version, the
parked tuples with these codes are read back and joined, and no others. Between two versions parked
tuples cost nothing, and nothing waits behind them.

Gathered tuples count as unmatched until they are written; parked ones count as shed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.rows.layout import Rows
from semistream.errors import ConfigError
from semistream.keys import Codes
from semistream.overload.arrivals import arrived_codes
from semistream.overload.options import Parking
from semistream.overload.parked_store import ParkedFile, ParkedStore
from semistream.overload.shedding_run import SheddingRun
from semistream.overload.wrapped_run import WrappedRun

_GATHER_SHARE = 4  # of the buffer: gathered, their concatenation and its sorted copy, arrivals


class ParkingRun(WrappedRun):
    """A run whose unmatched tuples wait for late master rows."""

    def __init__(
        self,
        inner: Any,
        join: Any,
        options: Parking,
        store: ParkedStore,
        buffer: int,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(inner, join, buffer)
        self.options = options
        self._store = store
        self._clock = clock
        self._most_bytes = max(1, buffer // _GATHER_SHARE)
        self._gathered: list[tuple[pa.RecordBatch, Codes, int]] = []  # with the version
        self._gathered_bytes = 0
        self._finished = True  # the caller has all rows of the last call
        self.late_matches = 0  # tuples that were read back because their key arrived
        self._output.divert = self._gather
        if isinstance(inner, SheddingRun):  # it must not forget tuples that were only gathered
            inner.holds_back = lambda: bool(self._gathered)
            inner.write_back = self._write
        self.stats.tuples_in += store.rows
        self.stats.shed += store.rows

    # -- public interface ------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch) -> bool:
        if not hasattr(self.inner, "offer"):
            raise ConfigError("offer() needs shedding= or buffer=; use push()")
        return bool(self.inner.offer(batch))

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._expire()
        return self._served(self.inner.push(batch), self._push_nothing)

    def step(self) -> Iterator[pa.RecordBatch]:
        """One iteration. A paused stream moves to a new version of the table here."""
        if not self._is_empty:
            self._expire()
            self._move_on()
            if self._has_room:
                self._requeue_arrivals()
        return self._served(self.inner.step(), None)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve all waiting tuples; those without a match are parked then."""
        self._expire()
        self._move_on()
        return self._served(self._flush(), None)

    def drain(self) -> Iterator[pa.RecordBatch]:
        return self._served(super().drain(), None)

    def checkpoint(self) -> Iterator[pa.RecordBatch]:
        return self._served(self._checkpoint(), None)

    def dead_letters(self) -> Iterator[pa.RecordBatch]:
        """Tuples that were parked for too long, with a column that says why; each once."""
        self._expire()
        while (dead := self._store.dead()) is not None:
            batch = self._store.take_dead(*dead)
            name = "reason" if "reason" not in batch.schema.names else "dead_letter_reason"
            yield batch.append_column(name, pa.array([dead[1]] * batch.num_rows, pa.string()))
        if self._finished:
            self._acknowledge()

    def close(self) -> None:
        self.inner.close()
        self._store.close()

    @property
    def parked(self) -> int:
        """Tuples in the store."""
        return self._store.rows

    @property
    def buffered(self) -> int:
        """As of load shedding, which must be below."""
        return self.inner.buffered  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)  # what load shedding adds, if it is below

    def _own_memory(self) -> dict[str, int]:
        return {"parking": self._gathered_bytes + self._store.nbytes}

    # -- parking ---------------------------------------------------------------------------

    def _gather(self, columns: Sequence[pa.Array], count: int) -> tuple[Sequence[pa.Array], int]:
        """Take unmatched tuples from the output; those without a key never match, and pass."""
        binding = self._context.binding
        batch = pa.RecordBatch.from_arrays(list(columns), schema=binding.stream_schema)
        codes, valid = binding.stream_codes(batch)
        rest = batch.slice(0, 0)
        if valid is not None and not valid.all():
            rest = batch.filter(pa.array(~valid))
            batch, codes = batch.filter(pa.array(valid)), codes[valid]
        if batch.num_rows:
            self._gathered.append((batch, np.array(codes), self.inner.version))
            self._gathered_bytes += batch.nbytes + codes.nbytes
            if self._gathered_bytes >= self._most_bytes:
                # An empty batch makes the run's loop return here, so that they can be written.
                empty = [column.slice(0, 0) for column in batch.columns]
                self._output.emit(empty, binding.nulls(0))
        return rest.columns, rest.num_rows

    def _write(self) -> None:
        """Park what was gathered. If it raises, the tuples stay in memory."""
        while self._gathered:
            version = self._gathered[0][2]
            some = [part for part in self._gathered if part[2] == version]
            tuples = pa.concat_batches([batch for batch, _, _ in some])
            codes = np.concatenate([part for _, part, _ in some])
            self._store.append(tuples, codes, version)
            self.stats.unmatched -= len(codes)
            self.stats.shed += len(codes)
            self._gathered = [part for part in self._gathered if part[2] != version]
            self._gathered_bytes = sum(b.nbytes + c.nbytes for b, c, _ in self._gathered)
        self._expire()

    def _expire(self) -> None:
        """Move tuples that are too old, or too many, to the dead letters."""
        if not self._store.files:
            return
        age, most = self.options.seconds, self.options.max_rows
        if age is not None:
            why = f"no version of the table had its key within max_age={self.options.max_age}"
            for file, rows in self._store.older_than(self._clock() - age):
                self._bury(file, rows, why)
        if most is not None and self._store.rows > most:
            for file, rows in self._store.beyond(most):
                self._bury(file, rows, f"more than max_rows={most} tuples were parked")

    def _bury(self, file: ParkedFile, rows: Rows, reason: str) -> None:
        self._store.bury(file, rows, reason)
        self.stats.shed -= len(rows)
        self.stats.unmatched += len(rows)

    # -- coming back -----------------------------------------------------------------------

    def _served(
        self, rows: Iterator[pa.RecordBatch], again: Callable[[], Iterator[pa.RecordBatch]] | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows; then, with ``again``, those of tuples whose key came with a new version."""
        self._finished = False
        while True:
            if self._gathered_bytes >= self._most_bytes:
                self._write()
            for batch in rows:
                if batch.num_rows:
                    yield batch
                # Before more rows are taken: if it raises, none is at hand.
                if self._gathered_bytes >= self._most_bytes:
                    self._write()
            if again is None or not self._requeue_arrivals():
                break
            rows = again()
        self._finished = True
        if self._store.in_flight:
            self._acknowledge()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        while True:
            yield from self.inner.flush()
            self._write()
            if not self._move_on() and not self._requeue_arrivals():
                break
        if isinstance(self.inner, SheddingRun):
            self.inner.acknowledge()

    def _checkpoint(self) -> Iterator[pa.RecordBatch]:
        yield from super().checkpoint()
        self._write()
        self._store.checkpoint()

    def _acknowledge(self) -> None:
        """With ``recover="all"``: all tuples that came back have been served, forget them."""
        if not self._store.in_flight or self.options.recover != "all":
            return
        if not self.stats.waiting and not self._gathered:
            self._store.checkpoint()

    def _move_on(self) -> bool:
        """Let the run open the newest version, if tuples are parked and it follows the table."""
        moves = self._store.rows > 0 and self.inner.next_version != self.inner.version
        if moves:
            self._push_nothing()
        return bool(moves)

    def _push_nothing(self) -> Iterator[pa.RecordBatch]:
        schema = self._context.binding.stream_schema
        if schema is None:  # parked by a run before this one
            file = next(iter(self._store.files.values()))
            schema = self._store.read(file, np.zeros(0, np.int64)).schema
        empty = pa.RecordBatch.from_pylist([], schema)
        return self.inner.push(empty)  # type: ignore[no-any-return]

    @property
    def _is_empty(self) -> bool:
        """Whether no tuple is parked or gathered, as in most calls of most runs."""
        return not self._store.files and not self._gathered

    @property
    def _has_room(self) -> bool:
        """Whether tuples may come back: those that came before them have been taken in."""
        inner = self.inner
        return inner.has_room if isinstance(inner, SheddingRun) else not self._intake

    def _requeue_arrivals(self) -> bool:
        """Queue parked tuples of one file whose keys the run's version has; False: there are none.

        Their file is not looked at again before the next version.
        """
        if self._is_empty:
            return False
        version, source = self.inner.version, self.inner.source
        if any(part[2] < version for part in self._gathered):
            self._write()
        codes_since: dict[int, Codes | None] = {}
        for file in self._store.stale(version):
            if file.checked not in codes_since:
                has_key = self._context.binding.has_key  # else every new row may match any tuple
                codes_since[file.checked] = arrived_codes(source, file.checked) if has_key else None
            rows = self._store.with_codes(file, codes_since[file.checked])
            if len(rows):
                self.inner.requeue(self._store.read(file, rows))
                self._store.take(file, rows)
                self.stats.shed -= len(rows)
                self.late_matches += len(rows)
            file.checked = version
            if len(rows):
                return True
        return False
