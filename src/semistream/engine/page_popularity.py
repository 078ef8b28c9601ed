"""Counts which pages of the master a stream needs most."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.intake import Slice
from semistream.errors import ConfigError
from semistream.master.pages import PageSource


def hot_key_columns(keys: Any) -> Any:
    """``hot_keys`` as an Arrow table (one column per key column), which pickles and compares."""
    if keys is None or isinstance(keys, pa.Table):
        return keys
    if isinstance(keys, pa.RecordBatch):
        return pa.table(keys)
    try:
        return pa.table({"key": keys if isinstance(keys, pa.Array) else pa.array(keys)})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigError(
            f"hot_keys is not a column of keys ({error}); give an array of key values, or an "
            "Arrow table with one column per key column"
        ) from error


class PagePopularity:
    """Counts keys per page, from a given sample or from the head of the stream.

    ``is_decided`` is True from when enough keys were counted until ``done`` is called.
    """

    def __init__(self, source: PageSource, hot_keys: pa.Table | None, observe: int) -> None:
        self._source = source
        self._counts = np.zeros(source.num_pages, np.int64)
        self._left = observe if source.num_pages else 0
        self.is_decided = False
        if hot_keys is not None and source.num_pages:
            if hot_keys.num_columns != len(source.key):
                raise ConfigError(
                    f"hot_keys has {hot_keys.num_columns} columns but the master's key has "
                    f"{len(source.key)}: {', '.join(source.key)}"
                )
            self._count(hot_keys.drop_null().columns)
            self._left = 0
            self.is_decided = True

    def observe(self, binding: Binding, part: Slice) -> None:
        """Count a slice of the stream's head before it is admitted.

        A slice that did not fit into the window is passed again, but counted once.
        """
        if self._left <= 0 or part.position or part.is_observed:
            return
        part.is_observed = True
        head = part.batch.slice(0, self._left)
        columns = binding.codec.adopt([head.column(name) for name in binding.stream_key])
        self._count(pa.table(columns, [str(i) for i in range(len(columns))]).drop_null().columns)
        self._left -= head.num_rows
        self.is_decided = self._left <= 0

    def _count(self, columns: list[pa.ChunkedArray]) -> None:
        index = self._source.index
        assert index is not None
        low, high = index.locate([column.combine_chunks() for column in columns])
        self._counts += np.bincount(low[low <= high], minlength=len(self._counts))

    def ranking(self) -> list[int]:
        """Pages by descending popularity, without unused ones and those that split a key."""
        index = self._source.index
        assert index is not None
        cut = index.continues.copy()
        cut[1:] |= index.continues[:-1]
        order = np.argsort(-self._counts, kind="stable")
        return [int(page) for page in order if self._counts[page] and not cut[page]]

    def done(self) -> None:
        self.is_decided = False
