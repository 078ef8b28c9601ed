"""Load shedding around a run (003, section 4; 004, section 3.3)::

     1  if the buffer holds more than twice what an iteration serves:        step: _balance
     2      shed the excess: from the window (considering), or from the
            buffer (keep)                                                    _shed
     3  else:
     4      return shed tuples, oldest first, up to that size                _return
        serve one iteration                                                  inner.step

    offer -> stream buffer -> [front stage -> window] -> rows
                  |               |        ^
                 keep         considering  |
                  v               v        |
               outbox  --full--> store ----+

The stream buffer is the inner run's intake. Shed tuples gather in an outbox, in memory, until they
make a file; until then they count as waiting.

Differences from the paper
--------------------------
- Tuples come in batches. The batch that came last does not count as backlog, else every batch
  larger than two iterations would be shed.
- The pace (w) is a mean of what the last iterations took in, see ``Pace``.
- 003 returns 2w tuples whenever there is no overload, which may cause the next one. Here the
  buffer is filled up to 2w, after a few iterations without overload or when it is empty.
- A returned tuple stays in its file until a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError
from semistream.memory import format_size
from semistream.overload.options import Shedding
from semistream.overload.outbox import Outbox, OverloadStats, compact
from semistream.overload.sample import Estimate, Sample
from semistream.overload.shed_store import ShedStore
from semistream.overload.stream_buffer import Pace, StreamBuffer, overload
from semistream.overload.wrapped_run import WrappedRun

# A file of shed tuples has buffer // 4 bytes: one in the making, one being added, and half of the
# buffer for tuples that wait to be taken in. Smaller files cost a sync and a seek each.
_FILE_SHARE = 4
_KEPT_FILES = 64  # served tuples stay in up to so many files on disk before all in memory is served
_CALM = 8  # iterations without overload before tuples return; else they cause the next one
_FIRST_RETURN = 1 << 16  # tuples returned at once before the pace is known


class SheddingRun(WrappedRun):
    """A run that accepts tuples at any rate. ``store`` is None with mode ``off``."""

    def __init__(
        self, inner: Any, join: Any, options: Shedding, buffer: int, store: ShedStore | None
    ) -> None:
        super().__init__(inner, join, buffer)
        self.options = options
        self.overload = OverloadStats()
        self.is_overloaded = False
        self._store = store
        self._file_bytes = max(1, buffer // _FILE_SHARE)
        self._room = buffer - 2 * self._file_bytes  # for batches that wait to be taken in
        self._buffer = StreamBuffer()
        self._pace = Pace()
        self._queued: Iterator[pa.RecordBatch] | None = None  # rows of the batch accepted last
        self._finished = True  # the caller has all rows of the last call
        self._calm = _CALM  # iterations since the last overload
        self.holds_back: Callable[[], bool] = lambda: False  # served tuples, only in memory
        self.write_back: Callable[[], None] = lambda: None  # write these
        self._tuple_bytes = 0.0
        self._released = 0  # tuples that shedding took out of the window
        self._sample = Sample(options) if options.mode == "random" else None
        drops = options.when_full == "drop"
        self._outbox = Outbox(store, self._without_groups, drops, self.overload)
        if store is not None and store.tuples:
            self.overload.recovered = store.tuples
            self.stats.tuples_in += store.tuples
            self.stats.shed += store.tuples

    def offer(self, batch: pa.RecordBatch) -> bool:
        """Accept a batch without serving anything; tuples that find no room are shed.

        False, with mode ``off`` only: the buffer is full, nothing was accepted. Raises and accepts
        nothing if the batch does not fit the stream or, with mode ``off``, even the empty buffer,
        or if the store cannot be written.
        """
        if not isinstance(batch, pa.RecordBatch):
            self.inner.check(batch)
        batch = self._with_groups(batch)
        sample = self._sample
        if sample is not None and (self.is_overloaded or not self._has_room(batch.nbytes)):
            return self._offer_sample(sample, batch)
        return self._accept(batch)

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Push a batch as to a run without shedding: its tuples are taken in before it returns.

        If the buffer has no room for it, it is shed, and an iteration makes room.
        """
        if not self.offer(batch):
            raise ConfigError(
                f"the buffer is full: {self.buffered} tuples were offered and not taken in; "
                "iterate over run.step() or run.flush() first"
            )
        return self._iteration(self.inner.step() if self._queued is None else self._queued)

    def step(self) -> Iterator[pa.RecordBatch]:
        """Shed or return tuples, then serve one iteration."""
        self._balance()
        if self._keeps_too_much:
            return self._served(self._serve_and_forget())
        return self._iteration(self.inner.step())

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Serve the tuples in memory, but not those in the store."""
        return self._served(self._flush_memory())

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve everything, shed tuples included."""
        return self._served(self._flush_all())

    def checkpoint(self) -> Iterator[pa.RecordBatch]:
        return self._served(self._checkpoint())

    def requeue(self, batch: pa.RecordBatch) -> None:
        self.inner.requeue(batch)
        self._buffer.add(batch.num_rows, batch.nbytes, offered=False)

    def estimate(self) -> Estimate:
        """Rows and sums of the join of all tuples offered so far, with 95 % intervals.

        Needs mode ``random``, and no tuple in memory: call ``drain`` before.
        """
        if self._sample is None:
            raise ConfigError(f"estimate() needs mode 'random', not {self.options.mode!r}")
        if self.stats.waiting:
            raise ConfigError(
                f"{self.stats.waiting} tuples wait in memory; iterate over run.drain() first"
            )
        return self._sample.estimate(self.stats.shed)

    def close(self) -> None:
        self.inner.close()
        if self._store is not None:
            self._store.close()

    @property
    def buffered(self) -> int:
        """Tuples that were accepted and not yet taken in."""
        rows: int = self._context.stats.waiting - self._policy.held - self._outbox.rows
        self._buffer.consumed_to(rows)
        return rows

    @property
    def has_room(self) -> bool:
        """Whether the buffer is not full."""
        return self._has_room(0)

    @property
    def stored(self) -> int:
        """Tuples in the store."""
        return self._store.tuples if self._store is not None else 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of the store on disk."""
        return self._store.nbytes if self._store is not None else 0

    @property
    def oldest_seconds(self) -> float:
        """How long ago the oldest tuple in the store was shed."""
        return self._store.oldest_seconds if self._store is not None else 0.0

    @property
    def schema(self) -> pa.Schema | None:
        schema = self.inner.schema
        return schema if schema is None or self._sample is None else self._sample.schema(schema)

    def _own_memory(self) -> dict[str, int]:
        return {"stream buffer": self._buffered_bytes + self._outbox.nbytes}

    @property
    def _buffered_bytes(self) -> int:
        _ = self.buffered  # forgets what was taken in
        return self._buffer.nbytes

    # -- arriving --------------------------------------------------------------------------

    def _accept(self, batch: pa.RecordBatch) -> bool:
        """Into the buffer, or if that is full into the store."""
        batch = compact(batch)
        if not batch.num_rows or self._has_room(batch.nbytes):
            self._queued = self.inner.push(batch)  # ``offer`` leaves it alone: it only queues
            self._buffer.add(batch.num_rows, batch.nbytes, offered=True)
            if batch.num_rows:
                self._tuple_bytes = max(1.0, batch.nbytes / batch.num_rows)
            self._note_peak()
            return True
        self.inner.check(batch)
        self._queued = None
        if self._store is None:
            if batch.nbytes > self._room:
                raise ConfigError(
                    f"a batch of {format_size(batch.nbytes)} does not fit into the buffer, which "
                    f"has room for {format_size(self._room)}; cut it, or give more buffer="
                )
            return False
        self.is_overloaded = True
        self._shed_new(batch)
        self.overload.upfront += batch.num_rows
        return True

    def _shed_new(self, batch: pa.RecordBatch) -> None:
        """Shed tuples that have just arrived. If it raises, they were not accepted."""
        if self._outbox.nbytes + batch.nbytes > self._file_bytes:
            self._write_outbox()
        if batch.nbytes > self._file_bytes:
            self._outbox.write_through([batch])
            self.stats.shed += batch.num_rows
        else:
            self._add_to_outbox(batch)
        self.stats.tuples_in += batch.num_rows

    def _has_room(self, nbytes: int) -> bool:
        return self._buffered_bytes + nbytes <= self._room

    def _offer_sample(self, sample: Sample, batch: pa.RecordBatch) -> bool:
        self.inner.check(batch)
        kept, others = sample.choose(batch)
        if not self._has_room(kept.nbytes):
            return self._accept(batch)
        if others.num_rows:
            self._shed_new(others)
        sample.kept(kept)
        return self._accept(kept)

    def _with_groups(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._sample is None else self._sample.marked(batch, -1)

    # -- serving ---------------------------------------------------------------------------

    def _served(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._finished = False
        for batch in rows:
            yield batch if self._sample is None else self._sample.observe(batch)
        self._finished = True
        self.acknowledge()

    def _iteration(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``_served``, but the inner run's own rows if nobody has to see them or their end."""
        store = self._store
        if self._sample is None and (store is None or not store.in_flight):
            return rows
        return self._served(rows)

    def _flush_memory(self) -> Iterator[pa.RecordBatch]:
        while True:
            yield from self.inner.flush()
            if not self._outbox.rows:
                return
            self._requeue_outbox()

    def _flush_all(self) -> Iterator[pa.RecordBatch]:
        self._policy.look_up_at(1.0)
        self.is_overloaded = False
        while True:
            yield from self.inner.flush()
            if self.stored:
                self._return(_FIRST_RETURN)
            elif self._outbox.rows:
                self._requeue_outbox()
            else:
                break
        self.acknowledge()

    def _checkpoint(self) -> Iterator[pa.RecordBatch]:
        buffered, store = self.buffered, self._store
        needed = self._buffer.nbytes + self._outbox.nbytes
        # A sampled tuple that is shed would leave the sample, so these are served.
        if store is not None and self._sample is None and store.has_room(needed):
            self._withdraw(buffered)
            self._write_outbox()
        yield from self._flush_memory()
        self.write_back()
        if self._store is not None:
            self._store.checkpoint()

    def acknowledge(self) -> None:
        """With ``recover="all"``: if all returned tuples have been served, forget them on disk."""
        store = self._store
        if store is None or not store.in_flight or self.options.recover != "all":
            return
        if not self.stats.waiting and not self.holds_back():
            store.checkpoint()

    @property
    def _keeps_too_much(self) -> bool:
        """Whether files of returned tuples take much space. They stay until nothing waits in
        memory, which a stream without pause never allows."""
        store = self._store
        if store is None or not store.taken_bytes:
            return False
        if self.options.recover != "all" or self.is_overloaded:
            return False
        most, limit = _KEPT_FILES * self._file_bytes, self.options.limit_bytes
        return store.taken_bytes > (most if limit is None else min(most, limit // 4))

    def _serve_and_forget(self) -> Iterator[pa.RecordBatch]:
        yield from self._flush_memory()
        self.write_back()

    # -- shedding and returning ------------------------------------------------------------

    def _balance(self) -> None:
        stats, buffered = self._context.stats, self.buffered
        taken = self._buffer.entered - buffered - self._released
        self._pace.note(taken, stats.iterations, emptied=not buffered)
        store = self._store
        if store is None:
            return
        if store.in_flight and self._finished:
            self.acknowledge()
        excess = overload(buffered, self._buffer.newest, self._pace.per_iteration)
        was_overloaded, self.is_overloaded = self.is_overloaded, excess > 0
        considers = self.options.mode == "considering"
        if considers and (excess or was_overloaded):
            self._policy.look_up_at(self.options.position if excess else 1.0)
        self._calm = 0 if excess else self._calm + 1
        if excess:
            self.overload.overloads += 1
            if considers and self._policy.can_release:
                self._release(excess)
            elif self._sample is None:
                self._withdraw(excess)
        elif self._calm < _CALM and buffered:
            return
        elif store.tuples or self._outbox.rows or self._sample is not None:
            twice = self._pace.per_iteration
            self._return((_FIRST_RETURN if twice is None else int(2 * twice) + 1) - buffered)

    def _release(self, excess: int) -> None:
        """Shed tuples that have waited longest in the window: considering."""
        if self._policy.busy:  # an abandoned iterator: its iteration is finished first
            return
        portion = max(1, int(0.75 * self._file_bytes / max(1.0, self._tuple_bytes)))
        while excess > 0:
            if self._outbox.nbytes >= self._file_bytes:
                self._write_outbox()
            batch = self._policy.release(min(excess, portion))
            if batch is None:
                return
            excess -= batch.num_rows
            self._released += batch.num_rows
            self._add_to_outbox(batch)

    def _withdraw(self, excess: int) -> None:
        """Shed the newest tuples of the buffer: keep."""
        batches = self._intake.withdraw(excess)
        self._buffer.withdraw(sum(batch.num_rows for batch in batches))
        for batch in batches:
            self._add_to_outbox(compact(batch))
        if self._outbox.nbytes >= self._file_bytes:
            self._write_outbox()

    def _add_to_outbox(self, batch: pa.RecordBatch) -> None:
        self._outbox.add(batch)
        self._note_peak()

    def _write_outbox(self) -> None:
        self.stats.shed += self._outbox.write()

    def _note_peak(self) -> None:
        peak = max(self.overload.peak_buffer, self._buffer.nbytes + self._outbox.nbytes)
        self.overload.peak_buffer = peak

    def _without_groups(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch if self._sample is None else self._sample.unmarked(batch)

    def _return(self, most: int) -> None:
        """Bring tuples back from the store, oldest first, as many as the buffer has room for."""
        store, _ = self._store, self.buffered
        while store is not None and most > 0:
            batch = store.peek(most)
            if batch is None:
                if self._outbox.rows and (self._outbox.rows <= most or not self._buffer.rows):
                    self._requeue_outbox()
                elif self._sample is not None and not self.stats.shed and not self._outbox.rows:
                    self._sample.store_is_empty()  # and no tuple was dropped
                return
            batch = self._fitting(batch)
            if not batch.num_rows:
                return
            self.requeue(self._with_groups(batch))
            store.take(batch.num_rows)
            self._finished = False
            self.stats.shed -= batch.num_rows
            self.overload.returned += batch.num_rows
            most -= batch.num_rows

    def _fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The first tuples, for which the buffer has room; one in any case if it is empty."""
        room = self._room - self._buffer.nbytes
        if batch.nbytes <= room:
            return batch
        rows = int(room * batch.num_rows / batch.nbytes)
        return batch.slice(0, max(rows, 0 if self._buffer.rows else 1))

    def _requeue_outbox(self) -> None:
        self._outbox.return_to(lambda batch: self.requeue(self._with_groups(batch)))
