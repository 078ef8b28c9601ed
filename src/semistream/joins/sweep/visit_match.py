"""Pairs the tuples of a visit with the rows of its pages, as far as the output has room."""

from __future__ import annotations

import numpy as np

from semistream import kernels
from semistream.engine.context import Context
from semistream.engine.disk_buffer import Scan
from semistream.engine.front.contract import FrontStage
from semistream.engine.probe import verified
from semistream.joins.sweep.offers import Offers
from semistream.joins.sweep.page_map import MappedScan
from semistream.joins.sweep.read_ahead import Visit
from semistream.joins.sweep.stretch_window import StretchWindow
from semistream.joins.sweep.visit_output import VisitOutput

_NO_ORDER = np.zeros(0, np.int64)


class VisitMatch:
    """Page rows and waiting tuples are both sorted, so one walk over both finds all pairs."""

    def __init__(
        self, context: Context, window: StretchWindow, output: VisitOutput, offers: Offers
    ) -> None:
        self._context = context
        self._window = window
        self._output = output
        self._offers = offers

    def start(self, scan: Scan | MappedScan, exact: bool) -> None:
        """New pages are in the buffer: all tuples of the visit are compared with them."""
        self._exact = exact
        self._cursor = np.array([0, -1, 0], np.int64)
        self._order = _NO_ORDER
        if not scan.mapped and not exact:
            self._order = np.argsort(scan.codes, kind="stable")

    def match(self, visit: Visit, scan: Scan | MappedScan, front: FrontStage | None) -> bool:
        """Output the next pairs; returns whether there are no more of them in these pages."""
        if scan.mapped:
            self._match_mapped(visit, scan, front)
        else:
            self._match_parsed(visit, scan)
        return bool(self._cursor[0] >= len(visit.slots))

    def _match_mapped(self, visit: Visit, scan: MappedScan, front: FrontStage | None) -> None:
        output, room = self._output, self._output.room()
        out = output.places[:room], output.rows[:room], output.slots[:room]
        once = not self._context.binding.keeps_master
        found = self._window.match_mapped(scan, visit.slots, self._cursor, once, out)
        if found:
            visit.found += found
            places, rows, slots = (part[:found] for part in out)
            if front is not None:
                self._offers.collect(front, self._window, scan, places, rows, slots)
            output.add(scan.columns, places, rows, slots)

    def _match_parsed(self, visit: Visit, scan: Scan) -> None:
        output, room = self._output, self._output.room()
        out = output.rows[:room], output.slots[:room]
        binding, window = self._context.binding, self._window
        names, once = binding.master_columns, not binding.keeps_master
        found = window.match(scan.codes, self._order, visit.slots, self._cursor, once, out)
        if found:
            rows, slots = out[0][:found], out[1][:found]
            if not self._exact:
                rows, slots = verified(self._context, scan, window, rows, slots)
            kernels.window.count_pairs(rows, scan.counts)
            output.add(scan.columns(names) if names else None, *scan.places(rows), slots)
