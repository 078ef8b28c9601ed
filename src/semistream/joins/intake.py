"""Taking in a stream: slices of batches, the front-stage phase, and rows that are ready at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.joins.binding import Binding
from semistream.joins.budget import SLICE_ROWS
from semistream.joins.front_stage import FrontStage
from semistream.joins.hot_rows import HotRows
from semistream.joins.rows import Layout, PlainColumns, Rows
from semistream.joins.run import Run
from semistream.joins.window import StreamLayout
from semistream.keys import Codes, Mask
from semistream.memory import parse_size

_AHEAD = 2  # tuples that are looked up at once, for each output row that there is room for


class Slice:
    """The part of an incoming batch that is being taken in, with its codes."""

    def __init__(self, batch: pa.RecordBatch, binding: Binding, stream: StreamLayout) -> None:
        self.batch = batch
        self.codes, self.valid = binding.stream_codes(batch)
        self.columns = stream.columns(batch)
        self.position = 0
        self._plain = PlainColumns(batch.columns) if PlainColumns.fit(batch.columns) else None

    def take(self, rows: Rows) -> Sequence[pa.Array]:
        """These rows of the batch's columns."""
        return self._plain.take(rows) if self._plain else self.batch.take(pa.array(rows)).columns

    def without_key(self, stop: int) -> Rows:
        """Rows up to ``stop`` whose key is null."""
        if self.valid is None:
            return np.zeros(0, np.int64)
        return self.position + np.flatnonzero(~self.valid[self.position : stop])


class IntakeRun(Run):
    """A run that looks tuples up in its front stage, if it has one, before they may wait."""

    _slice: Slice | None = None

    # -- taking in -------------------------------------------------------------------------

    def _next_slice(self) -> Slice:
        if self._slice is None:
            incoming = self._incoming[0]
            assert self._stream is not None
            batch = incoming.batch.slice(incoming.taken, SLICE_ROWS)
            self._slice = Slice(batch, self._binding, self._stream)
        return self._slice

    def _consume(self, stop: int) -> None:
        """Tuples of the slice before ``stop`` are taken in."""
        part, incoming = self._slice, self._incoming[0]
        assert part is not None
        incoming.taken += stop - part.position
        part.position = stop
        if stop == part.batch.num_rows:
            self._slice = None
        if incoming.taken >= incoming.batch.num_rows:
            self._incoming.popleft()
            self._slice = None

    def _admit_to(self, vacant: int, add: Callable[[Codes, Sequence[pa.Array], Rows], int]) -> int:
        """One slice's worth of the front-stage phase: hits go out, misses are ``add``-ed.

        At most ``vacant`` misses are offered; ``add`` says how many it took. Returns that.
        """
        if not self._incoming[0].batch.num_rows:
            self._incoming.popleft()
            return 0
        part = self._next_slice()
        stop, hit_rows, hit_slots, misses = self._look_up(part, vacant)
        without_key = part.without_key(stop)
        if len(without_key):
            misses = misses[part.valid[misses]]  # type: ignore[index]
        known = self._known_absent(part.codes, misses)
        if known is not None:
            without_key = np.sort(np.r_[without_key, misses[known]])
            misses = misses[~known]
        if len(without_key) > self._most_rows:  # no more rows go out at once
            stop = int(without_key[self._most_rows])
            without_key = without_key[: self._most_rows]
            misses = misses[: np.searchsorted(misses, stop)]
            hit_rows, hit_slots = _before(stop, hit_rows, hit_slots)
        added = add(part.codes, part.columns, misses) if len(misses) else 0
        if added < len(misses):
            stop = int(misses[added])
            self._full = True
            hit_rows, hit_slots = _before(stop, hit_rows, hit_slots)
            without_key = without_key[: np.searchsorted(without_key, stop)]
        self._emit_hits(part, hit_rows, hit_slots)
        self._emit_unmatched(part.batch, without_key)
        self.stats.unmatched += len(without_key)
        self._consume(stop)
        return added

    def _look_up(self, part: Slice, vacant: int) -> tuple[int, Rows, Any, Rows]:
        """(stop, hit rows, their slots, misses): the front-stage phase of 003, algorithm 3."""
        if self._front is None:
            stop = min(part.batch.num_rows, part.position + min(vacant, self._most_rows))
            empty = np.zeros(0, np.int64)
            return stop, empty, empty, np.arange(part.position, stop)
        ahead = min(part.batch.num_rows, part.position + _AHEAD * self._most_rows)
        while True:
            found = self._front.look_up(
                part.codes[:ahead],
                None if part.valid is None else part.valid[:ahead],
                part.position,
                vacant,
                self._most_rows,
                once=not self._binding.keeps_master,
            )
            if self._binding.codec.exact or not len(found.hit_rows):
                break
            false = ~self._same_as_held(part, found.hit_rows, found.hit_slots)
            if not false.any():
                break
            # Another key with the same code is cached: give it up, and look again.
            self._front.drop(np.unique(part.codes[found.hit_rows[false]]))
        return found.stop, found.hit_rows, found.hit_slots, found.miss_rows

    def _same_as_held(self, part: Slice, rows: Rows, slots: Any) -> Mask:
        assert self._front is not None
        stream = [part.batch.column(n).take(pa.array(rows)) for n in self._binding.stream_key]
        first = len(self._binding.master_columns)
        places = range(first, first + len(self._binding.master_key))
        return self._binding.codec.same(stream, self._front.rows.take(slots, places))

    def _emit_hits(self, part: Slice, rows: Rows, slots: Any) -> None:
        if not len(rows):
            return
        assert self._front is not None
        hit = len(rows) if self._source.unique else int(np.count_nonzero(np.diff(rows)) + 1)
        self.stats.front_stage_hits += hit
        self.stats.matched += hit
        if self._binding.how == "left_anti":
            return
        stream = part.take(rows)
        wanted = range(len(self._binding.master_columns))
        self._emit(stream, self._front.rows.take(slots, wanted) if wanted else [])

    # -- the front stage -------------------------------------------------------------------

    def _cached_names(self) -> list[str]:
        """The master's output columns and, where codes can collide, its key columns."""
        keys = () if self._binding.codec.exact else self._binding.master_key
        return [*self._binding.master_columns, *keys]

    def _front_share(self) -> float | int | str:
        """The front stage's part of the budget, as the join was told."""
        return getattr(self.join, "front_stage", 0.0)

    def _asked_for(self) -> int:
        value = self._front_share()
        return 0 if isinstance(value, float) else parse_size(value, "front_stage")

    def _known_absent(self, codes: Codes, rows: Rows) -> Mask | None:
        """Which of these tuples are known to match nothing, if that is kept; None for none."""
        return None

    def _new_front_stage(
        self, types: Sequence[pa.DataType], nbytes: int, variable: float
    ) -> FrontStage | HotRows:
        return FrontStage(types, nbytes, variable, getattr(self.join, "threshold", 1))

    def _make_front_stage(self) -> int:
        """Give the run its front stage, unless its share is too small for any row.

        One that the run has already stays as it is, if it fits. Returns the bytes it takes.
        """
        nbytes = self._part(self._front_share(), "front_stage")
        if self._front is not None and self._front.nbytes <= nbytes:
            return self._front.nbytes
        types = [self._source.schema.field(name).type for name in self._cached_names()]
        layout = Layout(types)
        variable = 0.0
        if layout.text or layout.nested:
            variable = max(0.0, self._source.row_bytes - layout.record.itemsize) * 1.3 + 24
        front = self._new_front_stage(types, nbytes, variable)
        self._front = front if front.capacity and front.nbytes <= nbytes else None
        return self._front.nbytes if self._front else 0


def _before(stop: int, rows: Rows, slots: Any) -> tuple[Rows, Any]:
    """Those of these hits that are before row ``stop``."""
    count = int(np.searchsorted(rows, stop))
    return rows[:count], slots[:count]
