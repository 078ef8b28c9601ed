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
from semistream.master import MasterTable, verify
from semistream.master.manifest import read_manifest
from semistream.master.page_check import PageCheck, index_problem

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


KEYED = pa.record_batch({"a": [1, 1, 2], "b": ["x", "y", "a"], "v": ["p", "qq", ""]})


def problem(batch: pa.RecordBatch, rows: int = 3, data: pa.Buffer | None = None) -> str | None:
    key = KEYED.select(["a", "b"])
    check = PageCheck(KEYED.schema, key.schema)
    return check.problem(data or page_of(batch), rows, key.slice(0, 1), key.slice(2, 1))


def test_malformed_pages_are_refused() -> None:
    assert problem(KEYED) is None
    assert "3 rows instead of 4" in str(problem(KEYED, rows=4))
    swapped = KEYED.take(pa.array([0, 2, 1]))
    assert "first or last key" in str(problem(swapped))
    turned = pa.record_batch({"a": [1, 3, 2], "b": ["x", "y", "a"], "v": ["p", "qq", ""]})
    assert "out of order" in str(problem(turned))
    behind = pa.record_batch({"a": [1, 1, 1, 2], "b": ["x", "z", "y", "a"], "v": [""] * 4})
    assert "out of order" in str(problem(behind, rows=4))
    absent = pa.record_batch({"a": [1, None, 2], "b": ["x", "y", "a"], "v": ["p", "qq", ""]})
    assert "null" in str(problem(absent))
    assert "cannot be read" in str(problem(KEYED, data=pa.py_buffer(b"\0" * 64)))
    assert "cannot be read" in str(problem(KEYED, data=page_of(KEYED).slice(0, 200)))


def test_offsets_outside_the_content_are_refused() -> None:
    data = bytearray(page_of(KEYED))
    texts = data.rfind(np.array([0, 1, 3, 3], np.int32).tobytes())
    assert texts > 0
    for place, value in ((4, -1), (8, 1 << 30), (12, 1 << 20), (4, 2**31 - 1)):
        falsified = data.copy()
        falsified[texts + place : texts + place + 4] = np.int32(value).tobytes()
        assert "cannot be read" in str(problem(KEYED, data=pa.py_buffer(bytes(falsified))))


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("offsets", -8, "no position"),
        ("offsets", 1 << 40, "beyond the end"),
        ("lengths", 0, "no bytes"),
        ("lengths", 2**63 - 1, "beyond the end"),
        ("rows", 0, "no rows"),
        ("offsets", 8, "overlap"),
    ],
)
def test_an_index_with_wrong_positions_is_refused(
    column: str, value: int, what: str, tmp_path: Path
) -> None:
    data = pa.table({"k": range(ROWS), "text": ["x" * 30] * ROWS})
    table = MasterTable.build(data, tmp_path / "t", key="k", page_bytes=600)
    (segment,) = table.segments
    size = read_manifest(table.store, None).segments[0].bytes
    assert index_problem(segment.pages, size) is None
    changed = getattr(segment.pages, column).copy()
    changed[2] = value
    falsified = dataclasses.replace(segment.pages, **{column: changed})
    assert what in str(index_problem(falsified, size))


def test_copies_of_texts_are_bounded_by_their_buffers() -> None:
    """If a page is not the one that was checked, an error is raised before the copy."""
    texts = pa.array(["a", "bcd", "e"])
    plain = PageColumns([pa.string()], 1)
    plain.put(0, [texts])
    rows, places = np.array([0, 1, 2]), np.zeros(3, np.int64)
    assert plain.take(places, rows)[0].to_pylist() == ["a", "bcd", "e"]
    for wrong in ([0, -1, 4, 5], [0, 1, 4, 6], [0, 4, 1, 5], [0, 1, 4, 2**31 - 1]):
        offsets = np.array(wrong, np.int32)
        values, contents, sizes = plain.addresses
        moved = plain.at_addresses(np.full_like(values, offsets.ctypes.data), contents, sizes)
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
