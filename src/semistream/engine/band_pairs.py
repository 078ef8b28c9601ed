"""Pairs without an equality: page rows and waiting tuples whose values are in range.

The window is kept sorted by a column of the stream that is compared with the master. Each page row
then has its candidates in one range of it, found by binary search::

    x >= low and x <= high       sorted by x: from low to high
    low <= v and v <= high       of the stream: sorted by low, from v - (widest range) to v

The ranges are a superset: every pair is checked by the conditions afterwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.binding import Binding
from semistream.engine.compared_types import compared
from semistream.engine.conditions import Comparison, Predicate, comparisons_of
from semistream.engine.disk_buffer import Scan
from semistream.engine.window.hash_window import RingWindow
from semistream.kernels import states
from semistream.master.pages import PageSource

_MARGIN = 1 + 1e-9  # for rounding: candidates may be too many, never too few
_MERGED = 2  # up to window // 2 tuples that arrived are merged into the others
_LOWER, _UPPER = (">=", ">", "=="), ("<=", "<", "==")


class Band(NamedTuple):
    """``column`` of the stream is at least ``low`` and at most ``high`` of the master, if given.

    ``other``: another column of the stream, which is at least ``high``.
    """

    column: str
    low: str | None
    high: str | None
    other: str | None = None


def band_of(binding: Binding) -> Band | None:
    """The bounds that narrow most; None if no comparison can be searched."""
    assert binding.stream_schema is not None
    usable = [
        one
        for condition in binding.conditions
        for one in comparisons_of(condition)
        if not one.is_open
        and compared(binding.stream_schema.field(one.stream).type, binding.type_of(one.master))
        == (1, 1)
    ]
    bands = [_band(column, usable) for column in dict.fromkeys(one.stream for one in usable)]
    found = [band for band in bands if band.low or band.high]
    return max(found, key=lambda band: sum(part is not None for part in band), default=None)


def _band(column: str, usable: list[Comparison]) -> Band:
    own = [one for one in usable if one.stream == column]
    low = next((one.master for one in own if one.operator in _LOWER), None)
    high = next((one.master for one in own if one.operator in _UPPER), None)
    other = None
    if low is None and high is not None:
        other = next(
            (one.stream for one in usable if one.master == high and one.operator in _LOWER), None
        )
    return Band(column, low, high, other)


def _is_whole(binding: Binding, band: Band) -> bool:
    """Whether the conditions say no more than the band."""
    if any(isinstance(condition, Predicate) for condition in binding.conditions):
        return False
    bounds = {(band.column, ">=", band.low), (band.column, "<=", band.high)}
    return all(
        (one.stream, one.operator, one.master) in bounds and not one.is_open
        for condition in binding.conditions
        for one in comparisons_of(condition)
    )


class BandPairs:
    """Finds pairs for a probe, one output batch at a time."""

    def __init__(self, binding: Binding, window: RingWindow, band: Band) -> None:
        self._band = band
        self._window = window
        self._once = not binding.keeps_master
        self._is_whole = _is_whole(binding, band)
        self.is_exact = False  # every pair that was found passes the conditions
        self._held: tuple[int, int] | None = None  # the tuples that are sorted
        self._slots: Any = None
        self._values: Any = None
        self._widest: Any = 0
        self._begins: Any = None  # of each page row's candidates
        self._ends: Any = None

    def find(self, scan: Scan, rows: Any, slots: Any) -> tuple[Any, Any]:
        """Rows and slots of the next pairs, in these arrays if they fit; moves the cursor."""
        if scan.cursor[0] == 0 and scan.cursor[1] < 0:
            self._sort()
            self._search(scan)
        found = kernels.order.expand(
            self._begins, self._ends, self._slots, scan.cursor, rows, slots
        )
        rows, slots = rows[:found], slots[:found]
        if self._once:
            waits = self._window.state[slots] != states.MATCHED
            rows, slots = rows[waits], slots[waits]
        return rows, slots

    def needed(self, source: PageSource, first: int, last: int) -> Any:
        """Of these pages those that can have a row in range, by the page index; None: all may.

        Where the condition is on the key, the first keys of a page and of the next one are bounds
        of its rows.
        """
        index, band = source.index, self._band
        if index is None or not index.by_code or index.has_changes or len(source.key) != 1:
            return None  # rows of deltas are hidden page by page, from the first to the last
        if not source.can_address:
            return None
        key, kind = source.key[0], source.schema.field(source.key[0]).type
        if key not in (band.low, band.high) or not _is_its_code(kind):
            return None
        self._sort()
        if self._values.dtype != np.int64:
            return None
        lows, total = index.firsts[first : last + 1], len(self._values)
        highs = np.append(index.firsts, np.iinfo(np.int64).max)[first + 1 : last + 2]
        begins, ends = np.zeros(len(lows), np.int64), np.full(len(lows), total)
        if band.low == key:
            begins = _places(self._values, lows)
        if band.high == key:
            ends = _places(self._values, highs, after=True)
            if band.other and not band.low:
                begins = _places(self._values, _less(lows, self._widest))
        needed = ends > begins
        return None if needed.all() else first + np.flatnonzero(needed)

    def _sort(self) -> None:
        """Sort the tuples that wait; most of them were sorted before."""
        window, held = self._window, self._window.place
        if held == self._held:
            return
        arrived = held[0] - self._held[0] if self._held is not None else window.count
        before, self._held = self._held, None
        if before is None or _MERGED * arrived > window.count:
            self._slots = self._values = None  # free the old order first
            self._widest = 0
            self._slots, self._values = self._sorted(window.oldest(window.count))
        else:
            new = self._sorted(window.newest(arrived))
            first, kept = window.first, window.count - arrived
            self._slots, self._values = kernels.order.merge_arrived(
                self._slots, self._values, first, window.capacity, kept, *new
            )
        self._held = held

    def _sorted(self, slots: Any) -> tuple[Any, Any]:
        """These slots and their values, in the order of the values, without nulls."""
        window, band = self._window, self._band
        names = [band.column, *([band.other] if band.other else [])]
        columns = window.layout.some(names, window.rows, slots, window.codes[slots])
        valid = np.logical_and.reduce([_valid(column) for column in columns])
        values = [_numbers(column) for column in columns]
        if not valid.all():
            slots, values = slots[valid], [some[valid] for some in values]
        if band.other and len(slots) and self._widest is not None:
            widest = _widest(values[0], values[1])
            self._widest = None if widest is None else max(widest, self._widest)
        sorted_by = values[0]
        del columns, values  # the second column is not needed any more
        order = np.argsort(sorted_by, kind="stable")
        return slots[order], sorted_by[order]

    def _search(self, scan: Scan) -> None:
        band, count, total = self._band, len(scan.codes), len(self._values)
        self._begins, self._ends = np.zeros(count, np.int64), np.full(count, total, np.int64)
        names = list(dict.fromkeys(name for name in (band.low, band.high) if name))
        every = np.arange(count)
        taken = dict(zip(names, scan.take(every, names), strict=True))
        fine = np.ones(count, np.bool_) if scan.valid is None else scan.valid.copy()
        for column in taken.values():
            if column.null_count:
                fine &= _valid(column)
        numbers = {name: _numbers(column) for name, column in taken.items()}
        if band.low:
            self._begins = _places(self._values, numbers[band.low])
        if band.high:
            high = numbers[band.high]
            self._ends = _places(self._values, high, after=True)
            if band.other and not band.low:
                self._begins = _places(self._values, _less(high, self._widest))
        self._ends = np.where(fine, self._ends, self._begins)
        # Whole numbers sort as they compare; others are rounded.
        searched = (self._values, *numbers.values())
        self.is_exact = self._is_whole and all(some.dtype == np.int64 for some in searched)


def _is_its_code(kind: pa.DataType) -> bool:
    """Whether the code of a key is its number."""
    types = pa.types
    return bool(types.is_signed_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind))


def _places(values: Any, sought: Any, after: bool = False) -> Any:
    if values.dtype != sought.dtype or (sought.dtype == np.float64 and np.isnan(sought).any()):
        return np.searchsorted(values, sought, side="right" if after else "left")
    return kernels.order.places_of(values, sought, after)


def _numbers(column: pa.Array) -> Any:
    """Integers as int64, others as float64; a null's number is arbitrary."""
    kind, is_float = column.type, pa.types.is_floating(column.type)
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    column = column.cast(pa.float64() if is_float else pa.int64())
    return (column.fill_null(0) if column.null_count else column).to_numpy()


def _valid(column: pa.Array) -> Any:
    return column.is_valid().to_numpy(zero_copy_only=False)


def _widest(low: Any, high: Any) -> Any:
    """The largest ``high - low``, at least 0; None if it overflows."""
    with np.errstate(invalid="ignore"):  # both are infinite
        widths = high - low
    if widths.dtype == np.float64:
        return max(0.0, float(np.nan_to_num(widths).max())) * _MARGIN
    if bool(np.any(((high ^ low) & (widths ^ high)) < 0)):
        return None
    return max(0, int(widths.max()))


def _less(values: Any, step: Any) -> Any:
    """At most ``values - step``, without overflow; the least number if there is no step."""
    if values.dtype == np.float64:
        with np.errstate(invalid="ignore"):  # infinite values: every tuple is a candidate
            found = values - step - np.abs(values) * (_MARGIN - 1)
        return np.where(np.isnan(found), -np.inf, found)
    least = np.iinfo(np.int64).min
    if step is None:
        return np.full(len(values), least)
    return np.where(values < least + step, least, values - step)
