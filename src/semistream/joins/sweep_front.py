"""What SweepJoin tells its front stage: rows that were asked for, and keys that are absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.joins.hot_rows import HotRows
from semistream.joins.page_map import MappedWalk
from semistream.joins.rows import Rows
from semistream.joins.sweep_memory import SweepMemory
from semistream.keys import Codes, Mask


class SweepFront(SweepMemory):
    """The part of a run between its visits and its front stage."""

    _aged_at = 0  # tuples that had been served when the front stage's counts were last aged

    def _known_absent(self, codes: Codes, rows: Rows) -> Mask | None:
        return self._gone.among(codes, rows)

    def _note_candidates(self, walk: MappedWalk, places: Any, rows: Any, slots: Any) -> None:
        """Rows that met several tuples may enter the front stage."""
        front = self._front
        if not isinstance(front, HotRows):
            return
        first, worth = front.worthy(places, rows, slots, self._window.codes)
        while len(first):
            room = self._offered.most - self._offered.count
            some, first = first[:room], first[room:]
            self._offered.add(walk.mapped, places[some], rows[some])
            self._offers.append((self._window.codes[slots[some]], worth[:room]))
            worth = worth[room:]
            if self._offered.count == self._offered.most:
                self._admit_offered(front)

    def _age_front_stage(self) -> None:
        """A stretch has been visited."""
        if isinstance(self._front, HotRows):
            served = self.stats.matched + self.stats.unmatched
            self._front.age(1 / len(self._stretches), served - self._aged_at)
            self._aged_at = served

    def _admit_offered(self, front: HotRows) -> None:
        codes = np.concatenate([codes for codes, _ in self._offers])
        worth = np.concatenate([worth for _, worth in self._offers])
        columns, rows = self._offered.finish(), np.arange(len(codes))
        self._offers.clear()
        admitted, evicted = front.admit(codes, np.ones_like(rows), worth, columns, rows)
        if admitted or evicted:
            self._observer.front_stage_changed(admitted, evicted, front.count, front.threshold)
