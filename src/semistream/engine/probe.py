"""Probes pages against a window: joins every row with all tuples that wait for its key."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream import kernels
from semistream.engine.band_pairs import BandPairs, band_of
from semistream.engine.binding import Binding
from semistream.engine.context import Context
from semistream.engine.disk_buffer import Scan
from semistream.engine.key_match import KeyMatch
from semistream.engine.output import Output
from semistream.engine.window.hash_window import HashWindow, RingWindow
from semistream.kernels import states
from semistream.master.pages import PageSource


def _band_pairs(binding: Binding, window: HashWindow) -> BandPairs | None:
    """Finds pairs by range, where there is no key to find them by."""
    if binding.has_key or not isinstance(window, RingWindow):
        return None
    band = band_of(binding)
    return None if band is None else BandPairs(binding, window, band)


class Probe:
    """Pairs page rows with waiting tuples, one output batch at a time."""

    def __init__(self, context: Context, output: Output, window: HashWindow, rows: int) -> None:
        self._context = context
        self._output = output
        self._window = window
        self._rows = np.empty(rows, np.int32)
        self._slots = np.empty(rows, np.int32)
        self._key_match: KeyMatch | None = None  # where codes are hashes
        self._filter = context.binding.pair_filter()
        self._band = _band_pairs(context.binding, window)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._slots.nbytes

    def needed_pages(self, source: PageSource, first: int, last: int) -> Any:
        """Of these pages those that tuples may match; None: all."""
        return None if self._band is None else self._band.needed(source, first, last)

    def advance(self, scan: Scan) -> bool:
        """Probe rows of the buffer until an output batch is full; True when all were probed.

        Tuples that match are marked in ``window.state``: by the kernel where codes are exact, else
        by ``_verified``. They stay in the window.
        """
        binding, window = self._context.binding, self._window
        exact = binding.exact
        most = min(self._output.most_rows, len(self._rows))
        before = scan.cursor.copy()
        if self._band is not None:
            rows, slots = self._band.find(scan, self._rows[:most], self._slots[:most])
            found = len(rows)
        else:
            found = window.probe(
                scan.codes,
                scan.valid,
                scan.cursor,
                exact,
                not binding.keeps_master,
                self._rows[:most],
                self._slots[:most],
            )
            rows, slots = self._rows[:found], self._slots[:found]
        if found:
            if not exact:
                try:
                    rows, slots = self._verified(scan, rows, slots)
                except BaseException:  # of a predicate: the next call finds the same pairs
                    scan.cursor[:] = before
                    raise
            kernels.window.count_pairs(rows, scan.counts)
            if binding.how != "left_anti" and len(rows):
                names = binding.master_columns
                self._output.emit(window.take(slots), scan.take(rows, names) if names else [])
        return bool(scan.cursor[0] >= len(scan.codes))

    def _verified(self, scan: Scan, rows: Any, slots: Any) -> tuple[Any, Any]:
        """Keep the pairs whose keys, not only their codes, are equal, and that pass the conditions;
        mark their tuples."""
        binding, window = self._context.binding, self._window
        if not binding.codec.exact:
            self._key_match = self._key_match or KeyMatch(binding)
            columns, wanted = scan.columns(binding.master_key), window.layout.key_places
            same = self._key_match.same(window.rows, wanted, slots, columns, *scan.places(rows))
            if same is not None:
                rows, slots = rows[same], slots[same]
        if self._filter is not None and not (self._band is not None and self._band.is_exact):
            columns = scan.columns(binding.condition_columns)
            passed = self._filter.waiting(window, slots, columns, *scan.places(rows))
            if passed is not None:
                rows, slots = rows[passed], slots[passed]
        if not binding.keeps_master:  # each tuple once
            slots, first = np.unique(slots, return_index=True)
            rows = rows[first]
        window.state[slots] = states.MATCHED
        return rows, slots
