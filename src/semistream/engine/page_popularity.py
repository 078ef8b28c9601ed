"""Counts which pages of the master a stream needs most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.intake import Slice
from semistream.errors import ConfigError
from semistream.master.pages import PageSource

_SAMPLES_APART = 8  # samples that are not counted after one that was
_BETTER = 1.2  # times the tuples of the pages in use: worth reading others


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
    ``adapts``: from then on, a sample is counted again now and then, and compared with the pages
    in use. Pages are chosen by one half of it and judged by the other half: the best pages of a
    sample always look better in that sample.
    """

    def __init__(
        self,
        source: PageSource,
        hot_keys: pa.Table | None,
        observe: int,
        adapts: bool = False,
    ) -> None:
        self._source = source
        self._counts = np.zeros(source.num_pages, np.int32)
        self._second = np.zeros(source.num_pages if adapts else 0, np.int32)  # half of a sample
        self._observe = observe
        self._adapts = adapts
        self._left = observe if source.num_pages else 0
        self._skip = 0  # tuples until the next sample
        self._used: list[int] | None = None  # pages; None: not decided before
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
        """Count a slice of the stream before it is admitted, as long as a sample is not complete.

        A slice that did not fit into the window is passed again, but counted once.
        """
        if self.is_decided or self._left <= 0 or part.position or part.is_observed:
            return
        part.is_observed = True
        if self._skip > 0:
            self._skip -= part.batch.num_rows
            return
        head = part.batch.slice(0, self._left)
        columns = binding.codec.adopt([head.column(name) for name in binding.stream_key])
        self._count(pa.table(columns, [str(i) for i in range(len(columns))]).drop_null().columns)
        self._left -= head.num_rows
        if self._left <= 0:
            self._complete()

    def _count(self, columns: list[pa.ChunkedArray]) -> None:
        index = self._source.index
        assert index is not None
        low, high = index.locate([column.combine_chunks() for column in columns])
        pages = low[low <= high]
        if self._used is None:
            self._add(self._counts, pages)
        else:
            self._add(self._counts, pages[::2])
            self._add(self._second, pages[1::2])

    @staticmethod
    def _add(counts: Any, pages: Any) -> None:
        counts += np.bincount(pages, minlength=len(counts)).astype(np.int32)

    def _complete(self) -> None:
        if self._used is None:
            self.is_decided = True
            return
        chosen = self.ranking()[: max(1, len(self._used))]
        better, usual = int(self._second[chosen].sum()), int(self._second[self._used].sum())
        # Both are counts: a difference of three standard deviations is no chance.
        if better > _BETTER * usual and better - usual > 3.0 * (better + usual) ** 0.5:
            self._counts += self._second
            self.is_decided = True
        else:
            self._sample_later()

    def _sample_later(self) -> None:
        self._counts[:] = 0
        self._second[:] = 0
        self._left, self._skip = self._observe, _SAMPLES_APART * self._observe

    def ranking(self) -> list[int]:
        """Pages by descending popularity, without unused ones and those that split a key."""
        index = self._source.index
        assert index is not None
        cut = index.continues.copy()
        cut[1:] |= index.continues[:-1]
        order = np.argsort(-self._counts, kind="stable")
        return [int(page) for page in order if self._counts[page] and not cut[page]]

    def done(self, used: Iterable[int] = ()) -> None:
        """Called when the ranking was used, for these pages."""
        self.is_decided = False
        if self._adapts:
            self._used = list(used)
            self._sample_later()
