"""The columns of the output, and their names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from conformance.suite import conform, every_algorithm, every_join
from harness import Case

STREAM = pa.table(
    {"n": range(60), "price": [i * 0.5 for i in range(60)], "id": [i % 25 for i in range(60)]}
)
MASTER = pa.table(
    {
        "price": range(100, 120),
        "id": range(20),
        "maker": [f"maker {i}" for i in range(20)],
        "n": [None, *range(19)],
    }
)
OTHER_NAME = MASTER.rename_columns(["price", "key", "maker", "n"])

CASES = [
    Case("everything", STREAM, MASTER, on="id"),
    Case("one column", STREAM, MASTER, on="id", select=["maker"]),
    Case("one column that clashes", STREAM, MASTER, on="id", select=["price"]),
    Case("in another order", STREAM, MASTER, on="id", select=["maker", "n", "price"]),
    Case("the key as well", STREAM, MASTER, on="id", select=["id", "maker"]),
    Case("nothing", STREAM, MASTER, on="id", select=[]),
    Case("renamed", STREAM, MASTER, on="id", select={"price": "list_price", "maker": "by"}),
    Case("renamed key", STREAM, MASTER, on="id", select={"id": "product"}),
    Case("renamed to itself", STREAM, MASTER, on="id", select={"maker": "maker"}),
    Case("key of another name", STREAM, OTHER_NAME, on={"id": "key"}),
    Case("key of another name, left out", STREAM, OTHER_NAME, on={"id": "key"}, select=["maker"]),
    Case("key that clashes with a payload", STREAM, MASTER, on={"n": "id"}),
    Case("a stream of keys only", STREAM.select(["id"]), MASTER, on="id"),
    Case("a master of keys only", STREAM, MASTER.select(["id"]), on="id"),
]


@every_join(CASES)
def test_columns(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))


@every_algorithm
def test_types_and_metadata_stay(algorithm: str, master_of: Any) -> None:
    stream = STREAM.cast(
        pa.schema(
            [
                pa.field("n", pa.int16(), nullable=False),
                pa.field("price", pa.float32()),
                pa.field("id", pa.int32()),
            ]
        )
    )
    with ss.join(algorithm, memory="4MB", how="left").open(
        master_of(CASES[0]), on="id", select=["maker"]
    ) as run:
        rows = [*run.push(stream.to_batches()[0]), *run.flush()]
        assert run.schema.types == [pa.int16(), pa.float32(), pa.int32(), pa.string()]
        assert not run.schema.field("n").nullable
        assert run.schema.field("maker").nullable, "an unmatched tuple has no maker"
        pa.Table.from_batches(rows, run.schema).validate(full=True)


@every_algorithm
@pytest.mark.parametrize(
    ("select", "names"),
    [
        (["colour"], ["colour", "maker"]),
        ({"maker": "n"}, ["n"]),
        ({"maker": "x", "price": "x"}, ["x"]),
        (["maker", "maker"], ["maker"]),
    ],
    ids=["absent", "renamed to a stream column", "two of one name", "named twice"],
)
def test_invalid_select(algorithm: str, select: Any, names: list[str], master_of: Any) -> None:
    batch = STREAM.to_batches()[0]
    with (
        pytest.raises(ss.SchemaError) as refusal,
        ss.join(algorithm, memory="4MB").open(master_of(CASES[0]), on="id", select=select) as run,
    ):
        list(run.push(batch))
    for name in names:
        assert name in str(refusal.value)
