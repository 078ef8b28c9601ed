"""A window whose tuples wait in one list per group of pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.joins.rows import Rows, Slots
from semistream.joins.window import StreamLayout, Window
from semistream.keys import Codes
from semistream.master.index import PageIndex


class Groups:
    """Pages of the master in groups that no key crosses: single pages, nearly always."""

    def __init__(self, index: PageIndex) -> None:
        starts = np.flatnonzero(~np.r_[False, index.continues[:-1]])[: len(index.continues)]
        pages = np.r_[starts, len(index.continues)].astype(np.int64)
        self.first_page = pages if len(starts) else np.zeros(2, np.int64)  # one group of nothing
        self._index = index
        self._exact = index.codec.exact
        self.firsts = index.firsts[starts] if self._exact else None

    def __len__(self) -> int:
        return len(self.first_page) - 1

    @property
    def nbytes(self) -> int:
        return 8 * len(self.first_page) * 2 + 4 * len(self)

    def of(self, codes: Codes, rows: Rows, columns: Sequence[pa.Array]) -> Any:
        """The group of each of these tuples."""
        if not len(self._index.continues):
            return np.zeros(len(rows), np.int32)
        if self._exact:
            from semistream.kernels import sweep as kernels

            groups = np.empty(len(rows), np.int32)
            kernels.locate(codes, rows, self.firsts, groups)
            return groups
        taken = pa.array(rows)
        low, _ = self._index.locate([column.take(taken) for column in columns])
        return (np.searchsorted(self.first_page, low, side="right") - 1).astype(np.int32)


class SweepWindow(Window):
    """Slots, rows, and for every group of pages the list of tuples that wait for it."""

    slot_bytes = 8 + 4 + 1 + 4  # code, link, state, free slot

    def __init__(self, stream: StreamLayout, nbytes: int, variable_bytes: float) -> None:
        self._lay_out(stream, nbytes, variable_bytes)
        self.codes = np.empty(self.capacity, np.int64)
        self.state = np.empty(self.capacity, np.uint8)
        self._following = np.empty(self.capacity, np.int32)
        self._free = np.arange(self.capacity, dtype=np.int32)[::-1].copy()
        self._free_count = self.capacity
        self._first = np.zeros(0, np.int32)

    def wait_for(self, groups: Groups, key_columns: Any) -> None:
        """Start with empty lists for these groups."""
        self._groups = groups
        self._key_columns = key_columns
        self._first = np.full(len(groups), -1, np.int32)

    def add(self, codes: Codes, columns: Sequence[pa.Array], rows: Rows) -> int:
        """Admit as many of these tuples as fit; returns how many."""
        from semistream.kernels import sweep as kernels

        fit = self.rows.room(columns, rows[: self.vacant])
        if fit:
            rows = rows[:fit]
            self._free_count -= fit
            slots = self._free[self._free_count : self._free_count + fit][::-1].copy()
            self.rows.put(columns, rows, slots)
            groups = self._groups.of(codes, rows, self._key_columns())
            kernels.insert(
                codes, rows, slots, groups, self._first, self._following, self.codes, self.state
            )
            self.count += fit
        return fit

    def next_needed(self, group: int) -> int:
        """The first group from this one on, going round, that someone waits for; -1 for none."""
        from semistream.kernels import sweep as kernels

        return int(kernels.next_needed(group, self._first))

    def needed(self, group: int) -> bool:
        return bool(self._first[group] >= 0)

    def collect(self, begin: int, end: int) -> Slots:
        """All tuples that wait for groups ``begin`` to ``end - 1``; the lists are then empty."""
        from semistream.kernels import sweep as kernels

        total = kernels.count_waiters(begin, end, self._first, self._following)
        slots = np.empty(total, np.int32)
        kernels.collect(begin, end, self._first, self._following, slots)
        return slots

    def match(
        self,
        page_codes: Codes,
        order: Any,
        slots: Slots,
        cursor: Any,
        mark: bool,
        once: bool,
        rows: Any,
        pairs: Any,
    ) -> int:
        """Pair these tuples with page rows; see the kernel."""
        from semistream.kernels import sweep as kernels

        return int(
            kernels.match(
                page_codes,
                order,
                slots,
                cursor,
                mark,
                once,
                self.codes,
                self.state,
                rows,
                pairs,
            )
        )

    def free(self, slots: Slots) -> None:
        """These tuples leave."""
        self.rows.free(slots)
        self._free[self._free_count : self._free_count + len(slots)] = slots
        self._free_count += len(slots)
        self.count -= len(slots)
