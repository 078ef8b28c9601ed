"""The rows of several pages in memory as one run: their codes, and their columns on demand.

Pages of a master table are opened by address in compiled code. Pages of other sources are record
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.binding import Binding
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.page_opener import PageOpener
from semistream.keys import Codes, Mask
from semistream.master.pages import PageSource


class PageRows(Protocol):
    @property
    def pages(self) -> int:
        """Number of pages."""

    @property
    def codes(self) -> Codes: ...

    @property
    def ends(self) -> Any:
        """Where the rows of each page end."""

    @property
    def valid(self) -> Mask | None:
        """Mask of the rows that can match: those with a key. None: all rows."""

    def columns(self, names: Sequence[str]) -> PageColumns:
        """These columns of all pages."""

    def places(self, rows: Any) -> tuple[Any, Any]:
        """The page of each of these rows, and the row within that page."""


class Openers:
    """The openers of one source's pages, by columns."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._openers: dict[tuple[str, ...], PageOpener] = {}

    def __call__(self, names: Sequence[str]) -> PageOpener:
        wanted = tuple(names)
        if wanted not in self._openers:
            source = self._source
            assert source.code_column is not None
            self._openers[wanted] = PageOpener(source.page_schema, names, source.code_column)
        return self._openers[wanted]


class AddressedRows:
    """Rows of pages that are addressed in memory."""

    valid: Mask | None = None

    def __init__(self, openers: Openers, numbers: Any, addresses: Any, sizes: Any) -> None:
        self._openers = openers
        self._numbers = numbers
        self._addresses = addresses
        self._sizes = sizes
        opened = openers(()).open(numbers, addresses, sizes)
        self.pages = len(numbers)
        self._starts = np.concatenate([[0], np.cumsum(opened.sizes)])
        self.ends = self._starts[1:]
        self.codes = np.empty(int(self._starts[-1]), np.int64)
        kernels.page_columns.copy_codes(opened.codes, opened.sizes, self.codes)
        self._columns: dict[tuple[str, ...], PageColumns] = {}

    def columns(self, names: Sequence[str]) -> PageColumns:
        wanted = tuple(names)
        if wanted not in self._columns:
            opened = self._openers(names).open(self._numbers, self._addresses, self._sizes)
            self._columns[wanted] = opened.columns
        return self._columns[wanted]

    def places(self, rows: Any) -> tuple[Any, Any]:
        return _places(self._starts, rows)


class BatchRows:
    """Rows of record batches."""

    def __init__(self, batches: list[pa.RecordBatch], binding: Binding) -> None:
        self.pages = len(batches)
        self._batches = batches
        self._starts = np.cumsum([0] + [batch.num_rows for batch in batches])
        self.ends = self._starts[1:]
        self.codes, self.valid = _codes_of(batches, binding)
        self._columns: dict[tuple[str, ...], PageColumns] = {}

    def columns(self, names: Sequence[str]) -> PageColumns:
        columns = self._columns.get(tuple(names))
        if columns is None:
            schema = self._batches[0].schema
            columns = PageColumns([schema.field(name).type for name in names], self.pages)
            for place, batch in enumerate(self._batches):
                columns.put(place, [batch.column(name) for name in names])
            self._columns[tuple(names)] = columns
        return columns

    def places(self, rows: Any) -> tuple[Any, Any]:
        return _places(self._starts, rows)


def _places(starts: Any, rows: Any) -> tuple[Any, Any]:
    pages = np.searchsorted(starts, rows, side="right") - 1
    return pages, rows - starts[pages]


def _codes_of(batches: list[pa.RecordBatch], binding: Binding) -> tuple[Codes, Mask | None]:
    """The codes of all rows of these batches, and the mask of non-null keys (None: all)."""
    parts = [binding.master_codes(batch) for batch in batches]
    if len(parts) == 1:
        return parts[0]
    codes = np.concatenate([codes for codes, _ in parts])
    if all(valid is None for _, valid in parts):
        return codes, None
    masks = [np.ones(len(codes), np.bool_) if valid is None else valid for codes, valid in parts]
    return codes, np.concatenate(masks)
