"""Rows are compared whatever the type of their columns."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from semistream.master.sync.same_rows import same_rows


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.month_day_nano_interval(), [(1, 2, 3), (2, 3, 4), None]),
        (pa.decimal256(50, 2), [Decimal("1.5"), Decimal(2), None]),
        (pa.float64(), [float("nan"), 1.0, None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("b", 2)], None]),
        (pa.binary(2), [b"ab", b"cd", None]),
        (pa.bool_(), [True, False, None]),
        (pa.duration("us"), [1, 2, None]),
        (pa.date32(), [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1), None]),
        (pa.uint64(), [1, 2**63, None]),
    ],
    ids=str,
)
def test_every_type(kind: pa.DataType, values: list[Any]) -> None:
    rows = pa.record_batch({"x": pa.array(values, kind)})
    other = pa.record_batch({"x": pa.array([values[0], None, None], kind)})
    assert same_rows(rows, rows).tolist() == [True] * 3
    assert same_rows(rows, other).tolist() == [True, False, True]
