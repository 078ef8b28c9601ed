"""The codes that a delta has changed, in memory, for all versions that have the delta.

A delta into which a change has folded others has the codes of all of them. A run that follows the
versions has their lists in memory: it shares them, and reads only the list of the change itself.
Otherwise the push in which it moves to a fold of a million codes would have to read as many. Later
pushes merge the lists in steps (``master/code_list.py``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from semistream.keys import Codes, Mask
from semistream.keys.distinct import distinct
from semistream.master.changed import ChangedCodes, contains
from semistream.master.code_list import CodeList, MergedList

DeltaTable = np.ndarray[Any, np.dtype[np.int64]]

_MOST_LISTS = 16  # of folded deltas, instead of one
_NO_CODES: Codes = np.zeros(0, np.int64)


class DeltaCodes:
    """All codes of a delta, in one list or several, and those of them that are ``deleted``.

    Versions of several runs may share it: ``lists`` is replaced, never changed.
    """

    def __init__(self, changed: ChangedCodes, name: str = "") -> None:
        self.lists: tuple[CodeList, ...] = ()
        if len(changed):
            self.lists = (CodeList(changed.codes, name),)
        self.deleted: Codes = _NO_CODES
        if not changed.present.all():
            self.deleted = changed.codes[~changed.present]
        self._merged: MergedList | None = None
        self._lock = threading.Lock()

    @classmethod
    def of_fold(cls, folded: Sequence[DeltaCodes], change: DeltaCodes) -> DeltaCodes | None:
        """The codes of a delta into which a change has folded others, oldest first; None if they
        would be in too many lists."""
        lists = tuple(one for delta in (*folded, change) for one in delta.lists)
        if len(lists) > _MOST_LISTS:
            return None
        whole = cls(ChangedCodes(_NO_CODES, np.zeros(0, np.bool_)))
        whole.lists = lists
        whole.deleted = deleted_by([*folded, change])
        return whole

    def __len__(self) -> int:
        """At least as many as there are codes: two lists may have the same."""
        return sum(len(one.codes) for one in self.lists)

    @property
    def codes(self) -> Codes:
        """All codes, sorted; a copy if there are several lists."""
        if len(self.lists) == 1:
            return self.lists[0].codes
        every: Codes = distinct(np.concatenate([_NO_CODES, *(one.codes for one in self.lists)]))
        return every

    def contains(self, codes: Codes) -> Mask:
        """Which of these codes the delta has changed."""
        found = np.zeros(len(codes), np.bool_)
        for one in self.lists:
            found |= contains(one.codes, codes)
        return found

    @property
    def nbytes(self) -> int:
        merged = 0 if self._merged is None else self._merged.nbytes
        return sum(one.nbytes for one in self.lists) + self.deleted.nbytes + merged

    @property
    def is_filtered(self) -> bool:
        return all(one.is_filtered for one in self.lists)

    @property
    def bytes_to_merge(self) -> int:
        """Memory that merging the two smallest lists takes, until they are released; 0 if there
        is one, or if merging has begun."""
        if len(self.lists) < 2 or self._merged is not None:
            return 0
        return MergedList.bytes_for(sum(len(one.codes) for one in self._smallest()))

    @property
    def bytes_to_merge_all(self) -> int:
        """What the last of these steps takes, in which all codes become one list."""
        return MergedList.bytes_for(len(self)) if len(self.lists) > 1 else 0

    def extend_filter(self) -> None:
        """Add a bounded number of codes to the filter of a list."""
        one = next((one for one in self.lists if not one.is_filtered), None)
        if one is not None:
            one.extend_filter()

    def merge(self) -> None:
        """Merge a bounded number of codes of the two smallest lists, which one list replaces when
        all are merged."""
        with self._lock:
            if len(self.lists) < 2:
                return
            some = self._smallest()
            if self._merged is None:
                self._merged = MergedList([one.codes for one in some])
            if self._merged.extend():
                others = (one for one in self.lists if one not in some)
                self.lists = (*others, self._merged.whole())
                self._merged = None

    def _smallest(self) -> list[CodeList]:
        return sorted(self.lists, key=lambda one: len(one.codes))[:2]

    def rows(self, first_place: int, end_place: int) -> list[list[int]]:
        """This delta's rows in the table that kernels use: one for each list."""
        return [one.row(first_place, end_place) for one in self.lists]


class Delta(NamedTuple):
    """A delta in one version of a table: its rows are in the pages from ``first`` to ``end``."""

    codes: DeltaCodes
    first: int
    end: int


def deleted_by(deltas: Iterable[DeltaCodes]) -> Codes:
    """The codes that the newest delta which has them has deleted; oldest delta first."""
    found = _NO_CODES
    for delta in deltas:
        if len(found):
            found = found[~delta.contains(found)]
        if len(delta.deleted):
            found = distinct(np.concatenate([found, delta.deleted]))
    return found


def table_of(deltas: Iterable[list[list[int]]]) -> DeltaTable:
    """The rows of each delta, oldest first, as a table for kernels: the newest first."""
    from semistream.kernels.changed_codes import COLUMNS

    rows = [row for delta in deltas for row in delta]
    return np.array(rows[::-1], np.int64).reshape(len(rows), COLUMNS)


def load_kernels() -> None:
    """Load them when a run begins, and not in the push of the first change: that takes 0.1 s."""
    from semistream.kernels import changed_codes

    none = np.zeros(0, np.int64)
    changed_codes.find_all(none, table_of([]), none)
    changed_codes.add(none, np.zeros(1, np.uint64))
