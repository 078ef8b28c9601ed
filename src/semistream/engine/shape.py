"""Shapes: the properties of a table and of a stream that planning needs. Nothing is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.rows.column_nodes import ColumnNodes
from semistream.engine.rows.layout import RecordLayout
from semistream.engine.rows.row_store import RowStore, heap_bound
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.kernels.column_forms import PAGE_ROWS
from semistream.master.mapped_reader import RESIDENT
from semistream.master.pages import PageSource

_SAMPLE = 1024  # tuples sampled from the first batch


@dataclass(frozen=True, eq=False)
class TableShape:
    """The sizes and properties of one version of a master table, for one join.

    ``buffer_bytes(n)`` is the memory of a reader with n-page reads; ``continues[j]`` is True if
    a key of page j may continue in page j + 1.
    """

    num_pages: int
    num_rows: int
    unique: bool
    ordered: bool  # sorted by key, with a page index
    exact: bool  # codes are keys, not hashes
    by_code: bool  # the code of a key determines its page
    index_bytes: int
    max_page_bytes: int
    max_row_bytes: int
    row_bytes: float
    output_types: tuple[pa.DataType, ...]  # of the master's columns in the output
    cached_types: tuple[pa.DataType, ...]  # of the columns that a front stage caches
    continues: np.ndarray[Any, np.dtype[np.bool_]]
    buffer_bytes: Callable[[int], int]
    boundaries: tuple[int, ...] = ()  # the first page of each delta
    direct: bool = False
    mapped: bool = False
    resident: bool = False  # mapped for good: no page is copied, and no buffer is needed
    can_prefetch: bool = False
    can_address: bool = False
    can_copy_rows: bool = False
    has_conditions: bool = False
    has_key: bool = True  # tuples and rows meet by equal keys, not by conditions alone
    condition_types: tuple[pa.DataType, ...] = ()  # of the columns that conditions read
    cached_sizes: tuple[float, ...] | None = None  # of an average row's values, if known

    @classmethod
    def of(cls, source: PageSource, binding: Binding, direct: bool = False) -> TableShape:
        kinds = source.schema.field
        index = source.index
        cached_types = tuple(map(binding.type_of, binding.cached_columns))
        sizes = source.column_bytes if RecordLayout(cached_types).has_heap else None
        return cls(
            num_pages=source.num_pages,
            num_rows=source.num_rows,
            unique=source.unique,
            ordered=source.ordered,
            exact=binding.codec.exact,
            by_code=index is not None and index.by_code,
            index_bytes=index.nbytes if index is not None else 0,
            max_page_bytes=source.max_page_bytes,
            max_row_bytes=source.max_row_bytes,
            row_bytes=source.row_bytes,
            output_types=tuple(kinds(name).type for name in binding.master_columns),
            cached_types=cached_types,
            continues=index.continues if index is not None else np.zeros(0, np.bool_),
            buffer_bytes=lambda pages: source.buffer_bytes(pages, direct),
            boundaries=tuple(index.boundaries) if index is not None else (),
            direct=direct,
            mapped=bool(source.mapped),
            resident=source.mapped == RESIDENT and not direct,
            can_prefetch=source.can_prefetch(direct),
            can_address=source.can_address,
            can_copy_rows=source.can_copy_rows,
            has_conditions=bool(binding.conditions),
            has_key=binding.has_key,
            condition_types=tuple(map(binding.type_of, binding.condition_columns)),
            cached_sizes=tuple(sizes[name] for name in binding.cached_columns) if sizes else None,
        )

    @property
    def rows_per_page(self) -> int:
        """Estimated maximum, from the size of an average row."""
        return self.max_page_bytes // max(1, int(self.row_bytes)) + 1

    @property
    def address_bytes(self) -> int:
        """Bytes of the addresses of a page's columns: output columns, those that are cached, and
        those that conditions read."""
        types = self.output_types, self.cached_types, self.condition_types
        nodes = sum(len(ColumnNodes(some)) for some in types)
        return 8 * PAGE_ROWS * (nodes + 1)

    @property
    def cached_heap_bytes(self) -> float:
        """Heap bytes of an average row in a front stage."""
        layout = RecordLayout(self.cached_types)
        if not layout.has_heap:
            return 0.0
        if self.cached_sizes is not None:
            return layout.heap_bytes_of(self.cached_sizes)
        return max(0.0, self.row_bytes - layout.record.itemsize) * 1.3 + 24


@dataclass(frozen=True)
class StreamShape:
    """Layout and sizes of the stream's tuples, as observed so far."""

    layout: TupleLayout | None = None  # None before the first batch
    heap_bytes: float = 0.0  # of an average tuple in the window
    widest: int = 0  # upper bound on the bytes of a tuple seen

    @classmethod
    def of(cls, batch: pa.RecordBatch, layout: TupleLayout) -> StreamShape:
        """The shape of a stream, estimated from its first batch."""
        sample = layout.columns(batch.slice(0, _SAMPLE))
        return cls(layout, layout.record.heap_bytes(sample))

    def with_widest(self, widest: int) -> StreamShape:
        """The same shape, for tuples of up to ``widest`` bytes."""
        return replace(self, widest=max(widest, self.widest))

    @property
    def longest_heap_bytes(self) -> int:
        """Upper bound on the heap bytes of a tuple of ``widest`` bytes, for any split across
        columns. An empty text still needs its header."""
        return 0 if self.layout is None else heap_bound(self.layout.record, self.widest)


def tuple_heap_bytes(layout: TupleLayout, columns: Sequence[pa.Array], row: int) -> int:
    """Heap bytes that a window needs for this row alone."""
    return RowStore(layout.record, 1).bytes_for(columns, np.array([row]))
