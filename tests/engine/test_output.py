"""The output: order, counted bytes, and the number of rows of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import binding, context, emitted
from semistream.engine.output import Output
from semistream.engine.rows.message import BatchAddresses, flat_forms
from semistream.engine.rows.page_columns import PageColumns

BATCH = pa.record_batch({"k": [1, 2, 3], "a": [10, 20, 30]})


@pytest.mark.parametrize(("row_bytes", "rows"), [(10, 20), (100, 10), (1000, 1), (1_000_000, 1)])
def test_the_room_for_rows_includes_a_second_copy(row_bytes: int, rows: int) -> None:
    output = Output(context())
    output.allocate(2000, 20, row_bytes)
    assert output.most_rows == rows
    output.set_row_bytes(100)
    assert output.most_rows == 10


def test_batches_are_emitted_in_order_and_their_bytes_counted() -> None:
    shared = context()
    output = Output(shared)
    assert not output
    for text in ("x", "y" * 100):
        output.emit(BATCH.columns, [pa.array([text] * 3)])
    assert output
    total = output.nbytes
    first = output.pop()
    assert first.schema == shared.binding.schema
    assert first.column("v").to_pylist() == ["x"] * 3
    assert output.nbytes == total - first.get_total_buffer_size() > 300
    output.pop()
    assert (output.nbytes, bool(output), shared.stats.rows_out) == (0, False, 6)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", []),
        ("left_semi", []),
        ("left", [{"k": 3, "a": 30, "v": None}, {"k": 1, "a": 10, "v": None}]),
        ("left_anti", [{"k": 3, "a": 30}, {"k": 1, "a": 10}]),
    ],
)
def test_tuples_without_a_match(how: str, expected: list[dict[str, int]]) -> None:
    output = Output(context(binding(how=how)))
    assert output.wants_unmatched is bool(expected)
    output.emit_unmatched_rows(BATCH, np.array([2, 0]))
    assert emitted(output) == expected
    output.emit_unmatched_rows(BATCH, np.zeros(0, np.int64))
    output.emit_unmatched([], 0)
    assert not output


def test_few_rows_fit_beside_the_row_buffers() -> None:
    shared = context()
    output = Output(shared)
    assert output.few_rows == 0  # nothing is allocated
    for nbytes, row_bytes in ((1 << 20, 100), (1 << 20, 10_000), (1 << 16, 100), (100, 10)):
        output.allocate(nbytes, 1 << 16, row_bytes)
        assert output.few_rows <= min(1024, nbytes // 4 // row_bytes)
        assert (output.few_rows > 0) == (nbytes > 100)


def test_a_few_rows_are_emitted_as_a_message() -> None:
    shared = context()
    output = Output(shared)
    output.allocate(1 << 16, 100, 100)
    addresses = BatchAddresses(flat_forms(BATCH.schema.types)).of(BATCH)
    columns = PageColumns([pa.string()], 1)
    columns.put(0, [pa.array(["x", None, "zz"])])
    rows, places = np.array([2, 1]), np.zeros(2, np.int32)
    message = output.begin_few(2)
    message.add_pages(addresses, places, rows)
    message.add_pages(columns.addresses, places, rows)
    assert output.emit_few()
    assert output.nbytes > 0
    made = output.pop()
    assert made.schema == shared.binding.schema
    assert made.to_pydict() == {"k": [3, 2], "a": [30, 20], "v": ["zz", None]}
    output.begin_few(2).refuse()
    assert not output.emit_few()
    assert not output
