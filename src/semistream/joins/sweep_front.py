"""What SweepJoin tells its front stage: rows that were asked for, and keys that are absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.joins.front_stage import FrontStage
from semistream.joins.hot_rows import HotRows
from semistream.joins.page_map import MappedWalk
from semistream.joins.rows import Rows
from semistream.joins.sweep_memory import SweepMemory
from semistream.keys import Codes, Mask


class SweepFront(SweepMemory):
    """The part of a run between its visits and its front stage."""

    def _known_absent(self, codes: Codes, rows: Rows) -> Mask | None:
        return self._gone.among(codes, rows)

    def _note_candidates(self, walk: MappedWalk, places: Any, rows: Any, slots: Any) -> None:
        """Rows that met several tuples may enter the front stage."""
        front = self._front
        if front is None:
            return
        from semistream.kernels import sweep as kernels

        first, counts = kernels.frequent(places, rows, front.threshold)
        while len(first):
            room = self._offered.most - self._offered.count
            some, first = first[:room], first[room:]
            self._offered.add(walk.mapped, places[some], rows[some])
            self._offers.append((self._window.codes[slots[some]], counts[:room]))
            counts = counts[room:]
            if self._offered.count == self._offered.most:
                self._admit_offered(front)

    def _admit_offered(self, front: FrontStage | HotRows) -> None:
        codes = np.concatenate([codes for codes, _ in self._offers])
        counts = np.concatenate([counts for _, counts in self._offers])
        columns, rows = self._offered.finish(), np.arange(len(codes))
        self._offers.clear()
        admitted, evicted = front.admit(codes, np.ones_like(rows), counts, columns, rows)
        if admitted or evicted:
            self._observer.front_stage_changed(admitted, evicted, front.count, front.threshold)
