"""The shapes benchmark: generated rows, the check of an answer, targets, tables, a tiny run."""

from __future__ import annotations

import json
import sys
import time
import uuid
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from lab import bench_shapes, bench_tables, fresh_process
from lab.shapes import keys, report
from lab.shapes.catalogue import SHAPES
from lab.shapes.cell import RIVAL
from lab.shapes.data import ShapeData
from lab.shapes.lmdb_rows import LruLmdbRows
from lab.shapes.targets import points, verdicts
from lab.warm_up import Pusher, Subject

EVERY_SHAPE = pytest.mark.parametrize("name", SHAPES)


def data_of(name: str, rows: int = 3_000, root: Path = Path("unused")) -> ShapeData:
    return ShapeData.named(name, rows, 1, root)


def answer(data: ShapeData, sent: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The correct rows, straight from the generator."""
    batch = pa.Table.from_batches(sent).combine_chunks().to_batches()[0]
    copies = data.shape.copies
    batch = batch.take(pa.array(np.repeat(np.arange(batch.num_rows), copies)))
    numbers = batch["number"].to_numpy().astype(np.int64)
    copy = np.arange(numbers.size) % copies
    columns = [*batch.columns, *data.shape.expected(numbers, copy)]
    names = [*batch.schema.names, *data.shape.payload.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=names)


@EVERY_SHAPE
def test_keys_are_distinct_and_in_the_order_of_their_stored_bytes(name: str) -> None:
    codec = SHAPES[name].key
    numbers = codec.ordered(3_000)
    numbers = np.arange(1, 3_001) if numbers is None else numbers
    stored = codec.to_store(codec.to_arrow(numbers))
    cut = [stored[i : i + codec.width] for i in range(0, len(stored), codec.width)]
    assert len(cut) == 3_000
    assert cut == sorted(set(cut))
    sliced = [column.slice(7, 5) for column in codec.to_arrow(numbers)]
    assert codec.to_store(sliced) == b"".join(cut[7:12])


def test_keys_are_what_their_names_say() -> None:
    one = np.array([1, 20_000_000])

    def values(codec: keys.KeyCodec) -> list[Any]:
        return [column[0].as_py() for column in codec.to_arrow(one)]

    assert values(keys.DATE) == [date(1970, 1, 2)]
    assert values(keys.TIMESTAMP) == [datetime(2020, 9, 13, 12, 26, 41)]
    assert values(keys.DECIMAL) == [Decimal("1.99")]
    assert values(keys.TEXT) == ["product-000000001"]
    assert uuid.UUID(values(keys.UUID)[0]).version == 4
    assert values(keys.TWO_INT32) == [0, 1]
    assert values(keys.TEXT_INT_DATE) == ["store00000", 0, date(2019, 4, 15)]
    with pytest.raises(ValueError, match="more than 9 digits"):
        keys.TEXT.to_arrow(np.array([10**9]))


def test_shapes_have_what_their_labels_say() -> None:
    numbers = np.arange(1, 20_001)
    assert len(SHAPES) == 16
    assert len(SHAPES["wide"].schema) == 35
    assert all(105 < shape.row_bytes() < 150 for shape in SHAPES.values())
    nulls = [column.null_count for column in SHAPES["nulls"].rows(numbers).columns]
    assert [800 < count < 1_200 for count in nulls] == [False, False, True, False, True]
    upserted = np.bincount(SHAPES["deltas"].revisions(numbers))
    assert len(upserted) == 4
    assert 0.007 < upserted[1:].sum() / numbers.size < 0.013
    assert SHAPES["copies"].rows(numbers[:10]).num_rows == 30


@EVERY_SHAPE
def test_rows_are_the_same_after_packing(name: str) -> None:
    payload, numbers = SHAPES[name].payload, np.arange(1, 501)
    unpacked = payload.unpack(payload.pack(numbers))
    for field, column, expected in zip(
        payload.schema, unpacked, payload.columns(numbers), strict=True
    ):
        assert column.type == field.type
        assert column.equals(expected), field.name


@EVERY_SHAPE
def test_a_wrong_value_in_any_column_is_detected(name: str) -> None:
    data = data_of(name, rows=90_000)  # enough keys that every key column varies
    sent = data.stream(400, 100)
    rows = answer(data, sent)
    assert data.wrong([rows.slice(130), rows.slice(0, 130)], sent) is None
    turned = pa.array(np.roll(np.arange(rows.num_rows), 1))
    for place, column in enumerate(rows.schema.names):
        spoiled = rows.set_column(place, rows.schema.field(place), rows[column].take(turned))
        assert data.wrong([spoiled], sent) is not None, column
    for column in data.shape.payload.schema.names:
        place = rows.schema.get_field_index(column)
        spoiled = rows.set_column(place, rows.schema.field(place), rows[column].take(turned))
        assert data.wrong_rows(spoiled) is not None, column


@pytest.mark.parametrize("name", ["int64", "copies"])
def test_one_wrong_row_and_missing_and_repeated_rows_are_detected(name: str) -> None:
    data = data_of(name)
    sent = data.stream(400, 100)
    rows = answer(data, sent)
    assert "1 rows missing" in str(data.wrong([rows.slice(1)], sent))
    assert "1 rows repeated" in str(data.wrong([rows, rows.slice(0, 1)], sent))
    prices = rows["price"].to_numpy().copy()
    prices[17] += 0.01
    place = rows.schema.get_field_index("price")
    spoiled = rows.set_column(place, rows.schema.field(place), pa.array(prices))
    assert data.wrong([spoiled], sent) == "price: not the value of its key"


def test_a_row_from_before_an_upsert_is_detected() -> None:
    data = data_of("deltas")
    number = np.flatnonzero(data.shape.revisions(np.arange(3_000)) == 2)[:1]
    sent = [data.batch(number)]
    before = data.shape.rows(number).columns[1:]
    names = [*sent[0].schema.names, *data.shape.payload.schema.names]
    stale = pa.RecordBatch.from_arrays([*sent[0].columns, *before], names=names)
    assert data.wrong([stale], sent) == "price: not the value of its key"


@EVERY_SHAPE
def test_the_master_table_and_the_alternative_hold_the_expected_rows(
    name: str, tmp_path: Path
) -> None:
    pytest.importorskip("lmdb")
    data = data_of(name, root=tmp_path)
    data.prepare(lambda line: None)
    master = ss.MasterTable.open(data.master)
    numbers = np.arange(1, data.keys + 1)
    sent = [data.batch(numbers)]
    assert master.num_rows == 3_000
    assert master.schema.equals(data.shape.schema)
    assert list(master.key) == data.shape.key.names
    found = master.to_table().combine_chunks()
    assert found.num_rows == 3_000
    peer = LruLmdbRows(data.shape, data.lmdb, 100_000)
    assert (
        data.wrong([peer.push(sent[0].slice(0, 700)), peer.push(sent[0].slice(700))], sent) is None
    )
    assert peer.full
    peer.close()
    with ss.join("sweepjoin", memory=data.nbytes).open(master, on=data.shape.key.names) as run:
        rows = [*run.push(sent[0]), *run.flush()]
        assert data.wrong(rows, sent) is None
    data.delete()
    assert not data.folder.exists()


def test_warming_up_ends_when_the_hit_rate_is_steady_and_the_window_has_turned_over() -> None:
    state = {"chunks": 0, "hits": 0}

    def push(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        state["chunks"] += 1
        state["hits"] += min(80, 10 * state["chunks"])  # grows for eight chunks
        return [batch]

    batch = pa.record_batch({"a": range(100)})
    subject = Subject(push, lambda: state["hits"], lambda: 0)
    pusher = Pusher(subject, lambda position, tuples: [batch], 100)
    warm_up = pusher.settle(30.0)
    assert (warm_up["settled"], warm_up["warm_up_tuples"]) == (True, 1_000)
    slow = Pusher(Subject(push, lambda: 0, lambda: 10**9), lambda position, tuples: [batch], 100)
    assert slow.settle(0.05)["settled"] is False


def cell(shape: str, join: str, rate: float | None, beside: str = "") -> dict[str, Any]:
    told = {"shape": shape, "join": join, "rows": 2_000_000, "percent": 10.0, "beside": beside}
    told |= {"is_reference": bool(beside), "settled": True, "load": [0.5, 0.5, 0.5]}
    return {**told, "refused": "too small"} if rate is None else {**told, "rate": rate}


CELLS = [
    cell("int64", "sweepjoin", 6e6),
    cell("int64", "cmeshjoin", 2e6),
    cell("int64", RIVAL, 1e6),
    cell("int64", "sweepjoin", 4e6, beside="text"),
    cell("text", "sweepjoin", 2e6),
    cell("text", "cmeshjoin", 1e6),
    cell("text", "meshjoin", 2.5e6),
    cell("text", "hybridjoin", None),
    cell("text", RIVAL, 0.8e6),
]


def test_targets_are_ratios_to_the_cells_measured_beside() -> None:
    judged = {verdict.target: verdict for verdict in verdicts(CELLS)}
    where = "10 % of 2,000,000 rows"
    assert {target: (round(v.ratio or 0, 3), v.met) for target, v in judged.items()} == {
        f"int64, {where}: / cmeshjoin": (3.0, True),
        f"int64, {where}: / lru+lmdb": (6.0, True),
        f"text, {where}: / int64": (0.5, True),  # of 4 M, not of 6 M
        f"text, {where}: / meshjoin": (0.8, False),
        f"text, {where}: / lru+lmdb": (2.5, False),
    }


def test_a_refused_budget_is_a_missed_target() -> None:
    cells = [cell("int64", "sweepjoin", 4e6, beside="text"), cell("text", "sweepjoin", None)]
    assert [(verdict.ratio, verdict.met) for verdict in verdicts(cells)] == [(None, False)]
    assert points(cells)[0].share is None


def test_the_tables_show_rates_ratios_and_missed_targets() -> None:
    text = report.summary(CELLS).markdown()
    assert (
        "| text, 17 bytes | 2 M, 10 % | 2 | 0.50 | 0.45 | 2.5 (meshjoin) | 0.80 (missed) |" in text
    )
    assert "| 0.8 | 2.50 (missed) |" in text
    everything = report.all_joins(CELLS)
    assert everything.rows[1][-1] == "refused"
    assert everything.rows[1][:3] == ["text, 17 bytes", "2 M, 10 %", "2"]


@pytest.mark.slow
def test_a_tiny_benchmark_and_its_page(tmp_path: Path) -> None:
    """Two shapes of 5,000 rows from the command line; the targets are not expected to be met."""
    out = tmp_path / "results" / "shapes.json"
    arguments = ["--size", "small", "--rows", "5000", "--percents", "50", "--seconds", "0.05"]
    arguments += ["--shapes", "int64,copies", "--joins", "sweepjoin,hybridjoin"]
    arguments += ["--data", str(tmp_path / "data"), "--out", str(out)]
    assert bench_shapes.main(arguments) == 0
    held = json.loads(out.read_text())
    measured = [(one["shape"], one["join"], one["is_reference"]) for one in held["cells"]]
    assert measured == [
        ("int64", "sweepjoin", False),
        ("int64", "hybridjoin", False),
        ("int64", RIVAL, False),
        ("int64", "sweepjoin", True),
        ("copies", "sweepjoin", False),
        ("copies", "hybridjoin", False),
        ("copies", RIVAL, False),
    ]
    assert all(one["rate"] > 0 for one in held["cells"])
    assert len(held["targets"]) == 5
    assert list((tmp_path / "data").iterdir()) == []  # deleted afterwards

    again = [*arguments, "--shapes", "copies", "--joins", "sweepjoin", "--no-rival", "--add"]
    assert bench_shapes.main(again) == 0
    added = json.loads(out.read_text())
    assert added["seconds"] > held["seconds"]
    assert sorted((one["shape"], one["join"], one["is_reference"]) for one in added["cells"]) == (
        sorted(measured)
    )
    assert _rate(added, "copies", "hybridjoin") == _rate(held, "copies", "hybridjoin")
    assert _rate(added, "copies", "sweepjoin") != _rate(held, "copies", "sweepjoin")

    assert bench_shapes.main([*again, "--prepare"]) == 0
    assert len(list((tmp_path / "data").iterdir())) == 2  # built, not measured
    assert json.loads(out.read_text()) == added
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- shapes -->\nold\n<!-- end shapes -->\nAfter.\n")
    assert bench_tables.main(["--results", str(out.parent), "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    assert "| three rows per key | 0.005 M, 50 % |" in text
    assert "old" not in text


def _rate(report: dict[str, Any], shape: str, join: str) -> float:
    found = (c["rate"] for c in report["cells"] if (c["shape"], c["join"]) == (shape, join))
    return float(next(found))


def test_a_missed_target_is_an_error_if_targets_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_shapes, "plan", lambda *given: [])
    monkeypatch.setattr(
        bench_shapes,
        "run",
        lambda *given: {
            "seconds": 1.0,
            "targets": [{**vars(v), "met": v.met} for v in verdicts(CELLS)],
            "cells": CELLS,
        },
    )
    common = ["--out", str(tmp_path / "out.json")]
    assert bench_shapes.main([*common, "--size", "full"]) == 1
    assert bench_shapes.main([*common, "--size", "small"]) == 0
    assert bench_shapes.main([*common, "--size", "small", "--strict"]) == 1


def test_a_cell_that_is_too_slow_or_dies_is_reported() -> None:
    """A standard function as the measurement: a test module cannot be imported by the process."""
    asked = SimpleNamespace(name="a cell")
    assert fresh_process.run(vars, asked) == {"name": "a cell"}
    endless = SimpleNamespace(name="a cell", measure=partial(time.sleep, 600))
    late = fresh_process.run(methodcaller("measure"), endless, limit=0.1)
    assert late["name"] == "a cell"
    assert late["too_slow"] == "not done after 0.1 s"
    dead = fresh_process.run(sys.exit, asked)
    assert dead == {"name": "a cell", "error": "the process ended with code 1"}


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(SystemExit, match="unknown shape 'float'; choose from int64"):
        bench_shapes.main(["--size", "small", "--shapes", "float"])
