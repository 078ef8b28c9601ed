"""The codes that a delta has changed, in memory, for all versions that have the delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from semistream.keys import Codes
from semistream.master.changed import ChangedCodes

Filter = np.ndarray[Any, np.dtype[np.uint64]]
DeltaTable = np.ndarray[Any, np.dtype[np.int64]]

_ADDED_AT_ONCE = 1 << 17  # codes, to a filter: about a millisecond
_MOST_FILTERS = 8  # of folded deltas, instead of one


class DeltaCodes:
    """Sorted ``codes``, and those of them that are ``deleted``.

    A Bloom filter tells of most other codes that the delta does not have them. Of a delta with
    very many codes it is made in steps, so that no batch has to wait for all of it; codes that it
    does not have yet are searched for. Until then the filters of the deltas that were folded into
    it, and of the change that did so, serve: together they let all its codes pass.
    """

    def __init__(self, changed: ChangedCodes, filters: Sequence[Filter] = ()) -> None:
        self.codes: Codes = changed.codes
        self.deleted: Codes = np.zeros(0, np.int64)
        if not changed.present.all():
            self.deleted = changed.codes[~changed.present]
        self._words: Filter = np.zeros(0, np.uint64)
        self._filtered = 0  # codes that the filter has
        self._others = list(filters)
        whole = self.codes if self.codes.base is None else self.codes.base  # a file's content
        filtered = 8 * filter_words(len(self.codes)) + sum(words.nbytes for words in filters)
        self.nbytes = int(whole.nbytes) + self.deleted.nbytes + filtered

    @property
    def is_filtered(self) -> bool:
        return self._filtered == len(self.codes)

    def extend_filter(self) -> None:
        """Add a bounded number of codes to the filter."""
        if self.is_filtered:
            return
        from semistream.kernels import changed_codes

        if not self._filtered:
            self._words = np.zeros(filter_words(len(self.codes)), np.uint64)
        end = min(self._filtered + _ADDED_AT_ONCE, len(self.codes))
        changed_codes.add(self.codes[self._filtered : end], self._words)
        self._filtered = end
        if end == len(self.codes):
            self._others = []

    def filters(self) -> list[Filter]:
        """Filters that let all codes pass, together; empty: there are none."""
        return [self._words] if self.is_filtered else self._others

    def rows(self, first_place: int, end_place: int) -> list[list[int]]:
        """This delta's rows in the table that kernels use (``kernels/changed_codes.py``): one for
        each filter."""
        codes, filtered = self.codes, self._filtered
        limit = int(codes[filtered - 1]) if filtered else 0
        filters = [(self._words, limit)]
        if self._others:
            filters = [(words, int(codes[-1])) for words in self._others]
        return [
            [
                codes.ctypes.data, len(codes), int(codes[0]), int(codes[-1]),
                words.ctypes.data, len(words), limit, first_place, end_place,
            ]
            for words, limit in filters
        ]  # fmt: skip


class Delta(NamedTuple):
    """A delta in one version of a table: its rows are in the pages from ``first`` to ``end``."""

    codes: DeltaCodes
    first: int
    end: int


def filter_words(codes: int) -> int:
    """12 bits for each code: 2 % of other codes pass."""
    return -(-codes * 3 // 16)


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


def filters_of_folded(folded: Sequence[DeltaCodes], change: ChangedCodes) -> list[Filter]:
    """Filters that let all codes pass of a delta into which a change has folded others; empty if
    there are none, or too many."""
    found = [delta.filters() for delta in folded]
    if not folded or not all(found) or len(change) > _ADDED_AT_ONCE:
        return []
    own = DeltaCodes(change)
    own.extend_filter()
    filters = [words for some in [*found, own.filters()] for words in some]
    return filters if len(filters) <= _MOST_FILTERS else []
