"""The interface of a front stage: a cache of hot master rows that tuples probe first (003).

Two implementations; a join with a front stage can use either:

- :class:`~semistream.engine.front.recorder.FrequencyRecorder`, the papers': a row is ranked by the
  number of tuples that it matched when it was admitted.
- :class:`~semistream.engine.front.counting_cache.CountingCache`, SweepJoin's: a row is ranked by
  its recent hits.

An entry is a key with *all* its master rows, so duplicate keys are joined exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from semistream.engine.rows.layout import Rows, Slots
from semistream.engine.rows.row_store import RowStore
from semistream.keys import Codes, Mask

MOST_ROWS_PER_KEY = 16  # a key with more rows is not cached: it would displace as many others


class LookUp(NamedTuple):
    """The result of probing stream tuples: hits paired with slots, and misses."""

    stop: int
    hit_rows: Rows
    hit_slots: Slots
    miss_rows: Rows
    tuples_hit: int


@dataclass(frozen=True)
class CacheSize:
    """The size of a cache: rows, and a heap for variable-width values."""

    capacity: int
    heap: int
    nbytes: int


class FrontStage(Protocol):
    """A bounded cache of master rows."""

    capacity: int
    threshold: int  # minimum worth of a row to be offered
    rows: RowStore

    @property
    def count(self) -> int:
        """Rows held."""

    @property
    def nbytes(self) -> int: ...

    def probe(
        self,
        codes: Codes,
        valid: Mask | None,
        start: int,
        most_misses: int,
        most_pairs: int,
        once: bool,
    ) -> LookUp:
        """Probe the stream tuples from ``start`` on, until the limits or the end are reached."""

    def worth(self, codes: Codes, counts: Any) -> Any:
        """The worth of these keys, after ``counts`` more tuples waited for each."""

    def candidates(self, places: Any, rows: Any, slots: Any, codes: Codes) -> tuple[Any, Any, Any]:
        """Of pairs of page rows and waiting tuples, grouped by key and tuple: the first pair, the
        rows and the worth of each key that reaches the threshold."""

    def offer(
        self, codes: Codes, counts: Any, worth: Any, columns: Sequence[pa.Array], rows: Rows
    ) -> tuple[int, int]:
        """Offer keys with their rows (``counts`` each); returns (rows admitted, rows evicted)."""

    def refresh(self) -> None:
        """The hot keys have moved: what rows were worth before counts no more."""

    def watch(self) -> None:
        """From now on, ``coldest`` is wanted."""

    def age(self, share: float, tuples: int) -> None:
        """Age the counts: since the last call, ``share`` of the table was visited, and
        ``tuples`` tuples were served."""

    @property
    def coldest(self) -> float | None:
        """Average hits of the least used rows per visit of the whole table; None: not known yet,
        or not counted."""

    def adopt(self, other: Any) -> None:
        """Copy the most used rows of another front stage of the same kind and columns."""

    def forget(self, codes: Codes) -> int:
        """Drop these keys: their rows have changed. Returns the rows dropped."""

    def clear(self) -> int:
        """Drop everything; returns the rows dropped."""
