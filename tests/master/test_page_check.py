"""Every page that we write passes the check; malformed pages fail."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.engine.rows.layout import RecordLayout
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.engine.rows.row_store import RowStore
from semistream.errors import MasterTableError, SchemaError
from semistream.kernels.column_forms import VALUES
from semistream.master import MasterTable, verify
from semistream.master.codes import KeyCodes
from semistream.master.index import SegmentPages
from semistream.master.manifest import read_manifest
from semistream.master.page_check import PageCheck, index_problem
from semistream.master.page_spec import PageSpec

ROWS = 60
PAYLOADS: dict[str, Any] = {
    "nulls": pa.nulls(ROWS),
    "bool": pa.array([i % 2 == 0 if i % 3 else None for i in range(ROWS)]),
    "half": pa.array(np.arange(ROWS, dtype=np.float16)),
    "text that is not UTF-8": pa.array([b"\xff\xfe"] * ROWS).view(pa.string()),
    "decimal256": pa.array([Decimal(i) for i in range(ROWS)], pa.decimal256(60, 2)),
    "time": pa.array([dt.time(i % 24) for i in range(ROWS)], pa.time32("s")),
    "date64": pa.array([1234567 * i for i in range(ROWS)], pa.int64()).view(pa.date64()),
    "interval": pa.array([pa.MonthDayNano([i, i, i]) for i in range(ROWS)]),
    "map": pa.array([[("a", i)] * (i % 3) for i in range(ROWS)], pa.map_(pa.string(), pa.int8())),
    "fixed list": pa.array([[i, None] for i in range(ROWS)], pa.list_(pa.int16(), 2)),
    "large list": pa.array([["x"] * (i % 3) for i in range(ROWS)], pa.large_list(pa.string())),
    "struct": pa.array([{"a": [i], "b": None} if i % 4 else None for i in range(ROWS)]),
    "uuid": pa.array([bytes(16)] * ROWS, pa.uuid()),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_pages_of_every_type_pass(name: str, tmp_path: Path) -> None:
    data = pa.table({"k": range(ROWS), name: PAYLOADS[name]})
    table = MasterTable.build(data, tmp_path / "t", key="k", page_bytes=600)
    assert table.num_pages > 1
    assert sum(batch.num_rows for batch in table.batches()) == ROWS
    assert verify(table.path) == []


def page_of(batch: pa.RecordBatch) -> pa.Buffer:
    return batch.serialize()


CODES = KeyCodes(pa.schema([("a", pa.int32()), ("b", pa.int16()), ("v", pa.string())]), ["a", "b"])
TEXT = KeyCodes(pa.schema([("a", pa.string()), ("v", pa.string())]), ["a"])


def keyed(a: list[int | None], b: list[int], v: list[str] | None = None) -> pa.RecordBatch:
    columns = [pa.array(a), pa.array(b), pa.array(v or [""] * len(a))]
    rows = [
        column.cast(field.type) for column, field in zip(columns, CODES.rows_schema, strict=True)
    ]
    return CODES.add(pa.RecordBatch.from_arrays(rows, schema=CODES.rows_schema))


KEYED = keyed([1, 1, 2], [7, 8, -1], ["p", "qq", ""])


def problem(batch: pa.RecordBatch, rows: int = 3, data: pa.Buffer | None = None) -> str | None:
    codes = CODES.stored(KEYED)
    check = PageCheck(CODES)
    found = check.problem(data or page_of(batch), rows, int(codes[0]), int(codes[2]))
    return None if found is None else found.what


def test_malformed_pages_are_refused() -> None:
    assert problem(KEYED) is None
    assert "3 rows instead of 4" in str(problem(KEYED, rows=4))
    assert "first or last key" in str(problem(KEYED.take(pa.array([0, 2, 1]))))
    assert "out of order" in str(problem(keyed([1, 3, 2], [7, 8, -1])))
    assert "out of order" in str(problem(keyed([1, 1, 1, 2], [7, 9, 8, -1]), rows=4))
    assert "null" in str(problem(keyed([1, None, 2], [7, 8, -1])))
    assert "cannot be read" in str(problem(KEYED, data=pa.py_buffer(b"\0" * 64)))
    assert "cannot be read" in str(problem(KEYED, data=page_of(KEYED).slice(0, 200)))


def test_stored_codes_must_be_those_of_the_keys() -> None:
    rows = pa.RecordBatch.from_pydict({"a": ["x", "y", "z"], "v": ["", "", ""]}, TEXT.rows_schema)
    page = TEXT.add(rows)
    page = page.take(pa.array(np.argsort(TEXT.stored(page))))
    codes = TEXT.stored(page)
    ends = int(codes[0]), int(codes[-1])
    check = PageCheck(TEXT)
    assert check.problem(page_of(page), 3, *ends) is None
    wrong = codes.copy()
    wrong[1] += 1
    forged = page.set_column(2, TEXT.schema.field(2), pa.array(wrong))
    assert "codes are not those" in str(check.problem(page_of(forged), 3, *ends))
    missing = page.set_column(2, TEXT.schema.field(2), pa.array([int(codes[0]), None, ends[1]]))
    assert "null" in str(check.problem(page_of(missing), 3, *ends))


def test_offsets_outside_the_content_are_refused() -> None:
    data = bytearray(page_of(KEYED))
    texts = data.rfind(np.array([0, 1, 3, 3], np.int32).tobytes())
    assert texts > 0
    for place, value in ((4, -1), (8, 1 << 30), (12, 1 << 20), (4, 2**31 - 1)):
        falsified = data.copy()
        falsified[texts + place : texts + place + 4] = np.int32(value).tobytes()
        assert "offsets of 'v'" in str(problem(KEYED, data=pa.py_buffer(bytes(falsified))))


def test_every_problem_of_several_pages_is_found() -> None:
    good, junk = page_of(KEYED), pa.py_buffer(b"\0" * 64)
    turned = page_of(keyed([1, 3, 2], [7, 8, -1]))
    pages = [good, junk, good, turned, good]
    codes = CODES.stored(KEYED)
    found = PageCheck(CODES).problems(
        np.array([page.address for page in pages]),
        np.array([page.size for page in pages]),
        np.full(5, 3),
        np.full(5, codes[0]),
        np.full(5, codes[-1]),
    )
    assert {i: problem.readable for i, problem in found.items()} == {1: False, 3: True}


class Stored(pa.ExtensionType):
    """Views are stored as they are only inside an extension type; Arrow checks such pages."""

    def __init__(self) -> None:
        super().__init__(pa.list_view(pa.int8()), "semistream.test.stored")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Stored:
        return cls()


def test_pages_that_only_arrow_can_check() -> None:
    lists = pa.array([[1], [], [2, 3]], pa.list_view(pa.int8()))
    rows = pa.record_batch(
        {"k": pa.array([1, 2, 3], pa.int32()), "e": pa.ExtensionArray.from_storage(Stored(), lists)}
    )
    codes = KeyCodes(rows.schema, ["k"])
    assert not PageSpec(codes.schema).checkable
    check, page = PageCheck(codes), codes.add(rows)
    assert check.problem(page.serialize(), 3, 1, 3) is None

    def what(batch: pa.RecordBatch, rows: int = 3, first: int = 1, last: int = 3) -> str:
        return str(check.problem(batch.serialize(), rows, first, last))

    assert "3 rows instead of 4" in what(page, rows=4)
    assert "first or last key" in what(page, first=2)
    assert "out of order" in what(codes.add(rows.take(pa.array([1, 0, 2]))), first=2)
    keys = page.set_column(0, "k", pa.array([1, 5, 3], pa.int32()))
    assert "codes are not those of its keys" in what(keys)
    assert "null" in what(page.set_column(0, "k", pa.array([1, None, 3], pa.int32())))
    junk = pa.py_buffer(b"\0" * 64)
    assert "cannot be read" in str(check.problem(junk, 3, 1, 3))


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("offsets", -8, "no position"),
        ("offsets", 1 << 40, "beyond the end"),
        ("lengths", 0, "no bytes"),
        ("lengths", 2**63 - 1, "beyond the end"),
        ("rows", 0, "no rows"),
        ("offsets", 8, "overlap"),
        ("first_codes", 10**6, "out of order"),
        ("last_codes", 10**6, "out of order"),
    ],
)
def test_an_index_with_wrong_positions_is_refused(
    column: str, value: int, what: str, tmp_path: Path
) -> None:
    data = pa.table({"k": range(ROWS), "text": ["x" * 30] * ROWS})
    table = MasterTable.build(data, tmp_path / "t", key="k", page_bytes=600)
    info = read_manifest(table.store, None).segments[0]
    pages = SegmentPages.from_bytes(table.store.read(info.index_file), info.index_checksum, "index")
    assert index_problem(pages, info.bytes) is None
    changed = getattr(pages, column).copy()
    changed[2] = value
    falsified = dataclasses.replace(pages, **{column: changed})
    assert what in str(index_problem(falsified, info.bytes))


def test_copies_of_texts_are_bounded_by_their_buffers() -> None:
    """If a page is not the one that was checked, an error is raised before the copy."""
    texts = pa.array(["a", "bcd", "e"])
    columns = PageColumns([pa.string()], 1)
    columns.put(0, [texts])
    rows, places = np.array([0, 1, 2]), np.zeros(3, np.int64)
    assert columns.take(places, rows)[0].to_pylist() == ["a", "bcd", "e"]
    for wrong in ([0, -1, 4, 5], [0, 1, 4, 6], [0, 4, 1, 5], [0, 1, 4, 2**31 - 1]):
        offsets = np.array(wrong, np.int32)
        addresses = columns.addresses.copy()
        addresses[VALUES] = offsets.ctypes.data
        moved = columns.at_addresses(addresses)
        with pytest.raises(MasterTableError, match="point outside their page"):
            moved.take(places, rows)
        with pytest.raises(MasterTableError, match="point outside their page"):
            RowBuffer([pa.string()], 8, 16.0).add(moved, places, rows)


def test_a_stream_batch_with_wrong_offsets_is_refused() -> None:
    offsets = pa.py_buffer(np.array([0, 5, 2], np.int32).tobytes())
    wrong = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"abcde")])
    store = RowStore(RecordLayout([pa.string()]), 4, 1000)
    with pytest.raises(SchemaError, match="offsets outside its content"):
        store.put([wrong], np.arange(2), np.arange(2, dtype=np.int32))
