"""Pairs the tuples of a visit with the rows of its pages, as far as the output has room."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream import kernels
from semistream.engine.context import Context
from semistream.engine.front.contract import FrontStage
from semistream.engine.key_match import KeyMatch
from semistream.engine.rows.page_opener import LoadedPages
from semistream.joins.sweep.offers import Offers
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.visit import Visit
from semistream.joins.sweep.visit_output import VisitOutput
from semistream.kernels import states
from semistream.keys import Mask

_LEAST_ROOM = 8  # where conditions leave few of the pairs, look for batch // 8 of them at least


class VisitMatch:
    """Page rows and waiting tuples are both sorted by code, so one walk finds all pairs."""

    def __init__(
        self, context: Context, window: StretchWindow, output: VisitOutput, offers: Offers
    ) -> None:
        binding = context.binding
        self._window = window
        self._output = output
        self._offers = offers
        hashed = not binding.codec.exact
        self._exact = binding.exact
        self._once = not binding.keeps_master
        self._takes_one_row = binding.takes_one_row
        self._key_match = KeyMatch(binding) if hashed else None
        self._key_places = window.layout.key_places if hashed else []
        self._filter = binding.pair_filter()
        self._cursor = np.zeros(3, np.int64)

    def start(self, visit: Visit, loaded: LoadedPages, distinct: bool) -> None:
        """New pages are in the buffer: all tuples of the visit are compared with them.

        ``distinct``: every key has one row at most.
        """
        self._distinct = distinct
        self._cursor[:] = loaded.first_tuple, 0, -1
        self._is_part = False
        if loaded.is_copied:  # a part has all rows of its tuples
            self._places = np.zeros(len(visit.slots), np.int32)
            return
        before = visit.done - len(loaded.pages)
        self._places = visit.places
        if before or not visit.ended:
            self._is_part = True
            self._places = np.clip(visit.places - before, 0, len(loaded.pages) - 1)

    def match(self, visit: Visit, loaded: LoadedPages, front: FrontStage | None) -> bool:
        """Output the next pairs; returns whether there are no more of them in these pages."""
        output, window = self._output, self._window
        room = output.room(_LEAST_ROOM if self._filter is not None else None)
        before = self._cursor.copy()
        out = output.places[:room], output.rows[:room], output.slots[:room]
        found = kernels.sweep.match(
            loaded.pages, loaded.codes, loaded.sizes, visit.slots, self._places, self._cursor,
            self._once, self._exact, window.codes, window.state, *out,
        )  # fmt: skip
        if found:
            places, rows, slots = (part[:found] for part in out)
            if self._key_match is not None:
                places, rows, slots = self._verified(visit, loaded, places, rows, slots)
            passed = None
            if self._filter is None:
                visit.found += len(slots)
            else:
                try:
                    assert loaded.conditions is not None
                    passed = self._filter.waiting(window, slots, loaded.conditions, places, rows)
                except BaseException:  # of a predicate: the next call finds the same pairs
                    self._cursor[:] = before
                    raise
            if front is not None:
                whole = self._whole_keys(visit, slots, before)
                self._offers.collect(
                    front, window, loaded, places[whole], rows[whole], slots[whole]
                )
            if self._filter is not None:
                places, rows, slots = self._passing(visit, passed, places, rows, slots)
            output.add(loaded.columns, places, rows, slots)
        return bool(self._cursor[0] >= len(visit.slots))

    def _whole_keys(self, visit: Visit, slots: Any, before: Any) -> slice:
        """The pairs of tuples that have met all rows of their key: a front stage caches whole
        keys."""
        if self._distinct or self._takes_one_row or not len(slots):
            return slice(None)
        if self._is_part:  # a key may go on in pages that are not loaded
            return slice(0, 0)
        # A call of the kernel may begin and end within the pairs of a tuple. Any other tuple has
        # met all rows of its key, also if its key has more tuples than one output batch has rows.
        first, last = 0, len(slots)
        if before[2] >= 0:
            first = _leading(slots, visit.slots[before[0]])
        if self._cursor[2] >= 0:
            last -= _leading(slots[::-1], visit.slots[self._cursor[0]])
        return slice(first, last)

    def _verified(
        self, visit: Visit, loaded: LoadedPages, places: Any, rows: Any, slots: Any
    ) -> tuple[Any, Any, Any]:
        """The pairs whose keys, not only their codes, are equal; their tuples are marked."""
        assert self._key_match is not None
        assert loaded.keys is not None
        same = self._key_match.same(
            self._window.rows, self._key_places, slots, loaded.keys, places, rows
        )
        if same is not None:
            visit.collided = True
            places, rows, slots = places[same], rows[same], slots[same]
        return (
            (places, rows, slots) if self._filter is not None else self._mark(places, rows, slots)
        )

    def _passing(
        self, visit: Visit, passed: Mask | None, places: Any, rows: Any, slots: Any
    ) -> tuple[Any, Any, Any]:
        """The pairs that pass the conditions; their tuples are marked."""
        if passed is None:
            visit.found += len(slots)
            return self._mark(places, rows, slots)
        kept = kernels.sweep.keep_passing(
            passed, self._once, self._window.state, places, rows, slots
        )
        visit.found += kept
        visit.refused = True
        return places[:kept], rows[:kept], slots[:kept]

    def _mark(self, places: Any, rows: Any, slots: Any) -> tuple[Any, Any, Any]:
        """Mark matched tuples; without master columns, each has one pair."""
        if self._once:
            first = np.r_[True, slots[1:] != slots[:-1]][: len(slots)]
            places, rows, slots = places[first], rows[first], slots[first]
        self._window.state[slots] = states.MATCHED
        return places, rows, slots


def _leading(slots: Any, slot: int) -> int:
    """How many slots from the first on are this one."""
    others = np.flatnonzero(slots != slot)
    return int(others[0]) if len(others) else len(slots)
