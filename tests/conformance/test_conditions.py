"""Conditions beside the equality of keys, in every join: pairs that do not pass do not match."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import naive
import semistream as ss
from conformance.suite import conform, every_join
from harness import ALL_AT_ONCE, Case, build

STREAM_ROWS = 120


def _between(row: dict[str, Any], other: dict[str, Any]) -> bool:
    values = row["x"], other["low"], other["high"]
    return None not in values and values[1] <= values[0] <= values[2]


def _table(keys: list[Any], kind: pa.DataType, **columns: pa.Array) -> pa.Table:
    return pa.table({"k": pa.array(keys, kind), **columns})


def _case(
    name: str, kind: pa.DataType, of: Any, value: Any, value_type: pa.DataType,
    cuts: tuple[int, ...] = (7,),
) -> Case:  # fmt: skip
    """Rows of a key have ranges that overlap, some without an end; tuples some without a value."""
    numbers = range(90)
    lows = [None if i % 17 == 5 else value(3 * (i % 7)) for i in numbers]
    highs = [None if i % 13 == 4 else value(3 * (i % 7) + i % 5) for i in numbers]
    master = _table(
        [of(i // 3) for i in numbers], kind,
        low=pa.array(lows, value_type), v=pa.array(numbers), high=pa.array(highs, value_type),
    )  # fmt: skip
    places = range(STREAM_ROWS)
    # the first keys are hot, so that a front stage has them; the last ones are absent
    keys = [None if i % 23 == 7 else of(i % 4 if i % 2 else i * 7 % 40) for i in places]
    xs = [None if i % 11 == 3 else value(i % 26) for i in places]
    stream = _table(keys, kind, x=pa.array(xs, value_type), n=pa.array(places))
    where = ss.Between("x", "low", "high")
    return Case(name, stream, master, where=where, condition=_between, page_bytes=512, cuts=cuts)


def _text(i: int) -> str:
    return f"{i:03}"


def _larger_sum(stream: pa.RecordBatch, master: pa.RecordBatch) -> Any:
    total = pc.add(stream.column("x"), master.column("low"))
    return pc.greater(total, master.column("v"))


def _larger_sum_of_rows(row: dict[str, Any], other: dict[str, Any]) -> bool:
    return None not in (row["x"], other["low"]) and row["x"] + other["low"] > other["v"]


_INTS = _case("int64", pa.int64(), int, int, pa.int64(), (7, ALL_AT_ONCE))
CASES = [
    _INTS,
    _case("hashed key", pa.string(), _text, int, pa.int32()),
    _case("float", pa.int64(), int, float, pa.float32()),
    _case("text", pa.int64(), int, _text, pa.string()),
    _case("decimal, hashed key", pa.string(), _text, Decimal, pa.decimal128(9, 2)),
    _case("date", pa.int32(), int, lambda i: date(2024, 1, 1 + i), pa.date32()),
    _case("time", pa.int64(), int, lambda i: datetime(2024, 1, 1, i % 24), pa.timestamp("us")),
    Case(
        "columns that are not selected", _INTS.stream, _INTS.master, select=["v"],
        where=ss.Between("x", "low", "high"), condition=_between, page_bytes=512,
    ),
    Case(
        "compare", _INTS.stream, _INTS.master, page_bytes=512, where=[ss.Compare("x", "<", "v")],
        condition=lambda row, other: row["x"] is not None and row["x"] < other["v"],
    ),
    Case(
        "the key itself", _INTS.stream, _INTS.master, page_bytes=512,
        where=[ss.Compare("k", ">=", "low"), ss.Compare("x", "!=", "high")],
        condition=lambda row, other: None not in (other["low"], row["x"], other["high"])
        and row["k"] >= other["low"]
        and row["x"] != other["high"],
    ),
    Case(
        "predicate", _INTS.stream, _INTS.master, page_bytes=512, where=ss.Predicate(_larger_sum),
        condition=_larger_sum_of_rows, cuts=(11,),
    ),
    Case(
        "predicate and comparison, some columns", _INTS.stream, _INTS.master, select=["v"],
        where=[
            ss.Predicate(_larger_sum, stream=["x"], master=["v", "low"]),
            ss.Compare("n", ">", "v"),
        ],
        condition=lambda row, other: _larger_sum_of_rows(row, other) and row["n"] > other["v"],
        page_bytes=512,
    ),
    Case(
        "few pass", _INTS.stream, _INTS.master, where=ss.Compare("n", "==", "v"),
        condition=lambda row, other: row["n"] == other["v"], page_bytes=256, cuts=(1, 13),
    ),
]  # fmt: skip


@every_join(CASES)
def test_conditions(algorithm: str, how: str, case: Case, tmp_path: Path) -> None:
    master = build(tmp_path / "table", case.master, case.key, page_bytes=case.page_bytes)
    conform(algorithm, how, case, master)


def test_cases_tell_a_join_with_conditions_from_one_without() -> None:
    """Every case has pairs that pass, and pairs of equal keys that do not."""
    for case in CASES:
        with_condition, without = (
            len(naive.join(case.stream, case.master, case.on, where=condition))
            for condition in (case.condition, lambda row, other: True)
        )
        assert 0 < with_condition < without, case.name
