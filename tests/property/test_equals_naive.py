"""For any input, the rows are those of the naive join and the counters add up."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

import naive
import semistream as ss
from harness import build, drive, smallest_memory, soon

KEY_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-5, 40) | st.sampled_from([-(2**63), 2**63 - 1]),
    pa.int32(): st.integers(-5, 40),
    pa.uint64(): st.integers(0, 40) | st.just(2**64 - 1),
    pa.string(): st.text("ab\0é", max_size=3),
    pa.binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
    pa.decimal128(5, 1): st.integers(-20, 20).map(lambda unscaled: Decimal(unscaled) / 2),
}
PAYLOAD_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=40),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int8()): st.lists(st.integers(-9, 9) | st.none(), max_size=4),
    pa.struct([("x", pa.string())]): st.fixed_dictionaries({"x": st.text(max_size=4) | st.none()}),
}


@dataclass(frozen=True)
class Drawn:
    """One example, printed in full when it fails."""

    stream: pa.Table
    master: pa.Table
    on: dict[str, str]
    select: dict[str, str] | None
    how: str
    page_bytes: int
    memory_factor: float
    cuts: list[int]

    def batches(self) -> list[pa.RecordBatch]:
        """The stream cut at the drawn places, which may repeat: then a batch is empty."""
        borders = [0, *sorted(cut % (len(self.stream) + 1) for cut in self.cuts), len(self.stream)]
        whole = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in self.stream.columns], schema=self.stream.schema
        )
        return [whole.slice(start, end - start) for start, end in itertools.pairwise(borders)]


@st.composite
def columns(
    draw: st.DrawFn, names: list[str], types: list[pa.DataType], rows: int, of: Any, nulls: bool
) -> dict[str, pa.Array]:
    drawn = {}
    for name, kind in zip(names, types, strict=True):
        values = of[kind] | st.none() if nulls else of[kind]
        drawn[name] = pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)
    return drawn


@st.composite
def examples(draw: st.DrawFn) -> Drawn:
    key_types = draw(st.lists(st.sampled_from(list(KEY_VALUES)), min_size=1, max_size=2))
    master_rows = draw(st.integers(0, 60))
    stream_rows = draw(st.integers(0, 60))
    stream_names = [f"k{i}" for i in range(len(key_types))]
    # some key columns share their name, some do not
    master_names = [draw(st.sampled_from([name, f"m{name}"])) for name in stream_names]

    master = {"v": pa.array(range(master_rows), pa.int64())}
    master |= draw(columns(master_names, key_types, master_rows, KEY_VALUES, nulls=False))
    stream = draw(columns(stream_names, key_types, stream_rows, KEY_VALUES, nulls=True))
    stream["n"] = pa.array(range(stream_rows), pa.int64())
    payloads = st.lists(st.sampled_from(list(PAYLOAD_VALUES)), max_size=2)
    for side, prefix, rows in ((master, "p", master_rows), (stream, "p", stream_rows)):
        types = draw(payloads)
        names = [f"{prefix}{i}" for i in range(len(types))]
        side |= draw(columns(names, types, rows, PAYLOAD_VALUES, nulls=True))
    select = draw(
        st.none()
        | st.lists(st.sampled_from(list(master)), unique=True).map(
            lambda names: {name: f"from {name}" for name in names}
        )
    )
    return Drawn(
        stream=pa.table(stream),
        master=pa.table(master),
        on=dict(zip(stream_names, master_names, strict=True)),
        select=select,
        how=draw(st.sampled_from(naive.HOWS)),
        page_bytes=draw(st.sampled_from([64, 256, 1024, 16384])),
        memory_factor=draw(st.sampled_from([1.0, 1.05, 1.5, 4.0, 100.0])),
        cuts=draw(st.lists(st.integers(0, 60), max_size=6)),
    )


def check(algorithm: str, drawn: Drawn) -> None:
    batches = drawn.batches()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        master = build(path, drawn.master, list(drawn.on.values()), page_bytes=drawn.page_bytes)
        least = smallest_memory(
            algorithm, master, batches, drawn.on, how=drawn.how, select=drawn.select
        )
        note(f"memory: {least} is the least")
        options = soon(algorithm, memory=int(least * drawn.memory_factor), how=drawn.how)
        join = ss.join(algorithm, **options)
        with join.open(master, on=drawn.on, select=drawn.select) as run:
            out = naive.rows_of(drive(run, batches))
    naive.same_rows(out, naive.join(drawn.stream, drawn.master, drawn.on, drawn.how, drawn.select))


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
@given(drawn=examples())
@settings(max_examples=15)
def test_equals_naive(algorithm: str, drawn: Drawn) -> None:
    check(algorithm, drawn)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
@given(drawn=examples())
@settings(max_examples=400)
def test_equals_naive_long_run(algorithm: str, drawn: Drawn) -> None:
    check(algorithm, drawn)
