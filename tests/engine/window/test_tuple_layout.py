"""Which columns of a tuple are stored, and how a key is decoded from its code."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import Side, layout
from semistream.engine.rows.row_store import RowStore

INT = Side(pa.schema([("k", pa.int64()), ("v", pa.int64())]))


@pytest.mark.parametrize(
    ("kind", "master", "kept"),
    [
        (pa.int64(), pa.int64(), ["a"]),
        (pa.int8(), pa.int64(), ["a"]),
        (pa.date32(), pa.date32(), ["a"]),
        (pa.timestamp("us"), pa.timestamp("us"), ["a"]),
        (pa.uint64(), pa.int64(), ["k", "a"]),
        (pa.string(), pa.string(), ["k", "a"]),
        (pa.timestamp("s"), pa.timestamp("us"), ["k", "a"]),
        (pa.bool_(), pa.bool_(), ["k", "a"]),
    ],
    ids=str,
)
def test_a_key_that_can_be_decoded_from_its_code_is_not_stored(
    kind: Any, master: Any, kept: list[str]
) -> None:
    side = Side(pa.schema([("k", master)]))
    schema = pa.schema([("k", kind), ("a", pa.int64())])
    assert [schema.names[i] for i in layout(schema, side).kept] == kept


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (pa.int8(), [-128, 0, 127]),
        (pa.uint32(), [0, 7, 2**32 - 1]),
        (pa.date32(), [date(1969, 1, 1), date(2026, 1, 1)]),
        (pa.timestamp("us"), [datetime(1900, 1, 1), datetime(2026, 1, 1)]),
        (pa.string(), ["", "ü", "long text"]),
    ],
    ids=str,
)
def test_a_batch_goes_through_the_window_unchanged(kind: Any, keys: list[Any]) -> None:
    master = pa.int64() if pa.types.is_integer(kind) else kind
    side = Side(pa.schema([("k", master)]))
    batch = pa.record_batch(
        {"before": [str(i) for i in range(len(keys))], "k": pa.array(keys, kind), "after": keys}
    )
    kept = layout(batch.schema, side)
    codes, _ = kept._binding.stream_codes(batch)
    store = RowStore(kept.record, len(keys), 10_000)
    slots = np.arange(len(keys), dtype=np.int32)
    store.put(kept.columns(batch), np.arange(len(keys)), slots)
    assert kept.restore(store.take(slots), codes) == batch.columns
    assert kept.keys(store, slots[::-1], codes[::-1])[0].to_pylist() == keys[::-1]
