"""A run: one join at work. Here is what all of them share: the loop, versions, the budget.

    push -> incoming -> [front stage] -> window ... iterations over pages ... -> ready -> caller

A run works in bounded steps, and all its state lives in the run, none in the iterators that it
hands out: an iterator may be abandoned, or a page read may fail, and the next call goes on from
there. Algorithms fill in four hooks: ``_admit``, ``_begin``, ``_resume`` and ``_allocate``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from semistream.errors import BudgetError, ConfigError
from semistream.joins.binding import Binding
from semistream.joins.budget import MemoryPlan
from semistream.joins.front_stage import FrontStage
from semistream.joins.hot_rows import HotRows
from semistream.joins.observer import Observer
from semistream.joins.window import StreamLayout
from semistream.master import MasterTable
from semistream.master.pages import PageReader, PageSource
from semistream.stats import MemoryUse, Stats

Clock = Callable[[], float]
Pages = TypeVar("Pages")


class Incoming:
    """A batch that was pushed and is not fully taken in yet, and the version it must meet."""

    def __init__(self, batch: pa.RecordBatch, version: int) -> None:
        self.batch = batch
        self.version = version
        self.taken = 0


class Run(MemoryPlan):
    """One join at work. Use it as a context manager, or close it."""

    def __init__(
        self,
        join: Any,
        source: PageSource,
        binding: Binding,
        direct: bool,
        follow: bool,
        observer: Observer | None,
        clock: Clock,
    ) -> None:
        self.join = join
        self.stats = Stats()
        self._binding = binding
        self._direct = direct
        self._follow = follow
        self._observer = observer or Observer()
        self._clock = clock
        self._closed = False
        self._budget: int = join.memory
        self._incoming: deque[Incoming] = deque()
        self._ready: deque[tuple[pa.RecordBatch, int]] = deque()
        self._ready_bytes = 0
        self._stream: StreamLayout | None = None
        self._stream_row_most = 0
        self._front: FrontStage | HotRows | None = None
        self._full = False
        self._iteration_started: tuple[float, int, int] | None = None
        self._output_bytes = 0
        self._spare = 0
        self._unreachable: int | None = None  # a version that the run could not move to
        self._detached = False  # a move failed, and so did the way back
        self._attach(source)
        self._wanted = source.version
        need = self._need()
        if need > self._budget:
            self._detach()
            raise self._refuse(need)

    # -- what callers use ------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take in a batch; iterate over the result to get the rows that are ready.

        The batch is accepted by the call itself, or refused as a whole. Work that an abandoned
        iterator leaves undone is done by the next call.
        """
        self._check_open()
        version = self._source.newest_version() if self._follow else self._wanted
        self._check_batch(batch)
        self.stats.tuples_in += batch.num_rows
        self._observer.pushed(batch.num_rows)
        if batch.num_rows or version != self.version:
            self._incoming.append(Incoming(batch, version))
        return self._serve(lambda: bool(self._incoming) or self._busy)

    def step(self) -> Iterator[pa.RecordBatch]:
        """Do one iteration without new input, for a stream that pauses."""
        self._check_open()
        target = self.stats.iterations + 1
        return self._serve(
            lambda: (self.stats.iterations < target or self._busy) and self._unfinished
        )

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve everything that still waits."""
        self._check_open()
        return self._serve(lambda: self._unfinished)

    def close(self) -> None:
        """Give back memory and files. Tuples that still wait are given up: flush first."""
        if not self._closed:
            self._closed = True
            self._detach()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def use(self, version: int) -> None:
        """Batches pushed from now on meet this version of the master table, until told again.

        So do batches that still wait because the run could not move to their version.
        """
        self._check_open()
        self._follow = False
        self._wanted = version
        for waiting in self._incoming:
            if waiting.version == self._unreachable:
                waiting.version = version
        self._unreachable = None

    @property
    def version(self) -> int:
        """The version of the master table that the run has open."""
        return self._source.version

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows that come out; None before the first push."""
        return self._binding.schema

    @property
    def memory(self) -> MemoryUse:
        """Bytes by component."""
        components = {
            "window": self._window_bytes(),
            "front stage": self._front_bytes(),
            "disk buffer": self._disk_bytes(),
            "page index": self._index_bytes,
            "pending output": self._ready_bytes + self._scratch_bytes(),
        }
        return MemoryUse(components, self._budget)

    # -- hooks of the algorithms -----------------------------------------------------------

    def _measure(self, sample: pa.RecordBatch) -> None:
        """Note what the division of memory needs to know of the stream's tuples."""

    def _check_room(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch with a tuple that could never wait; by default none waits."""

    @abstractmethod
    def _admit(self) -> None:
        """Take in some of the incoming tuples; sets ``_full`` when no more fit."""

    @abstractmethod
    def _begin(self) -> None:
        """Start an iteration: read pages, so that ``_resume`` has something to do."""

    @abstractmethod
    def _resume(self) -> None:
        """Go on with the iteration, by no more than one output batch."""

    def _hand_over(self) -> None:
        """Make an output batch of what was kept back to fill one."""

    _source: PageSource
    _busy = False  # an iteration has begun and has not ended

    @property
    @abstractmethod
    def _held(self) -> int:
        """Tuples in the window."""

    @abstractmethod
    def _window_bytes(self) -> int: ...

    def _front_bytes(self) -> int:
        return self._front.nbytes if self._front else 0

    @abstractmethod
    def _attach(self, source: PageSource) -> None:
        """Take a version of the master table: open readers."""

    @abstractmethod
    def _detach(self) -> None:
        """Close what ``_attach`` opened."""

    # -- the loop --------------------------------------------------------------------------

    def _serve(self, more: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        while True:
            while self._ready:
                rows, nbytes = self._ready.popleft()
                self._ready_bytes -= nbytes
                self.stats.rows_out += rows.num_rows
                yield rows
            if self._closed:
                return
            if more():
                self._work()
            else:
                self._hand_over()
                if not self._ready:
                    return

    def _work(self) -> None:
        if self._detached:
            self._return_to(self._source)
        if self._busy:
            self._resume()
        elif self._incoming and self._incoming[0].version != self.version:
            if self._held:
                self._begin()
            else:
                self._move()
        elif self._incoming and not self._full:
            self._admit()
        else:
            self._begin()

    @property
    def _unfinished(self) -> bool:
        return bool(self._incoming) or self._busy or self._held > 0

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError("this run is closed; open the join again to go on")

    # -- versions --------------------------------------------------------------------------

    def _move(self) -> None:
        """Go to the next incoming batch's version. Nothing waits, so nothing mixes versions.

        If that fails, the run stays where it was and the batch goes on waiting.
        """
        old = self._source
        assert isinstance(old, MasterTable)
        self._unreachable = self._incoming[0].version
        new = MasterTable.open(old.path, self._unreachable, mapped=old.mapped)
        self._binding.check_version(new, old.version)
        dropped = self._forget_changed(new, old.version)
        self._detach()
        try:
            self._attach(new)
            self._fit()
        except BaseException:
            self._return_to(old)
            raise
        self._unreachable = None
        self._observer.version_changed(old.version, new.version, dropped)

    def _return_to(self, source: PageSource) -> None:
        """Attach the version that the run had; if this fails, too, the next call tries again."""
        self._source, self._detached = source, True
        self._detach()
        self._attach(source)
        self._divide()
        self._detached = False

    def _fit(self) -> None:
        """After a move: divide the memory again if the components no longer fit."""
        fixed = self._index_bytes + self._disk_bytes()
        longer_rows = 2 * self._row_most() > self._output_bytes
        if fixed > self._fixed or longer_rows or self._need() > self._budget:
            self._divide()

    def _check_batch(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch that does not fit the stream, or has a tuple that the budget cannot hold.

        A refused batch changes nothing: if it was the first, the next one is the first again.
        """
        first, widest = self._stream is None, self._stream_row_most
        self._binding.check_batch(batch)
        try:
            self._note_widest(batch)
            if first:
                self._bind(batch)
            self._check_room(batch)
        except BudgetError:
            self._stream_row_most = widest
            if first:
                self._stream = None
                self._binding.unbind()
            raise

    def _bind(self, batch: pa.RecordBatch) -> None:
        """The first batch tells what a stream tuple looks like: divide the memory."""
        assert self._binding.stream_schema is not None
        self._stream = StreamLayout(self._binding, self._binding.stream_schema)
        self._measure(batch.slice(0, 1024))
        self._divide()

    def _forget_changed(self, new: PageSource, since: int) -> int:
        if self._front is None:
            return 0
        changed = new.changed_keys(since)
        if changed is None:
            return self._front.clear()
        return sum(self._front.drop(self._binding.master_codes(keys)[0]) for keys in changed)

    # -- pages -----------------------------------------------------------------------------

    def _read(self, reader: PageReader, first: int, count: int) -> list[pa.RecordBatch]:
        before = reader.bytes_read
        return self._note_read(first, count, lambda: reader.read(first, count), reader, before)

    def _note_read(
        self,
        first: int,
        count: int,
        read: Callable[[], Pages],
        reader: PageReader,
        before: int,
    ) -> Pages:
        """Wait for a read and count it; ``before`` is what the reader had read before it."""
        started = self._clock()
        pages = read()
        nbytes = reader.bytes_read - before
        self.stats.pages_read += count
        self.stats.bytes_read += nbytes
        self._observer.page_read(first, count, nbytes, self._clock() - started)
        return pages

    def _iteration_begins(self) -> None:
        self._iteration_started = (self._clock(), self.stats.matched, self.stats.unmatched)

    def _iteration_ends(self) -> None:
        assert self._iteration_started is not None
        started, matched, unmatched = self._iteration_started
        self.stats.iterations += 1
        self._full = False
        self._observer.iterated(
            self.stats.matched - matched,
            self.stats.unmatched - unmatched,
            self.stats.waiting,
            self._clock() - started,
        )

    # -- rows on their way out ---------------------------------------------------------------

    def _emit_unmatched(self, batch: pa.RecordBatch, rows: Any) -> None:
        """Rows of tuples that match nothing, as far as ``how`` wants them."""
        if len(rows) and self._binding.how in ("left", "left_anti"):
            self._emit_without_match(batch.take(pa.array(rows)).columns, len(rows))

    def _emit_without_match(self, stream: Sequence[pa.Array], count: int) -> None:
        schema = self._source.schema
        missing = [pa.nulls(count, schema.field(n).type) for n in self._binding.master_columns]
        self._emit(stream, missing)

    def _emit(self, stream: Sequence[pa.Array], master: Sequence[pa.Array]) -> None:
        rows = pa.RecordBatch.from_arrays([*stream, *master], schema=self._binding.schema)
        nbytes = rows.get_total_buffer_size()
        self._ready.append((rows, nbytes))
        self._ready_bytes += nbytes
