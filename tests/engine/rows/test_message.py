"""Small batches that are written as messages equal those that Arrow takes."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.rows.layout import RecordLayout
from semistream.engine.rows.message import BatchAddresses, Message, flat_forms
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.engine.rows.row_store import RowStore
from semistream.errors import MasterTableError
from semistream.kernels import column_forms as forms

ROWS = 21
TYPES: dict[str, pa.DataType] = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "decimal": pa.decimal128(20, 2),
    "fixed": pa.binary(3),
    "text": pa.string(),
    "large": pa.large_binary(),
}


def _value(kind: pa.DataType, i: int) -> Any:
    if pa.types.is_boolean(kind):
        return i % 3 == 0
    if pa.types.is_decimal(kind):
        return decimal.Decimal(i) / 4
    if pa.types.is_fixed_size_binary(kind):
        return f"{i:03}".encode()
    if pa.types.is_string(kind):
        return "x" * i
    return f"{i}".encode() * (i % 4) if pa.types.is_large_binary(kind) else i


def _batch(rows: int = ROWS, nulls: bool = False) -> pa.RecordBatch:
    columns = [
        pa.array(
            [None if nulls and (i + c) % 5 == 0 else _value(kind, i) for i in range(rows)], kind
        )
        for c, kind in enumerate(TYPES.values())
    ]
    return pa.RecordBatch.from_arrays(columns, list(TYPES))


def _made(message: Message, rows: Any, batch: pa.RecordBatch, master: Any) -> pa.RecordBatch:
    """The batch's columns as the stream's, and ``master`` writes the others."""
    addresses = BatchAddresses(flat_forms(batch.schema.types)).of(batch)
    message.begin(len(rows), 1 << 16)
    message.add_pages(addresses, np.zeros(len(rows), np.int32), rows)
    master(message)
    made = message.finish()
    assert made is not None
    made.validate(full=True)
    return made


def _pages(columns: PageColumns, places: Any, rows: Any) -> Callable[[Message], None]:
    return lambda message: message.add_pages(columns.addresses, places, rows)


def _stored(store: RowStore, slots: Any, wanted: tuple[int, ...]) -> Callable[[Message], None]:
    return lambda message: store.write(message, slots, wanted)


def _schema(batch: pa.RecordBatch) -> pa.Schema:
    """Of the columns twice: the stream's, and the master's."""
    return pa.schema([*batch.schema, *(f.with_name(f"m{f.name}") for f in batch.schema)])


def _expected(batch: pa.RecordBatch, rows: Any) -> list[Any]:
    taken = [column.take(pa.array(rows)) for column in batch.columns]
    return [column.to_pylist() for column in taken * 2]


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("source", ["pages", "store", "buffer"])
@pytest.mark.parametrize("offset", [0, 3])
def test_rows_of_every_source_and_type(nulls: bool, source: str, offset: int) -> None:
    batch = _batch(nulls=nulls).slice(offset)
    message = Message(_schema(batch), len(TYPES))
    types = batch.schema.types
    for rows in (np.array([0]), np.array([5, 2, 2, 17]), np.arange(len(batch))):
        columns = PageColumns(types, 1)
        columns.put(0, batch.columns)
        places = np.zeros(len(rows), np.int32)
        if source == "pages":
            writes = _pages(columns, places, rows)
        elif source == "buffer":
            buffer = RowBuffer(types, 64, 100)
            buffer.add(columns, places, rows)
            writes = buffer.write
        else:
            store = RowStore(RecordLayout(types), 100, 10_000)
            slots = (90 - 2 * np.arange(len(rows))).astype(np.int32)
            store.put(batch.columns, rows, slots)
            writes = _stored(store, slots, tuple(range(len(types))))
        made = _made(message, rows, batch, writes)
        assert [column.to_pylist() for column in made.columns] == _expected(batch, rows)


def test_batches_do_not_share_memory() -> None:
    batch = _batch()
    message = Message(_schema(batch), len(TYPES))
    columns = PageColumns(batch.schema.types, 1)
    columns.put(0, batch.columns)

    def taken(row: int) -> pa.RecordBatch:
        rows, places = np.array([row]), np.zeros(1, np.int32)
        return _made(message, rows, batch, _pages(columns, places, rows))

    first, second = taken(7), taken(8)
    assert first.column(3).to_pylist() == [7]
    assert second.column(3).to_pylist() == [8]


@pytest.mark.parametrize("code_column", [0, 2, -1])
@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_a_key_is_restored_from_codes(code_column: int, kind: pa.DataType) -> None:
    values = pa.RecordBatch.from_pydict(
        {"a": pa.array([1, 2, 3]), "b": pa.array(["x", None, "zz"])}
    )
    fields = list(values.schema)
    if code_column >= 0:
        fields.insert(code_column, pa.field("key", kind))
    store = RowStore(RecordLayout(values.schema.types), 8, 1_000)
    slots = np.array([4, 1, 6], np.int32)
    store.put(values.columns, np.arange(3), slots)
    codes = np.zeros(8, np.int64)
    codes[slots] = [-3, 0, 99]
    message = Message(pa.schema(fields), len(fields))
    message.begin(3, 1 << 10)
    store.write(message, slots, (0, 1), codes, code_column)
    made = message.finish()
    assert made is not None
    made.validate(full=True)
    assert made.column("a").to_pylist() == [1, 2, 3]
    assert made.column("b").to_pylist() == ["x", None, "zz"]
    if code_column >= 0:
        assert made.column("key").to_pylist() == [-3, 0, 99]


def test_a_batch_without_room_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array(["x" * 3_000] * 4)})
    message = Message(batch.schema, 1)
    addresses = BatchAddresses(flat_forms(batch.schema.types)).of(batch)
    for count in (1, 2):
        message.begin(count, 4_096)
        message.add_pages(addresses, np.zeros(count, np.int32), np.arange(count))
        made = message.finish()
        assert (made is None) == (count == 2)
    message.begin(2_000, 4_096)
    assert message.finish() is None


def test_rows_that_are_refused() -> None:
    message = Message(pa.schema({"a": pa.int64()}), 1)
    message.begin(1, 100)
    message.refuse()
    assert message.finish() is None


def test_texts_outside_their_content() -> None:
    """Those of the stream are refused, as taking them raises the error; a page's raise it."""
    offsets = pa.py_buffer(np.array([0, 2, 99, 3], np.int32))
    column = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    addresses = BatchAddresses(flat_forms(batch.schema.types)).of(batch)
    message, place = Message(_schema(batch), 1), np.zeros(1, np.int32)
    message.begin(1, 100)
    message.add_pages(addresses, place, np.array([0]))
    with pytest.raises(MasterTableError, match="outside"):
        message.add_pages(addresses, place, np.array([1]))
    message.begin(1, 100)
    message.add_pages(addresses, place, np.array([1]))
    assert message.finish() is None


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.null(), pa.binary(0),
        pa.dictionary(pa.int32(), pa.string()), pa.string_view(),
    ],
)  # fmt: skip
def test_other_types_have_no_message(kind: pa.DataType) -> None:
    assert flat_forms([pa.int64(), kind]) is None


def test_a_batch_is_not_kept_alive_by_its_addresses() -> None:
    addresses, before = BatchAddresses(flat_forms([pa.int64()])), pa.total_allocated_bytes()
    for _ in range(3):
        batch = pa.RecordBatch.from_arrays([pa.array(range(1000))], ["a"])
        assert addresses.of(batch) is not None
        assert pa.total_allocated_bytes() > before
        del batch
        assert pa.total_allocated_bytes() == before


def test_the_values_of_a_batch_may_be_those_of_a_python_object() -> None:
    """Releasing what was exported may free it, which needs the interpreter."""
    values = np.arange(5)
    batch = pa.RecordBatch.from_arrays(
        [pa.Array.from_buffers(pa.int64(), 5, [None, pa.py_buffer(values)])], ["a"]
    )
    found = BatchAddresses(flat_forms([pa.int64()])).of(batch)
    assert found[forms.VALUES, 0, 0] == values.ctypes.data
