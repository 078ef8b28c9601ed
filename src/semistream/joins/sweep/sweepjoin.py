"""SweepJoin, our own: MESHJOIN's bound, HYBRIDJOIN's selectivity, requests as disks like them::

    while true:
        admit tuples; those that miss the front stage wait        take_in
            in the list of their stretch                          StretchWindow.add
        go round the stretches in key order:                      begin
            take the tuples of the next stretches off their       Route.next_visits
                lists: a visit to the pages that they need
            request the pages of the next visits                  ReadAhead.request
            wait for the pages of this visit                      ReadAhead.load
            pair tuples with rows, copy the rows                  resume: VisitMatch.match
                offer rows that several tuples waited for         Offers.collect
                    to the front stage
            the other tuples are proven absent                    _met_all_pages
            all its tuples leave                                  _leave
        emit the rows of several visits, free their slots         VisitOutput.hand_over

A *stretch* is a few megabytes of neighbouring pages. Where many tuples wait, a visit reads one
stretch with one request or a few. Where few wait (a micro-batch that is drained, a trickle), it
reads only the pages that they need, of as many stretches as the buffer has room for. All tuples
that wait for a page are joined when it is read. Rows are gathered over several visits into one
output batch.

Waiting is bounded by one sweep: every tuple has left when the sweep has gone round once.

| component | bytes |
|---|---|
| window | capacity * (10 + record): code, state, lists; and 8 per chunk of tuples |
| lists | 24 per stretch |
| disk buffer | a stretch, and one for each read in flight |

No hash table over the window: page rows are sorted by code, so a visit sorts its waiters and walks
both. From a waiting code to the output row everything is compiled (``kernels/sweep.py``).
docs/algorithms/sweepjoin.md has the cost model and the argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from semistream.engine.front.absent_keys import AbsentKeys
from semistream.engine.front.choice import check_front_stage
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.intake import Slice
from semistream.engine.memory_mover import Limits, MemoryMover, starting_at
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.rows.layout import Rows, Slots
from semistream.engine.rows.message import FEW_ROWS
from semistream.engine.rows.page_opener import LoadedPages
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window_policy import check_tuples_fit
from semistream.joins.base import Join
from semistream.joins.sweep.growing_index import GrowingIndex
from semistream.joins.sweep.offers import Offers
from semistream.joins.sweep.plan import SweepPlan, plan_run, plan_sweep, visit_scratch
from semistream.joins.sweep.push_reserve import PushReserve
from semistream.joins.sweep.read_ahead import ReadAhead
from semistream.joins.sweep.route import Route
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.stretches import Stretches
from semistream.joins.sweep.version_switch import VersionSwitch
from semistream.joins.sweep.visit import Visit
from semistream.joins.sweep.visit_match import VisitMatch
from semistream.joins.sweep.visit_output import VisitOutput
from semistream.kernels import states
from semistream.master.delta_codes import load_kernels
from semistream.master.pages import PageSource

LIMITS = Limits(start=0.3, idle=0.85)
_NO_SLOTS = np.zeros(0, np.int32)


@dataclass(frozen=True, kw_only=True)
class SweepJoin(Join):
    """Sweep over the pages that tuples wait for, behind a front stage.

    Parameters
    ----------
    front_stage
        The front stage's part of the budget: a fraction, or a size. Default: it starts with 0.3,
        and memory moves between front stage and window to where it gains more (``adapt``).
    cache
        ``counting`` ranks cached rows by their recent hits; ``recorder`` is the papers'.

    >>> SweepJoin(memory="50MB").name
    'sweepjoin'
    """

    front_stage: float | int | str | None = None
    cache: str = "counting"

    name: ClassVar[str] = "sweepjoin"

    def __post_init__(self) -> None:
        check_front_stage(self.front_share, 1, self.cache)
        super().__post_init__()

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return plan_sweep(self, table, stream, settings, self.front_share, self.cache)

    @property
    def front_share(self) -> float | int | str:
        return LIMITS.start if self.front_stage is None else self.front_stage

    @property
    def moves_memory(self) -> bool:
        return self.cache == "counting" and self.adapts(self.front_stage is None)

    def policy(self, join: Join, parts: Parts) -> Policy:
        return Sweep(join, parts)


class Sweep(Policy):
    can_release = True
    _table: TableShape
    _absent_keys: AbsentKeys

    def __init__(self, join: Any, parts: Parts) -> None:
        super().__init__(join, parts)
        self._window: StretchWindow | None = None
        self._mover: MemoryMover | None = None
        if join.moves_memory:
            self._mover = MemoryMover(starting_at(LIMITS, join.front_stage, join.memory))
        self._served_before = 0  # tuples, when the front stage was last aged
        self._switch = VersionSwitch()
        self._index_growth = GrowingIndex(self.context.settings.index_step_share)
        self._reserve = PushReserve()
        self._visits: deque[Visit] = deque()
        self._route: Route
        self._stretches: Stretches
        self._absent_keys: AbsentKeys

    # -- versions and memory ---------------------------------------------------------------

    def attach(self, source: PageSource, table: TableShape, plan: MemoryPlan) -> None:
        assert isinstance(plan, SweepPlan)
        assert source.index is not None
        stretches = Stretches(source.index, plan.buffer_pages)
        reads = ReadAhead(self.context, source, plan)  # may fail: nothing has changed yet
        kept = self._switch.kept if self.held else 0
        visits: Iterable[Visit] = ()
        if kept and source.index is self._stretches.index:  # another version could not be attached
            kept, visits = len(stretches), map(Visit.unread, self._visits)
        elif kept:
            visits = self._switch.follow(self._visits, self._stretches, stretches)
        position = self._route.position_after(kept) if kept else 0
        if self._mover is not None and self._window is not None:
            self._mover.table_changed_from(self._table.num_rows, table.num_rows)
        self._table = table
        self._reads, self._stretches = reads, stretches
        self._visits = deque(visits)  # found ahead, in the order of the sweep
        self._visit: Visit | None = None  # that is being joined,
        self._loaded: LoadedPages | None = None  # with these pages
        self._unmatched_slots: Slots | None = None  # of its tuples that are still to go out
        self._route = Route(
            self.context,
            self._stretches,
            plan.visit_pages,
            plan.gap_pages,
            plan.dense_pages,
            position,
        )
        self._index_growth.attached(plan)
        self._stretches.extend_filters()  # of a small change, the whole one
        self._switch.done(self._stretches, waits=kept > 0)
        self.admission.attach(source)
        if self._window is not None:
            if kept:
                self._window.follow(self._stretches, kept)
                self._reserve.version_moved(self._window)
            else:
                self._window.wait_for(self._stretches)
            self._set_enough(self._window)
            self._absent_keys.forget()

    def detach(self) -> None:
        self._loaded = None
        self._reads.close()
        if self._window is not None:
            self._offers.withdraw()  # rows of this version must not enter the front stage later

    def prepare_switch(
        self, old: PageSource, new: PageSource, plan: MemoryPlan, fits: bool
    ) -> None:
        self._switch.prepare(old, new, self._stretches, plan.buffer_pages, fits)
        merging = 0 if new.index is None else new.index.bytes_to_merge
        self._index_growth.prepare(self._window, plan, merging)
        self._visits = deque(self._switch.urgent_first(self._visits))

    @property
    def awaited_pages(self) -> int:
        window = self._window
        if window is None or not self.held:
            return 0
        ends = (visit.first + visit.stretches for visit in self._visits)
        return int(self._stretches.first_page[max([1 + window.farthest(0), *ends])])

    @property
    def can_switch(self) -> bool:
        window = self._window
        if window is None or not self.held:
            return True
        has_room = window.free_chunks >= self._index_growth.chunks
        return has_room and self._switch.is_ready(window, self._visits, self._route)

    def plan(self, table: TableShape, stream: StreamShape) -> MemoryPlan:
        settings, cache, share = self.context.settings, self.join.cache, self.join.front_share
        if self._mover is not None:
            cache = "counting with a sketch" if self._mover.idle else "counting"
            share = self._mover.share
        held = 0 if self.front is None or self._is_moving else self.front.nbytes
        pages = self._stretches.pages if self.held else None
        return plan_run(self.join, table, stream, settings, share, cache, held, pages)

    @property
    def _is_moving(self) -> bool:
        return self._mover is not None and self._mover.moves

    def allocate(self, plan: MemoryPlan) -> None:
        assert isinstance(plan, SweepPlan)
        assert plan.window is not None
        assert self.intake.layout is not None
        table, self._index_growth.plan = self._table, plan
        self._index_growth.attached(plan)
        # Before rows are copied from one front stage to another: no tuple waits, and both front
        # stages beside the old window would exceed the budget.
        self._window = None
        for part in ("_visit_output", "_offers", "_matching"):  # they have it, too
            vars(self).pop(part, None)
        self.make_front_stage(plan, table, keeps_size=not self._is_moving, keeps_rows=True)
        if self._mover is not None:
            self._mover.moved()
        self._window = StretchWindow(self.intake.layout, plan.window, self._stretches)
        self._set_enough(self._window)
        self._visit_output = VisitOutput(self.context, self.output, self._window, table, plan)
        self._offers = Offers(self.context, table, plan)
        self._matching = VisitMatch(self.context, self._window, self._visit_output, self._offers)
        self.admission.absent = self._absent_keys = AbsentKeys(plan.absent_bytes)
        load_kernels()

    def gives_way(self, new: MemoryPlan) -> bool:
        return self._window is not None and self._index_growth.fits(self._window, new)

    def give_way(self, new: MemoryPlan) -> MemoryPlan:
        assert self._window is not None
        plan = self._index_growth.shrink(self._window, new, self._visits)
        self._set_enough(self._window)
        return plan

    def give_ahead(self, plan: MemoryPlan) -> MemoryPlan:
        window = self._window
        if window is None or self.busy:
            return plan
        has_moved = self._reserve.has_moved
        self._reserve.push_over(window)
        if has_moved:
            return plan  # this push has done enough
        if self._index_growth.give_ahead(window, self._visits):
            self._set_enough(window)
            plan = self._index_growth.plan
        if not self._stretches.extend_filters():
            self._stretches.merge_lists(self._index_growth.room)
        return plan

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        return self._index_growth.outgrown(plan, new)

    @property
    def wants_new_plan(self) -> bool:
        return self._is_moving or self._window is None  # the last one could not be allocated

    def memory(self) -> dict[str, int]:
        reads = self._reads
        disk = reads.nbytes + visit_scratch(self._table, reads.pages) + self._stretches.nbytes
        front = self.front.nbytes if self.front else 0
        if self._window is None:
            return {"window": 0, "front stage": 0, "disk buffer": disk, "pending output": 0}
        return {
            "window": self._window.nbytes,
            "front stage": front + self._absent_keys.nbytes + self._offers.nbytes,
            "disk buffer": disk,
            "pending output": self.output.nbytes + self._visit_output.nbytes,
            "page index": self._stretches.index.merging_bytes,
        }

    # -- taking in -------------------------------------------------------------------------

    @property
    def held(self) -> int:
        return self._window.count if self._window is not None else 0

    def take_in(self) -> None:
        window = self._window
        assert window is not None
        self._switch.kept = self._index_growth.chunks = (
            0  # a switch that was prepared did not happen
        )
        if not window.count:
            self._visit_output.hand_over()  # nothing waits, so every slot can be given back
        vacant = window.vacant
        self.full = not vacant
        began = 0.0 if self._mover is None else self.context.clock()
        if vacant:
            self._reads.request(self._visits, self._reads.ahead)
            self._reserve.added(self.admission.admit(vacant, self._add))
            self.full = self.admission.full or self._lacks_room(window)
        if self._mover is not None:
            self._mover.note_admission(self.context.clock() - began)
            self._mover.note_window(window.count, self.full)

    def check_batch(self, batch: pa.RecordBatch) -> None:
        if self._window is not None:  # else it could not be allocated
            check_tuples_fit(self.join, StretchWindow, self._window, batch)

    def _add(self, part: Slice, rows: Rows) -> int:
        assert self._window is not None
        adopt = self.context.binding.codec.adopt
        page = None
        if len(rows) <= FEW_ROWS and not self._window.layout.record.has_heap:
            page = part.addresses()
        columns = part.columns if page is None else []
        return self._window.add(
            part.codes, columns, rows, lambda some: adopt(part.keys(some)), page
        )

    def _lacks_room(self, window: StretchWindow) -> bool:
        """Whether visits should make more room before tuples are taken in."""
        return window.vacant < min(self._enough, self.intake.left)

    def _set_enough(self, window: StretchWindow) -> None:
        """Tuples that make an output batch, and are taken in together: many, as batches have
        their cost, but no more than before the reads that are in flight run dry."""
        settings, reads = self.context.settings, self._reads
        nbytes = max(1, reads.ahead) * reads.buffer_bytes
        self._enough = min(
            nbytes // settings.disk_bytes_per_miss, window.capacity // settings.vacancy
        )
        usual = window.capacity // len(self._stretches)
        self._route.most_tuples = max(
            settings.stretch_fill * usual, reads.buffer_bytes // settings.visit_bytes_per_tuple, 1
        )

    def release(self, most: int) -> pa.RecordBatch | None:
        """Tuples of the stretches to which the sweep comes last."""
        columns = None if self._window is None else self._route.release(self._window, most)
        if columns is None:
            return None
        self.full = False
        return pa.RecordBatch.from_arrays(columns, schema=self.context.binding.stream_schema)

    # -- the sweep -------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return self._visit is not None

    def begin(self) -> None:
        """Go on to the next pages that tuples wait for."""
        self.context.iteration_begins()
        assert self._window is not None
        urgent = []
        if self._switch.kept:  # a switch is near: first tuples that must be served before
            urgent = self._route.next_visits(self._window, self._switch.urgent)
        if urgent:
            self._visits.extendleft(reversed(urgent))
        elif not self._visits:
            self._look_ahead()
        visit = self._visits[0]
        self._route.find_pages(self._window, visit)
        loaded = None
        if len(visit.pages):
            # Before a switch, buffers are left to visits that are more urgent.
            following = [] if self._switch.kept else list(islice(self._visits, 1, None))
            most = self.context.settings.reads_in_flight
            loaded = self._reads.load(visit, following, most, self._window.codes)
        self._visits.popleft()
        self._visit, self._loaded = visit, loaded
        self._offers.outdated = self._switch.outdated(visit)
        if loaded is not None:
            self._matching.start(visit, loaded, self.admission.unique)
        if not self._switch.kept:
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Find the visits that come next, and let the disk begin to read their pages."""
        assert self._window is not None
        route = self._route
        route.most_pages, route.dense_pages, route.gap_pages = self._reads.visit_size
        while len(self._visits) <= self._reads.ahead:
            sweeps = self._route.sweeps
            visits = self._route.next_visits(self._window)
            if not visits:
                break
            if self._route.sweeps > sweeps:
                self._sweep_done()
            self._visits.extend(visits)
        for visit in islice(self._visits, self._reads.ahead + 1):
            self._route.find_pages(self._window, visit)
        self._reads.request(self._visits, self.context.settings.reads_in_flight)
        self._reads.plan(self._visits)

    def _sweep_done(self) -> None:
        """Perhaps memory would be of more use elsewhere."""
        if self._mover is not None and isinstance(self.front, CountingCache):
            assert self._window is not None
            self._mover.round_done(self.front, self._window, self.context.stats)

    @property
    def longest_wait(self) -> int:
        """The visits of one sweep, those that were found ahead of it, and those whose rows are
        kept back to fill a batch."""
        settings = self.context.settings
        visits = self._route.most_visits + self._reads.ahead + 2 + settings.visits_per_batch
        if self._window is not None:  # a stretch may need several
            visits += 2 * self._window.capacity // self._route.most_tuples
        return visits

    # -- joining a visit's pages -------------------------------------------------------------

    def resume(self) -> None:
        visit, loaded = self._visit, self._loaded
        assert visit is not None
        if self._unmatched_slots is not None:
            self._leave(visit)
        elif loaded is None:
            if visit.ended:
                self._met_all_pages(visit)
            else:  # one buffer of pages, or of copied rows, has not been enough
                assert self._window is not None
                self._loaded = self._reads.load(visit, codes=self._window.codes)
                self._matching.start(visit, self._loaded, self.admission.unique)
        elif self._matching.match(visit, loaded, self.front):
            self._loaded = None
            if visit.ended:
                self._met_all_pages(visit)

    def _met_all_pages(self, visit: Visit) -> None:
        """Tuples that are unmatched now are proven absent."""
        window = self._window
        assert window is not None
        if visit.found == len(visit.slots) and self.admission.unique:
            self._unmatched_slots = _NO_SLOTS  # each has one row at most, so each has one
        else:
            self._unmatched_slots = visit.slots[window.state[visit.slots] != states.MATCHED]
        self._unmatched = len(self._unmatched_slots)
        if self._unmatched and not visit.collided:  # no row has these codes
            absent = self._unmatched_slots
            if visit.refused:  # these have rows
                absent = absent[window.state[absent] == states.WAITING]
            self._absent_keys.add(self._switch.current(visit, window.codes[absent]))
        self._leave(visit)

    def _leave(self, visit: Visit) -> None:
        """The visit's tuples leave; those without a match go out, too, where ``how`` keeps them."""
        window = self._window
        assert window is not None
        assert self._unmatched_slots is not None
        if len(self._unmatched_slots):
            self._unmatched_slots = self._visit_output.add_absent(self._unmatched_slots)
            if len(self._unmatched_slots):
                return
        stats, output = self.context.stats, self._visit_output
        stats.unmatched += self._unmatched
        stats.matched += len(visit.slots) - self._unmatched
        window.leave(visit.slots)
        self._reserve.visited(window)
        output.add_served(visit)
        if self.front is not None:
            served = stats.matched + stats.unmatched
            share = visit.stretches / len(self._stretches)
            self.front.age(share, served - self._served_before)
            self._offers.visit_over(self.front)
            self._served_before = served
        self._visit = self._loaded = self._unmatched_slots = None
        if (
            output.served_tuples >= self._enough
            or self._index_growth.chunks
            or output.served_visits >= self.context.settings.visits_per_batch
        ):
            output.hand_over()
        seconds = self.context.iteration_ends()
        self._reads.visited(visit, seconds)
        drains = False
        if self._mover is not None:
            self._mover.note_seconds(seconds)
            drains = self._mover.drains
        self.full = window.count > 0 and (drains or self._lacks_room(window))

    def hand_over(self) -> None:
        if self._window is not None:
            self._visit_output.hand_over()
