"""SweepJoin, our own: MESHJOIN's bound, HYBRIDJOIN's selectivity, requests as disks like them.

Tuples that miss the front stage wait in one list per page, namely the page that holds their
key. A sweep goes round the master in key order and visits only pages that someone waits for,
neighbouring ones as one extent; the next extent is read while this one is joined. A page meets
all its waiters at once, and they leave: matched, or proven absent.

Waiting is bounded by one sweep: a tuple leaves at the latest when the sweep has gone round.

| component | bytes |
|---|---|
| window | capacity * (17 + record): code, link, state, free slot |
| lists | 4 per page |
| disk buffer | two extents |

No hash table over the window: page rows are sorted, so a visit sorts its waiters and finds
their rows by bisection. docs/algorithms/sweepjoin.md has the cost model and the argument.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.joins.contract import Join
from semistream.joins.front_stage import FrontStageOptions
from semistream.joins.probing import ProbingRun, Walk
from semistream.joins.run import Run
from semistream.joins.sweep_window import Groups, SweepWindow
from semistream.kernels import states
from semistream.master.pages import PageReader, PageSource

_EXTENTS = 2  # in memory: one being joined, one being read
_NO_ORDER = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class SweepJoin(FrontStageOptions, Join):
    """Sweep over the pages that someone waits for, behind a front stage.

    >>> SweepJoin(memory="50MB").name
    'sweepjoin'
    """

    front_stage: float | int | str = 0.3

    name: ClassVar[str] = "sweepjoin"

    def __post_init__(self) -> None:
        FrontStageOptions.__post_init__(self)
        Join.__post_init__(self)

    @classmethod
    def _run_class(cls) -> type[Run]:
        return SweepRun


class Ahead:
    """An extent that is being read in the background."""

    def __init__(
        self, begin: int, end: int, reader: PageReader, before: int, pages: Future[Any]
    ) -> None:
        self.begin = begin
        self.end = end
        self.reader = reader
        self.before = before  # bytes that the reader had read when it began
        self.pages = pages


class SweepRun(ProbingRun):
    _window: SweepWindow
    _window_kind = SweepWindow
    _disk_share = 32
    _disk_most = 16

    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        assert source.index is not None
        self._groups = Groups(source.index)
        self._other: PageReader | None = None
        if source.num_pages and 32 * self._reader.nbytes <= self._budget:
            self._other = source.reader(self._pages_at_once, self._direct)
        self._background = ThreadPoolExecutor(1) if self._other else None
        self._ahead: Ahead | None = None
        self._position = 0  # of the sweep: the next group
        self._tuples = np.zeros(0, np.int32)  # waiters of the extent that is being joined
        self._absent: Any = None  # those of them that matched nothing, still to go out
        self._order = _NO_ORDER
        if self._stream is not None:
            self._window.wait_for(self._groups, self._key_columns)

    def _detach(self) -> None:
        if self._background is not None:
            self._background.shutdown(wait=True)
        if self._other is not None:
            self._other.close()
        self._ahead = None
        super()._detach()

    def _disk_bytes(self) -> int:
        other = self._other.nbytes if self._other else 0
        return super()._disk_bytes() + other + self._groups.nbytes

    def _allocate(self, nbytes: int) -> None:
        super()._allocate(nbytes)
        self._window.wait_for(self._groups, self._key_columns)

    def _key_columns(self) -> list[pa.Array]:
        """The keys of the slice that is being taken in."""
        part = self._next_slice()
        keys = [part.batch.column(name) for name in self._binding.stream_key]
        return self._binding.codec.adopt(keys)

    # -- the sweep -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Go on to the next extent that someone waits for."""
        self._iteration_begins()
        if not self._source.num_pages:
            walk, begin, end = Walk(0, -1), 0, 1
        else:
            walk, begin, end = self._fetch()
        self._tuples = self._sorted(self._window.collect(begin, end))
        self._position = end
        self._walk = walk
        self._restart(walk)
        self._read_ahead()

    def _fetch(self) -> tuple[Walk, int, int]:
        """The next extent's first pages: from the background, or read now."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            begin, end = ahead.begin, ahead.end
            walk = self._walk_over(begin, end)
            count = min(self._pages_at_once, walk.last - walk.next + 1)
            self._reader, self._other = ahead.reader, self._reader
            pages = self._note_read(
                walk.next, count, ahead.pages.result, ahead.reader, ahead.before
            )
            walk.fill(pages, self._binding)
            walk.next += count
        else:
            begin, end = self._extent(self._position)
            walk = self._walk_over(begin, end)
            self._read_on(walk)
        return walk, begin, end

    def _walk_over(self, begin: int, end: int) -> Walk:
        pages = self._groups.first_page
        return Walk(int(pages[begin]), int(pages[end]) - 1)

    def _extent(self, position: int) -> tuple[int, int]:
        """Groups from the next needed one on, as long as they are needed and fit the buffer."""
        begin = self._window.next_needed(position % len(self._groups))
        pages = self._groups.first_page
        end = begin + 1
        while (
            end < len(self._groups)
            and pages[end + 1] - pages[begin] <= self._pages_at_once
            and self._window.needed(end)
        ):
            end += 1
        return begin, end

    def _read_ahead(self) -> None:
        """Let the background read the extent after this one."""
        if self._background is None or self._other is None:
            return
        if self._window.next_needed(self._position % len(self._groups)) < 0:
            return
        begin, end = self._extent(self._position)
        walk = self._walk_over(begin, end)
        count = min(self._pages_at_once, walk.last - walk.next + 1)
        before = self._other.bytes_read
        pages = self._background.submit(self._other.read, walk.next, count)
        self._ahead = Ahead(begin, end, self._other, before, pages)

    def _sorted(self, slots: Any) -> Any:
        return slots[np.argsort(self._window.codes[slots])]

    def _restart(self, walk: Walk) -> None:
        """New pages are in the buffer: all waiters meet them."""
        self._cursor = np.array([0, -1], np.int64)
        if walk.codes is not None and not self._binding.codec.exact:
            self._order = np.argsort(walk.codes, kind="stable")

    # -- joining an extent -----------------------------------------------------------------

    def _resume(self) -> None:
        walk = self._walk
        assert walk is not None
        if self._absent is not None:
            self._absent_leave()
        elif not self._source.num_pages:
            self._partition_done(walk)
        else:
            if not walk.pages:
                self._read_on(walk)
                self._restart(walk)
            super()._resume()

    def _probe(self, walk: Walk) -> bool:
        codes = walk.codes
        assert codes is not None
        exact = self._binding.codec.exact
        most = min(self._most_rows, len(self._rows))
        found = self._window.match(
            codes,
            self._order,
            self._tuples,
            self._cursor,
            exact,
            not self._binding.keeps_master,
            self._rows[:most],
            self._slots[:most],
        )
        if found:
            rows, slots = self._rows[:found], self._slots[:found]
            if not exact:
                rows, slots = self._verified(walk, rows, slots)
            self._window.count_pairs(rows, walk.counts)
            self._emit_pairs(walk, rows, slots)
        return bool(self._cursor[0] >= len(self._tuples))

    def _buffer_done(self, walk: Walk) -> None:
        self._admit_to_front_stage(walk)

    def _partition_done(self, walk: Walk) -> None:
        waiting = self._window.state[self._tuples] == states.WAITING
        self._absent = self._tuples[waiting]
        self._absent_leave()

    def _absent_leave(self) -> None:
        """Waiters whose page has passed without a match go out, one output batch at a time."""
        if len(self._absent) and self._binding.how in ("left", "left_anti"):
            some, self._absent = self._absent[: self._most_rows], self._absent[self._most_rows :]
            self._window.state[some] = states.ABSENT
            self._emit_without_match(self._window.take(some), len(some))
            if len(self._absent):
                return
        absent = int((self._window.state[self._tuples] != states.MATCHED).sum())
        self.stats.unmatched += absent
        self.stats.matched += len(self._tuples) - absent
        self._window.free(self._tuples)
        self._tuples = self._tuples[:0]
        self._absent = None
        self._walk = None
        self._iteration_ends()
