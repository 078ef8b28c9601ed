"""Counts and sums of key hashes, by range of the hash: computed alike here and in the database.

Keys are compared range by range without transferring them; only ranges that differ are read. The
hash of one integer key is computed with arithmetic, that of other keys from the MD5 of their text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.keys import int64_view
from semistream.master.sql_dialects import Column, Dialect

_MODULUS = 2_147_483_647  # a prime; with the multiplier, products stay below 2**47
_MULTIPLIER = 48_271
_SEPARATOR = 31  # between the parts of a composite key
_RANGE_ROWS = 4_000
_MAX_RANGES = 4_096


def number_of_ranges(rows: int) -> int:
    return min(_MAX_RANGES, max(1, rows // _RANGE_ROWS))


def can_digest(keys: Sequence[Column]) -> bool:
    """Only integers and text have the same text in every database."""
    return all(pa.types.is_integer(key.type) or pa.types.is_string(key.type) for key in keys)


def hash_sql(dialect: Dialect, keys: Sequence[Column]) -> str:
    if _is_number(keys):
        number = dialect.as_integer(dialect.quote(keys[0].name))
        return f"abs((({number} % {_MODULUS}) * {_MULTIPLIER}) % {_MODULUS})"
    texts = [dialect.as_text(key) for key in keys]
    return dialect.md5_number(dialect.concatenated(texts, _SEPARATOR))


def hashes(columns: Sequence[pa.Array], keys: Sequence[Column]) -> np.ndarray[Any, Any]:
    """The same hash of key columns in memory."""
    if _is_number(keys):
        numbers = int64_view(columns[0].cast(pa.int64()))
        spread = np.fmod(np.fmod(numbers, _MODULUS) * _MULTIPLIER, _MODULUS)
        return np.asarray(np.absolute(spread))
    parts = [column.cast(pa.string()).to_pylist() for column in columns]
    texts = (chr(_SEPARATOR).join(row).encode() for row in zip(*parts, strict=True))
    found = (int(hashlib.md5(t, usedforsecurity=False).hexdigest()[:7], 16) for t in texts)
    return np.fromiter(found, np.int64, len(columns[0]))


class Digests:
    """Count and sum of the hashes in each range."""

    def __init__(self, ranges: int) -> None:
        self.ranges = ranges
        self._counts = np.zeros(ranges, np.int64)
        self._sums = np.zeros(ranges, np.int64)

    def add(self, found: np.ndarray[Any, Any]) -> None:
        places = found % self.ranges
        np.add.at(self._counts, places, 1)
        np.add.at(self._sums, places, found)

    def set(self, rows: Iterator[tuple[Any, ...]]) -> None:
        """From the database: range, count, sum."""
        for number, count, total in rows:
            self._counts[int(number)], self._sums[int(number)] = int(count), int(total)

    def different(self, other: Digests) -> list[int]:
        """The ranges whose keys differ."""
        differ = (self._counts != other._counts) | (self._sums != other._sums)
        return [int(number) for number in np.flatnonzero(differ)]


def _is_number(keys: Sequence[Column]) -> bool:
    kind = keys[0].type
    return len(keys) == 1 and bool(pa.types.is_integer(kind)) and kind != pa.uint64()
