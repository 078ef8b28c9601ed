"""Shapes: what planning needs to know about a table and a stream."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from engine.kit import binding, layout, pages_of, table_shape
from semistream.engine.rows.layout import RecordLayout
from semistream.engine.rows.row_store import RowStore
from semistream.engine.shape import StreamShape, TableShape, tuple_heap_bytes

TEXTS = pa.record_batch({"k": [1, 2, 3], "t": ["short", "x" * 500, None]})


def test_the_shape_of_a_source() -> None:
    source = pages_of([[1, 2], [2, 3], [5]])
    shape = TableShape.of(source, binding(source))
    assert (shape.num_pages, shape.num_rows, shape.unique) == (3, 5, False)
    assert shape.exact
    assert shape.by_code
    assert shape.continues.tolist() == [True, False, False]
    assert shape.output_types == shape.cached_types == (pa.string(),)
    assert shape.buffer_bytes(2) == source.buffer_bytes(2, False)
    assert source.readers == []  # nothing was opened


def test_keys_are_cached_where_codes_may_collide() -> None:
    source = pages_of([["a"], ["b"]], pa.string())
    stream = pa.schema([("k", pa.string())])
    assert TableShape.of(source, binding(source, stream)).cached_types == (pa.string(),) * 2
    semi = TableShape.of(source, binding(source, stream, "left_semi"))
    assert (semi.output_types, semi.cached_types) == ((), (pa.string(),))


def test_rows_of_a_page_are_not_underestimated() -> None:
    assert table_shape(page_bytes=4096).rows_per_page >= 4096 / 50
    assert table_shape(row_bytes=0.0).rows_per_page >= 1


def test_heap_bytes_of_a_cached_row() -> None:
    assert table_shape(cached_types=(pa.int64(),)).cached_heap_bytes == 0
    assert table_shape(row_bytes=200.0).cached_heap_bytes > 200


def test_heap_bytes_are_those_of_the_cached_columns() -> None:
    """Not of whole rows, most of which may be a text that nobody asks for."""
    source = replace(pages_of([[1, 2]]), column_bytes={"k": 8.0, "v": 44.0})
    shape = TableShape.of(source, binding(source))
    exact = RecordLayout(shape.cached_types).heap_bytes_of([44.0])
    assert shape.cached_heap_bytes == exact
    assert replace(shape, cached_sizes=None).cached_heap_bytes != exact
    assert 40 + 8 < exact < 2 * 44, "a text, its header and what is left free"


def test_a_stream_is_known_by_its_first_batch_and_its_longest_tuple() -> None:
    tuples = layout(TEXTS.schema)
    shape = StreamShape.of(TEXTS.slice(0, 1), tuples)
    assert shape.longest_heap_bytes > 0  # an empty text takes its header, too
    longer = shape.with_widest(600)
    assert longer.widest == 600
    assert longer.longest_heap_bytes >= tuple_heap_bytes(tuples, tuples.columns(TEXTS), 1) > 500
    assert longer.with_widest(500).widest == 600


@pytest.mark.parametrize("row", [0, 1, 2])
def test_heap_bytes_of_a_tuple_are_enough_for_it(row: int) -> None:
    tuples = layout(TEXTS.schema)
    columns = tuples.columns(TEXTS)
    store = RowStore(tuples.record, 1, tuple_heap_bytes(tuples, columns, row))
    assert store.first_too_large([column.slice(row, 1) for column in columns]) is None
