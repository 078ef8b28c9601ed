"""A table that is rebuilt under an open run, with other columns, types, keys and longer rows.

A run takes columns by name. A version whose key and selected columns have the types that the run
was opened with is followed; any other version raises, and nothing is lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from conformance.suite import every_algorithm
from harness import build, check_books, cut, drive, soon, watched

ROWS = 400
MASTER = pa.table(
    {
        "k": range(ROWS),
        "price": range(1000, 1000 + ROWS),
        "cost": range(5000, 5000 + ROWS),
        "name": [f"name {i}" for i in range(ROWS)],
    }
)


def stream(seed: int, count: int = 300) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"n": range(seed * 1000, seed * 1000 + count), "k": rng.zipf(1.3, count) % 450})


def changed(name: str, values: Any) -> pa.Table:
    return MASTER.set_column(MASTER.schema.get_field_index(name), name, pa.array(values))


def with_type(name: str, kind: pa.DataType) -> pa.Table:
    return changed(name, MASTER[name].cast(kind).combine_chunks())


FOLLOWED = {
    "reordered": MASTER.select(["name", "cost", "k", "price"]),
    "more columns": MASTER.add_column(0, "extra", pa.array([1.5] * ROWS)),
    "other values": changed("price", range(7000, 7000 + ROWS)),
    "swapped names": MASTER.rename_columns(["k", "cost", "price", "name"]),
    "nulls": changed("price", pa.array([None, *range(1, ROWS)], pa.int64())),
    "several rows per key": pa.concat_tables([MASTER, MASTER.slice(0, 40)]),
    "long texts": changed("name", [f"{i:>600}" for i in range(ROWS)]),
    "empty": MASTER.slice(0, 0),
}
REFUSED = {
    "double for int64": (with_type("price", pa.float64()), "k", ["price", "double", "int64"]),
    "int32 for int64": (with_type("price", pa.int32()), "k", ["price", "int32", "int64"]),
    "decimal for int64": (
        with_type("cost", pa.decimal128(20, 0)),
        "k",
        ["cost", "decimal128(20, 0)", "int64"],
    ),
    "large text": (with_type("name", pa.large_string()), "k", ["name", "large_string"]),
    "column gone": (MASTER.drop_columns(["cost"]), "k", ["cost"]),
    "key type": (with_type("k", pa.int32()), "k", ["'k'", "int32", "int64"]),
    "key type text": (with_type("k", pa.string()), "k", ["'k'", "string", "int64"]),
    "other key": (MASTER, "price", ["['price']", "['k']"]),
    "longer key": (MASTER, ["k", "price"], ["['k', 'price']", "['k']"]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    build(tmp_path / "table", MASTER, ["k"], unique=True)
    return tmp_path / "table"


def open_run(algorithm: str, path: Path, how: str = "left", select: Any = None) -> Any:
    join = ss.join(algorithm, **soon(algorithm, memory="300KB", how=how))
    return join.open(ss.MasterTable.open(path), on="k", select=select)


def rebuild(path: Path, table: pa.Table, key: Any = "k", unique: bool = False) -> Any:
    keys = [key] if isinstance(key, str) else key
    return build(path, table, keys, unique=unique, overwrite=True)


@pytest.mark.parametrize(
    ("algorithm", "how", "change"),
    [
        pytest.param(
            algorithm, how, change, marks=[] if (a + c + h) % 4 == 0 else [pytest.mark.slow]
        )
        for a, algorithm in enumerate(ss.ALGORITHMS)
        for c, change in enumerate(FOLLOWED)
        for h, how in enumerate(naive.HOWS)
    ],
)
def test_a_run_follows_a_compatible_rebuild(
    algorithm: str, how: str, change: str, path: Path
) -> None:
    table, first, second = FOLLOWED[change], stream(1), stream(2)
    with open_run(algorithm, path, how) as run:
        out = [rows for batch in cut(first, 100) for rows in watched(run, run.push(batch))]
        rebuild(path, table, unique=change != "several rows per key")
        out += drive(run, cut(second, 100))
        assert run.version == 2
    now = table.select(MASTER.schema.names)
    expected = naive.join(first, MASTER, "k", how) + naive.join(second, now, "k", how)
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
@pytest.mark.parametrize("change", REFUSED)
def test_an_incompatible_rebuild_is_refused(algorithm: str, change: str, path: Path) -> None:
    table, key, words = REFUSED[change]
    first, second, third = stream(1), stream(2), stream(3)
    with open_run(algorithm, path) as run:
        out = [rows for batch in cut(first, 100) for rows in watched(run, run.push(batch))]
        rebuild(path, table, key)
        for attempt in (lambda: run.push(cut(second, 300)[0]), run.flush, run.step):
            with pytest.raises(ss.SchemaError) as refusal:
                for rows in watched(run, attempt()):
                    out.append(rows)
            for word in [*words, "version 2", "use(1)"]:
                assert word in str(refusal.value)
            check_books(run)
        assert run.version == 1
        assert run.stats.waiting == 300, "the refused batch waits, the ones before it are served"
        run.use(1)
        out += watched(run, run.flush())
        assert run.stats.waiting == 0
        run.use(2)
        with pytest.raises(ss.SchemaError):
            list(run.push(cut(third, 300)[0]))
        run.use(1)
        out += drive(run, [])
        rebuild(path, MASTER, unique=True)
        run.use(3)
        out += drive(run, cut(third, 100))
        assert run.version == 3
    expected = [
        row
        for part in (first, second, third, third)
        for row in naive.join(part, MASTER, "k", "left")
    ]
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
def test_unselected_columns_may_change(algorithm: str, path: Path) -> None:
    first, second = stream(1), stream(2)
    table = with_type("price", pa.float64()).drop_columns(["cost"])
    with open_run(algorithm, path, select=["name"]) as run:
        out = list(watched(run, run.push(cut(first, 300)[0])))
        rebuild(path, table)
        out += drive(run, cut(second, 100))
    expected = [
        *naive.join(first, MASTER, "k", "left", ["name"]),
        *naive.join(second, table, "k", "left", ["name"]),
    ]
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_joins_that_add_no_columns_follow_any_types(algorithm: str, how: str, path: Path) -> None:
    table, first = with_type("price", pa.float64()).slice(0, 30), stream(1)
    with open_run(algorithm, path, how) as run:
        out = list(watched(run, run.push(cut(first, 300)[0])))
        rebuild(path, table)
        out += drive(run, cut(first, 100))
    expected = naive.join(first, MASTER, "k", how) + naive.join(first, table, "k", how)
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_version_that_cannot_be_attached(
    algorithm: str, failures: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run keeps its version, and moves when the fault is gone."""
    first, second, third = stream(1), stream(2), stream(3)
    newer = changed("price", range(7000, 7000 + ROWS))
    reader, left = ss.MasterTable.reader, failures

    def failing(table: Any, *arguments: Any) -> Any:
        nonlocal left
        if left and (table.version == 2 or failures > left):
            left -= 1
            raise ss.MasterTableError("no more buffers")
        return reader(table, *arguments)

    with open_run(algorithm, path) as run:
        out = list(watched(run, run.push(cut(first, 300)[0])))
        rebuild(path, newer, unique=True)
        monkeypatch.setattr(ss.MasterTable, "reader", failing)
        with pytest.raises(ss.MasterTableError, match="no more buffers"):
            for rows in run.push(cut(second, 300)[0]):
                out.append(rows)
        assert run.version == 1
        assert run.stats.tuples_in == 600
        while left:
            with pytest.raises(ss.MasterTableError, match="no more buffers"):
                out += run.flush()
        check_books(run)
        out += watched(run, run.flush())
        assert run.version == 2
        out += drive(run, cut(third, 100))
    expected = naive.join(first, MASTER, "k", "left")
    expected += naive.join(second, newer, "k", "left") + naive.join(third, newer, "k", "left")
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
def test_a_version_that_cannot_be_attached_is_skipped(
    algorithm: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stream(1), stream(2)
    with open_run(algorithm, path) as run:
        out = list(watched(run, run.push(cut(first, 300)[0])))
        rebuild(path, changed("price", range(7000, 7000 + ROWS)), unique=True)
        needed = ss.MasterTable.buffer_bytes
        monkeypatch.setattr(
            ss.MasterTable,
            "buffer_bytes",
            lambda table, *how: 1 << 30 if table.version == 2 else needed(table, *how),
        )
        with pytest.raises(ss.BudgetError):
            for rows in run.push(cut(second, 300)[0]):
                out.append(rows)
        check_books(run)
        assert run.version == 1
        run.use(1)
        out += drive(run, cut(second, 100))
    expected = naive.join(first, MASTER, "k", "left") + 2 * naive.join(second, MASTER, "k", "left")
    naive.same_rows(naive.rows_of(out), expected)
