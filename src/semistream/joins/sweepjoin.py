"""SweepJoin, our own: MESHJOIN's bound, HYBRIDJOIN's selectivity, requests as disks like them.

Tuples that miss the front stage wait in one list per *stretch*, the few neighbouring pages that
hold their key. A sweep goes round the master in key order and visits only stretches that someone
waits for, and of those the pages that someone needs (and a few between them); the next visits'
pages are read while this one is joined. A page meets all its waiters at once, and they leave:
matched, or proven absent. Their rows are gathered over several visits into one output batch.

Waiting is bounded by one sweep: a tuple leaves at the latest when the sweep has gone round.

| component | bytes |
|---|---|
| window | capacity * (10 + record): code, state, lists; and 8 per chunk of tuples |
| lists | 32 per stretch |
| disk buffer | a stretch, and one for each read in flight |

No hash table over the window: page rows are sorted, so a visit sorts its waiters and walks both.
docs/algorithms/sweepjoin.md has the cost model and the argument.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from semistream.joins.contract import Join
from semistream.joins.page_map import MappedWalk
from semistream.joins.page_rows import PageColumns
from semistream.joins.probing import Walk
from semistream.joins.rows import Slots
from semistream.joins.run import Run
from semistream.joins.sweep_reads import SweepReads, Visit
from semistream.kernels import states
from semistream.master.pages import PageSource
from semistream.memory import check_part

_MANY = 8  # tuples per page: then a page that nobody needs is rare enough to be read along
_GAP = 1  # pages that nobody needs are read along if they are so few between two that are needed
_KEPT = 16  # visits whose rows are kept back, at most, to fill an output batch
_AT_ONCE = 2  # reads in flight while visits go on; a disk that does more at once is late with each
_PACE = 1536  # bytes that a disk reads while a tuple that must wait is taken in, and hits with it
_VACANCY = 8  # tuples are taken in when one slot in so many is vacant, or earlier
_NO_ORDER = np.zeros(0, np.int64)
_NO_SLOTS = np.zeros(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class SweepJoin(Join):
    """Sweep over the pages that someone waits for, behind a front stage.

    Parameters
    ----------
    front_stage
        The front stage's part of the budget: a fraction, or a size. Without it the run starts
        with 0.3, and memory moves between front stage and window to where it gains more.

    >>> SweepJoin(memory="50MB").name
    'sweepjoin'
    """

    front_stage: float | int | str | None = None

    name: ClassVar[str] = "sweepjoin"

    def __post_init__(self) -> None:
        if self.front_stage is not None:
            check_part(self.front_stage, "front_stage")
        super().__post_init__()

    @classmethod
    def _run_class(cls) -> type[Run]:
        return SweepRun


class SweepRun(SweepReads):
    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        self._visit: Visit | None = None  # that is being joined
        self._position = 0  # of the sweep: the stretch to look at next
        self._order = _NO_ORDER
        self._absent: Slots | None = None  # tuples of the visit that matched nothing
        self._absentees: list[Slots] = []  # such tuples, kept back to fill a batch
        self._partners: list[Slots] = []  # the tuples of the gathered rows
        self._served: list[Visit] = []  # whose tuples' slots go back when the batch is made
        self._served_count = 0

    def _move(self) -> None:
        self._hand_over()
        self._withdraw_offers()  # rows of the old version must not enter the front stage now
        super()._move()

    # -- taking in -------------------------------------------------------------------------

    def _admit(self) -> None:
        if not self._window.count:
            self._hand_over()  # nothing waits, so every slot can be given back
            if self._moving:
                self._move_memory()
        vacant = self._window.vacant
        self._full = not vacant
        if vacant:
            self._ask(self._ahead)
            self._admit_to(vacant, self._add)
            self._full |= self._lacks_room()
        self._pressed |= self._full
        self._most_waiting = max(self._most_waiting, self._window.count)

    def _add(self, codes: Any, columns: Any, rows: Any) -> int:
        batch = self._next_slice().batch
        keys = [batch.column(name) for name in self._binding.stream_key]
        adopted = keys if self._stretches.exact else self._binding.codec.adopt(keys)
        return self._window.add(codes, columns, rows, adopted)

    def _iteration_ends(self) -> None:
        if self._mover is not None and self._iteration_started is not None:
            self._mover.term.seconds += self._clock() - self._iteration_started[0]
        super()._iteration_ends()
        self._full = self._window.count > 0 and (self._drains or self._lacks_room())

    def _lacks_room(self) -> bool:
        """Whether visits should make more room before tuples are taken in."""
        first = self._incoming[0] if self._incoming else None
        waiting = first.batch.num_rows - first.taken if first else 0
        return self._window.vacant < min(self._enough, waiting)

    @property
    def _enough(self) -> int:
        """Tuples that make an output batch, and are taken in together: many, as batches have
        their cost, but no more than before the reads that are in flight run dry."""
        reads = max(1, self._ahead) * self._reader.nbytes
        return min(reads // _PACE, self._window.capacity // _VACANCY)

    # -- the sweep -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Go on to the next pages that someone waits for."""
        self._iteration_begins()
        if not self._visits:
            self._look_ahead()
        visit = self._visits[0]
        walk = Walk(visit.first, visit.last)
        if walk.next <= walk.last:
            walk = self._load(visit, walk)
        self._visits.popleft()
        self._visit, self._walk = visit, walk
        self._restart(walk)
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Find the visits that come next, and let the disk begin to read their pages."""
        while len(self._visits) <= self._ahead and self._find_visits():
            pass
        self._ask(_AT_ONCE)

    def _find_visits(self) -> bool:
        """Collect the tuples of the next stretch, in runs of pages that they need."""
        stretch = self._window.next_needed(self._position % len(self._stretches))
        if stretch < 0:
            return False
        if stretch < self._position:
            self._went_round()
        self._position = stretch + 1
        slots, chunks = self._window.collect(stretch)
        if not self._source.num_pages:
            self._visits.append(Visit(0, -1, slots, chunks))
            return True
        self._visits.extend(self._runs(slots, stretch))
        self._visits[-1].chunks = chunks
        return True

    def _runs(self, slots: Slots, stretch: int) -> Iterator[Visit]:
        """Visits for these tuples of a stretch, in the order of the sweep."""
        index, bounds = self._stretches.index, self._stretches.first_page
        if self._stretches.exact:
            codes = self._window.codes[slots]
            order = np.argsort(codes)
            if len(slots) > _MANY * (bounds[stretch + 1] - bounds[stretch]):
                first, last = int(bounds[stretch]), int(bounds[stretch + 1]) - 1
                yield Visit(first, last, slots[order], _NO_SLOTS)
                return
            low, high = index.locate_sortable(codes[order])
        else:
            low, high = index.locate(self._binding.codec.adopt(self._window.keys(slots)))
            order = np.argsort(low, kind="stable")
            low, high = low[order], high[order]
        slots, reached = slots[order], np.maximum.accumulate(high)
        cuts = (np.flatnonzero(low[1:] - reached[:-1] > 1 + _GAP) + 1).tolist()
        for begin, end in zip([0, *cuts], [*cuts, len(slots)], strict=True):
            yield Visit(int(low[begin]), int(reached[end - 1]), slots[begin:end], _NO_SLOTS)

    def _restart(self, walk: Walk) -> None:
        """New pages are in the buffer: all the visit's tuples meet them."""
        self._cursor = np.array([0, -1, 0], np.int64)
        if walk.codes is not None and not self._stretches.exact:
            self._order = np.argsort(walk.codes, kind="stable")

    @property
    def longest_wait(self) -> int:
        """Iterations that a tuple can wait at most: the visits of one sweep, those that were found
        ahead of it (the last ones of a whole stretch), and those whose rows are kept back to fill
        a batch."""
        visits = -(-np.diff(self._stretches.first_page) // (2 + _GAP))
        found = self._ahead + 1 + int(visits.max(initial=1))
        return max(1, int(visits.sum())) + found + _KEPT

    # -- joining a visit's pages -------------------------------------------------------------

    def _resume(self) -> None:
        walk = self._walk
        assert walk is not None
        if self._absent is not None:
            self._leave()
        elif not self._source.num_pages:
            self._partition_done(walk)
        elif isinstance(walk, MappedWalk):
            if self._probe_mapped(walk):
                self._partition_done(walk)
        else:
            if not walk.pages:
                self._read_on(walk)
                self._restart(walk)
            super()._resume()

    def _probe_mapped(self, walk: MappedWalk) -> bool:
        """Match the visit's tuples as far as there is room for their rows."""
        assert self._visit is not None
        room = self._room()
        out = self._places[:room], self._rows[:room], self._slots[:room]
        found = self._window.match_mapped(
            walk, self._visit.slots, self._cursor, not self._binding.keeps_master, out
        )
        if found:
            self._visit.found += found
            places, rows, slots = (part[:found] for part in out)
            self._note_candidates(walk, places, rows, slots)
            self._gather(walk.mapped, places, rows, slots)
        return bool(self._cursor[0] >= len(self._visit.slots))

    def _room(self) -> int:
        """Rows that can still be gathered; at least one."""
        if self._gathered.count >= self._most_rows:  # it may have shrunk: a wide tuple has come
            self._hand_over()
        return self._most_rows - self._gathered.count

    def _probe(self, walk: Walk) -> bool:
        assert walk.codes is not None
        assert self._visit is not None
        room = self._room()
        out = self._rows[:room], self._slots[:room]
        found = self._window.match(
            walk.codes,
            self._order,
            self._visit.slots,
            self._cursor,
            not self._binding.keeps_master,
            out,
        )
        if found:
            rows, slots = self._rows[:found], self._slots[:found]
            if not self._stretches.exact:
                rows, slots = self._verified(walk, rows, slots)
            self._window.count_pairs(rows, walk.counts)
            names = self._binding.master_columns
            self._gather(walk.columns(names) if names else None, *walk.places(rows), slots)
        return bool(self._cursor[0] >= len(self._visit.slots))

    def _gather(self, columns: PageColumns | None, places: Any, rows: Any, slots: Any) -> None:
        """Output rows: their master columns are copied now, their stream columns later."""
        if self._binding.how == "left_anti" or not len(rows):
            return
        if columns is not None:
            self._gathered.add(columns, places, rows)
        else:
            self._gathered.count += len(rows)
        self._partners.append(slots.copy())
        if self._gathered.count >= self._most_rows:
            self._hand_over()

    def _buffer_done(self, walk: Walk) -> None:
        self._admit_to_front_stage(walk)

    def _partition_done(self, walk: Walk) -> None:
        assert self._visit is not None
        slots = self._visit.slots
        if self._visit.found == len(slots) and isinstance(walk, MappedWalk):
            self._absent = _NO_SLOTS  # each has one row at most, so each has one
        else:
            self._absent = slots[self._window.state[slots] == states.WAITING]
        self._unmatched = len(self._absent)
        self._gone.add(self._window.codes[self._absent])
        self._leave()

    def _leave(self) -> None:
        """The visit's tuples leave; those without a match go out, too, where they are wanted."""
        assert self._visit is not None
        assert self._absent is not None
        if len(self._absent) and self._binding.how in ("left", "left_anti"):
            held = sum(len(slots) for slots in self._absentees)
            some = self._absent[: self._most_rows - held]
            self._absent = self._absent[len(some) :]
            self._absentees.append(some)
            self._window.state[some] = states.ABSENT
            if held + len(some) >= self._most_rows:
                self._hand_over()
            if len(self._absent):
                return
        slots = self._visit.slots
        self.stats.unmatched += self._unmatched
        self.stats.matched += len(slots) - self._unmatched
        self._window.count -= len(slots)
        self._served.append(self._visit)
        self._served_count += len(slots)
        if len(self._visit.chunks):
            self._age_front_stage()
        self._visit = self._walk = self._absent = None
        if self._served_count >= self._enough or len(self._served) >= _KEPT:
            self._hand_over()
        self._iteration_ends()

    def _hand_over(self) -> None:
        """Make output batches of what was gathered, and give the served tuples' slots back."""
        if self._partners:
            slots = np.concatenate(self._partners)
            self._partners = []
            columns = self._gathered.finish()
            self._emit(self._window.take(slots), columns)
        if self._absentees:
            absent = np.concatenate(self._absentees)
            self._absentees = []
            self._emit_without_match(self._window.take(absent), len(absent))
        for visit in self._served:
            self._window.free(visit.slots, visit.chunks)
        self._served.clear()
        self._served_count = 0
