"""Messages as rows: JSON and Arrow values, keys in every form, errors that name the message."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from semistream.errors import MasterTableError
from semistream.master.sync.messages import Messages

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("blob", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)
ROW = {"id": 7, "part": "a", "price": "1.50", "day": "2024-02-29", "blob": "AAE=", "tags": ["x"]}


def messages(key: list[str], form: str = "json", schema: pa.Schema = SCHEMA) -> Messages:
    return Messages(schema, key, form, "Kafka topic 'changes'")


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_json_rows() -> None:
    found = messages(["id"])
    assert found.row(b"7", dumped(ROW), "here") is None
    nulls = dict.fromkeys(SCHEMA.names[2:])
    assert found.row(b'{"id": 8, "part": "b"}', dumped({"part": "b", **nulls}), "here") is None
    assert found.rows().to_pylist() == [
        {
            "id": 7,
            "part": "a",
            "price": Decimal("1.50"),
            "day": date(2024, 2, 29),
            "blob": b"\\0\\1".decode("unicode_escape").encode(),
            "tags": ["x"],
        },
        {"id": 8, "part": "b", **nulls},
    ]


@pytest.mark.parametrize(
    ("columns", "key", "expected"),
    [
        (["id"], b"12", {"id": 12}),
        (["id"], b'"12"', {"id": 12}),
        (["id"], b'{"id": 12, "other": 1}', {"id": 12}),
        (["part"], b"plain text", {"part": "plain text"}),
        (["part"], b"007", {"part": "007"}),
        (["part"], b'"quoted"', {"part": "quoted"}),
        (["id", "part"], b'[3, "x"]', {"id": 3, "part": "x"}),
    ],
)
def test_keys(columns: list[str], key: bytes, expected: dict[str, Any]) -> None:
    assert messages(columns).tombstone(key, "here").to_pylist() == [expected]


def test_arrow_rows() -> None:
    schema = SCHEMA.remove(5)
    data = pa.RecordBatch.from_pylist([{"id": 1}, {"id": 2, "part": "z"}], schema=schema)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(data)
    found = messages(["id"], "arrow", schema).row(None, sink.getvalue(), "here")
    assert found is not None
    assert found.equals(data)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (b"1", b"{", "its value is not JSON"),
        (b"1", b"[1]", "is a JSON list, not an object"),
        (b"1", b'{"id": 1}', "its row has no column 'part'"),
        (None, dumped({k: v for k, v in ROW.items() if k != "id"}), "it has no key"),
        (b"1", dumped({**ROW, "day": "yesterday"}), "does not fit the table: .*yesterday"),
        (b"1", dumped({**ROW, "blob": "?"}), "does not fit the table"),
    ],
)
def test_a_bad_message_is_named(key: bytes | None, value: bytes, why: str) -> None:
    found = messages(["id"])
    with pytest.raises(MasterTableError, match=rf"'changes', partition 3, offset 5: .*{why}"):
        found.row(b"7", dumped(ROW), "partition 3, offset 4")
        found.row(key, value, "partition 3, offset 5")
        found.rows()


def test_bad_keys_and_arrow() -> None:
    with pytest.raises(MasterTableError, match="its key does not have the columns id, part"):
        messages(["id", "part"]).tombstone(b"1", "here")
    with pytest.raises(MasterTableError, match="its key does not fit the table"):
        messages(["id"]).tombstone(b"abc", "here")
    with pytest.raises(MasterTableError, match="not an Arrow IPC stream"):
        messages(["id"], "arrow").row(b"1", b"nonsense", "here")
