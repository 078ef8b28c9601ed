"""A sorted list of changed codes in memory, with a Bloom filter in front of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from semistream.keys import Codes
from semistream.keys.distinct import distinct

Filter = np.ndarray[Any, np.dtype[np.uint64]]

# Codes, for about a millisecond:
_ADDED_AT_ONCE = 1 << 17  # to a filter
_MERGED_AT_ONCE = 1 << 16


class CodeList:
    """Sorted ``codes``; ``name``: of their file, empty if they are not the content of one.

    A Bloom filter tells of most other codes that the list does not have them. Of a list with very
    many codes it is made in steps, so that no batch has to wait for all of it; codes that it does
    not have yet are searched for.
    """

    def __init__(self, codes: Codes, name: str = "") -> None:
        self.codes = codes
        self.name = name
        self._words: Filter = np.zeros(0, np.uint64)
        self._filtered = 0  # codes that the filter has
        self._lock = threading.Lock()  # deltas of several runs may have the list
        whole = codes if codes.base is None else codes.base  # a file's content
        self.nbytes = int(whole.nbytes) + 8 * filter_words(len(codes))

    @property
    def is_filtered(self) -> bool:
        return self._filtered == len(self.codes)

    def extend_filter(self) -> None:
        """Add a bounded number of codes to the filter."""
        from semistream.kernels import changed_codes

        with self._lock:
            if not self._filtered:
                self._words = np.zeros(filter_words(len(self.codes)), np.uint64)
            end = min(self._filtered + _ADDED_AT_ONCE, len(self.codes))
            changed_codes.add(self.codes[self._filtered : end], self._words)
            self._filtered = end

    def row(self, first_place: int, end_place: int) -> list[int]:
        """The list's row in the table that kernels use (``kernels/changed_codes.py``)."""
        codes, words, filtered = self.codes, self._words, self._filtered
        limit = int(codes[filtered - 1]) if filtered else 0
        return [
            codes.ctypes.data, len(codes), int(codes[0]), int(codes[-1]),
            words.ctypes.data, len(words), limit, first_place, end_place,
        ]  # fmt: skip


class MergedList:
    """Sorted lists as one, with its filter; made in steps, so that no batch waits for it."""

    def __init__(self, lists: Sequence[Codes]) -> None:
        total = sum(map(len, lists))
        self._lists = list(lists)  # what is still to be merged of each
        self._codes: Codes = np.empty(total, np.int64)
        self._words: Filter = np.zeros(filter_words(total), np.uint64)
        self._count = 0
        self.nbytes = self.bytes_for(total)

    @staticmethod
    def bytes_for(total: int) -> int:
        return 8 * (total + filter_words(total))

    def extend(self) -> bool:
        """Merge a bounded number of codes; returns whether all are merged."""
        from semistream.kernels import changed_codes

        if self._lists:
            most = max(1, _MERGED_AT_ONCE // len(self._lists))  # of one list
            bound = min(int(codes[:most][-1]) for codes in self._lists)
            ends = [int(np.searchsorted(codes, bound, side="right")) for codes in self._lists]
            parts = [codes[:end] for codes, end in zip(self._lists, ends, strict=True)]
            merged = distinct(np.concatenate(parts))
            changed_codes.add(merged, self._words)
            self._codes[self._count : self._count + len(merged)] = merged
            self._count += len(merged)
            rest = (codes[end:] for codes, end in zip(self._lists, ends, strict=True))
            self._lists = [codes for codes in rest if len(codes)]
        return not self._lists

    def whole(self) -> CodeList:
        """The list, after the last step."""
        found = CodeList(self._codes[: self._count])
        found.nbytes, found._words, found._filtered = self.nbytes, self._words, self._count
        return found


def filter_words(codes: int) -> int:
    """12 bits for each code: 2 % of other codes pass."""
    return -(-codes * 3 // 16)
