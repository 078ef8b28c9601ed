"""A random sample of the tuples that arrive during overload, and estimates of the full join (004).

Tuples that arrive during overload are kept with probability ``rate``, each by itself. What has not
been served, ``unseen`` tuples in the store, is estimated from the kept ones::

    rows of the full join = rows of served tuples + unseen * rows per kept tuple

Rows of one tuple belong together, and a tuple without rows counts, too. So each kept tuple is in
one of 64 random groups, and the variance is that of the groups around the mean (random groups;
ratio estimator). The group travels with the tuple as a hidden column of the stream.

An estimate is about the tuples shed since the store was last empty. It takes those that are still
in the store to be like the tuples kept in the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.conditions import GROUP as COLUMN
from semistream.errors import ConfigError, existing
from semistream.overload.options import Shedding

GROUPS = 64
_STUDENT_T = 1.9983  # of 63 degrees of freedom: 95 % of the distribution are within


@dataclass(frozen=True)
class Interval:
    """An estimated value, and limits that include the true one with a probability of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """Estimates of the full join: the number of rows, and sums of columns."""

    rows: Interval
    sums: dict[str, Interval]
    unseen: int  # tuples that have not been joined; 0: the values are exact


class Sample:
    """Chooses tuples, marks them, and adds up what comes out for them."""

    def __init__(self, options: Shedding) -> None:
        self._rate = options.rate
        self._random = np.random.default_rng(options.seed)
        self._sums = options.sums
        self._epoch = 0  # counts how often the store has become empty
        self._certain = np.zeros(1 + len(self._sums))  # rows and sums outside of the sample
        self._restart()

    def _restart(self) -> None:
        self._tuples = np.zeros(GROUPS, np.int64)  # kept, by group
        self._totals = np.zeros((1 + len(self._sums), GROUPS))  # rows and sums, by group

    # -- tuples ----------------------------------------------------------------------------

    def marked(self, batch: pa.RecordBatch, group: int) -> pa.RecordBatch:
        """With a hidden column; -1: not part of the sample."""
        if COLUMN in batch.schema.names:
            return batch
        return batch.append_column(COLUMN, pa.array(np.full(batch.num_rows, group, np.int32)))

    def unmarked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.drop_columns([COLUMN])

    def schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.remove(schema.get_field_index(COLUMN))

    def choose(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The tuples to keep, in groups, and the others."""
        is_kept = self._random.random(batch.num_rows) < self._rate
        kept = batch.filter(pa.array(is_kept))
        groups = self._random.integers(0, GROUPS, kept.num_rows) + self._epoch * GROUPS
        place = batch.schema.get_field_index(COLUMN)
        kept = kept.set_column(place, batch.schema.field(place), pa.array(groups.astype(np.int32)))
        return kept, batch.filter(pa.array(~is_kept))

    def kept(self, batch: pa.RecordBatch) -> None:
        """These tuples will be served."""
        groups = batch.column(COLUMN).to_numpy() - self._epoch * GROUPS
        self._tuples += np.bincount(groups, minlength=GROUPS)

    def store_is_empty(self) -> None:
        """All tuples that were shed are being served: begin a new sample."""
        if self._tuples.any():
            self._certain += self._totals.sum(axis=1)
            self._epoch += 1
            self._restart()

    # -- rows ------------------------------------------------------------------------------

    def observe(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Add up output rows; returns them without the hidden column."""
        groups = rows.column(COLUMN).to_numpy() - self._epoch * GROUPS
        is_kept = groups >= 0
        values = [np.ones(rows.num_rows), *(_numbers(rows, name) for name in self._sums)]
        for place, column in enumerate(values):
            self._certain[place] += column[~is_kept].sum()
            self._totals[place] += np.bincount(groups[is_kept], column[is_kept], GROUPS)
        return self.unmarked(rows)

    def estimate(self, unseen: int) -> Estimate:
        """``unseen`` tuples have not been joined."""
        kept = int(self._tuples.sum())
        if unseen and not kept:
            raise ConfigError(
                f"{unseen} tuples were shed and none was sampled; offer more, or raise the rate"
            )
        found = [self._interval(place, unseen, kept) for place in range(1 + len(self._sums))]
        return Estimate(found[0], dict(zip(self._sums, found[1:], strict=True)), unseen)

    def _interval(self, place: int, unseen: int, kept: int) -> Interval:
        groups = self._totals[place]
        seen = float(self._certain[place] + groups.sum())
        if not unseen:
            return Interval(seen, seen, seen)
        per_tuple = float(groups.sum()) / kept
        residuals = groups - per_tuple * self._tuples
        variance = GROUPS / (GROUPS - 1) * float((residuals**2).sum()) / kept**2
        # the mean of the kept tuples varies, and so does that of the unseen ones
        margin = _STUDENT_T * unseen * float(np.sqrt(variance * (1 + kept / unseen)))
        value = seen + unseen * per_tuple
        return Interval(value, value - margin, value + margin)


def _numbers(rows: pa.RecordBatch, name: str) -> Any:
    """A column as numbers; null counts as 0, as in SQL's sum."""
    if name not in rows.schema.names:
        columns = existing(name, rows.schema.names, "it has")
        raise ConfigError(f"sums: the output has no column {name!r}; {columns}")
    return np.nan_to_num(rows.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False))
