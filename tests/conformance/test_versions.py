"""A run follows its table: every tuple joins the version that was newest when it was pushed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from conformance.suite import every_algorithm
from harness import (
    build,
    check_books,
    cut,
    drive,
    every_join_and_how,
    smallest_memory,
    takes,
    watched,
)
from semistream.testing import RecordingObserver

MASTER = pa.table({"k": range(600), "v": [0] * 600, "text": [f"{i:<20}" for i in range(600)]})
HOT = [5, 6, 7, 300, 301]


def stream(seed: int, count: int = 200) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(count) < 0.5, rng.choice(HOT, count), rng.integers(-9, 620, count))
    return pa.table({"n": range(seed * 1000, seed * 1000 + count), "k": keys})


def changed(keys: list[int], value: int) -> pa.Table:
    return pa.table({"k": keys, "v": [value] * len(keys), "text": [f"new {k}" for k in keys]})


def after_upsert(table: pa.Table, rows: pa.Table) -> pa.Table:
    replaced = set(rows["k"].to_pylist())
    kept = [row for row in table.to_pylist() if row["k"] not in replaced]
    return pa.Table.from_pylist([*kept, *rows.to_pylist()], table.schema)


def after_delete(table: pa.Table, keys: list[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [row for row in table.to_pylist() if row["k"] not in keys], table.schema
    )


@pytest.fixture
def master(tmp_path: Path) -> Any:
    return build(tmp_path / "table", MASTER, ["k"], unique=True)


def open_run(algorithm: str, master: Any, how: str = "left", **options: Any) -> Any:
    least = smallest_memory(algorithm, master, cut(stream(1), 50), "k", how=how)
    # the index grows with the deltas, so slightly more than the smallest budget
    join = ss.join(algorithm, memory=4 * least + 60_000, how=how)
    return join.open(master, on="k", **options)


@every_join_and_how
def test_pushes_before_and_after_changes(algorithm: str, how: str, master: Any) -> None:
    table, expected, out = MASTER, [], []
    with open_run(algorithm, master, how) as run:
        for turn in range(1, 6):
            part = stream(turn)
            for batch in cut(part, 50):
                out += watched(run, run.push(batch))
            assert run.version == master.version
            expected += naive.join(part, table, "k", how)
            if turn % 2:
                rows = changed([5, 300, 10 * turn, 605 + turn], turn)
                table, master = after_upsert(table, rows), master.upsert(rows)
            else:
                table, master = after_delete(table, [6, 301, 20]), master.delete([6, 301, 20])
        out += watched(run, run.flush())
        check_books(run)
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
def test_a_key_inserted_later_is_found(algorithm: str, master: Any) -> None:
    """A key that was absent before is not remembered as absent."""
    late = pa.record_batch({"n": pa.array(range(20)), "k": pa.array([610] * 20)})
    with open_run(algorithm, master, "inner") as run:
        assert sum(rows.num_rows for rows in drive(run, [late, late])) == 0
        master.upsert(changed([610], 1))
        assert sum(rows.num_rows for rows in drive(run, [late])) == 20


@every_algorithm
def test_a_pinned_version_stays(algorithm: str, master: Any) -> None:
    master.upsert(changed([5, 300], 1))
    pinned = ss.MasterTable.open(master.path, version=1)
    part = stream(1)
    with open_run(algorithm, pinned) as run:
        out = naive.rows_of(drive(run, cut(part, 50)))
        assert run.version == 1
    naive.same_rows(out, naive.join(part, MASTER, "k", "left"))


@every_algorithm
def test_follow_overrides_the_pinned_version(algorithm: str, master: Any) -> None:
    part = stream(1)
    with (
        open_run(algorithm, master, follow=False) as stays,
        open_run(algorithm, ss.MasterTable.open(master.path, version=1), follow=True) as moves,
    ):
        rows = changed([5, 300], 1)
        master = master.upsert(rows)
        old = naive.rows_of(drive(stays, cut(part, 50)))
        new = naive.rows_of(drive(moves, cut(part, 50)))
        assert (stays.version, moves.version) == (1, 2)
    naive.same_rows(old, naive.join(part, MASTER, "k", "left"))
    naive.same_rows(new, naive.join(part, after_upsert(MASTER, rows), "k", "left"))


@every_algorithm
@pytest.mark.parametrize("change", ["compacted", "rebuilt", "vacuumed", "emptied"])
def test_compactions_and_rebuilds(algorithm: str, change: str, master: Any) -> None:
    first, second = stream(1), stream(2)
    table = after_upsert(MASTER, changed([5, 6], 1))
    with open_run(algorithm, master) as run:
        out = list(watched(run, run.push(cut(first, 200)[0])))
        newer = master.upsert(changed([5, 6], 1))
        if change == "compacted":
            newer = newer.compact()
        elif change == "rebuilt":
            table = changed([*range(0, 900, 3)], 2)
            newer = build(Path(master.path), table, ["k"], unique=True, overwrite=True)
        elif change == "vacuumed":
            newer = newer.compact()
            newer.vacuum(keep=1)
        elif change == "emptied":
            newer, table = newer.delete(list(range(600))), table.slice(0, 0)
        out += watched(run, run.push(cut(second, 200)[0]))
        assert run.version == newer.version
        out += watched(run, run.flush())
    expected = naive.join(first, MASTER, "k", "left") + naive.join(second, table, "k", "left")
    naive.same_rows(naive.rows_of(out), expected)


@every_algorithm
def test_rows_that_become_much_shorter(algorithm: str, tmp_path: Path) -> None:
    """More output rows fit into the memory than the run has allocated room for."""
    keys = list(range(3000))
    long = pa.table({"k": keys, "v": keys, "text": [f"{k:<900}" for k in keys]})
    short = pa.table({"k": keys, "v": keys, "text": ["x"] * 3000})
    path = tmp_path / "table"
    master = build(path, long, ["k"], unique=True, page_bytes=65536)
    part = pa.table({"n": range(6000), "k": [n * 7 % 3100 for n in range(6000)]})
    with ss.join(algorithm, memory="4MB").open(master, on="k", select=["v"]) as run:
        out = list(watched(run, run.push(cut(part, 6000)[0])))
        build(path, short, ["k"], unique=True, page_bytes=65536, overwrite=True)
        out += watched(run, run.push(cut(part, 6000)[0]))
        out += watched(run, run.flush())
    expected = naive.join(part, long, "k", select=["v"])
    expected += naive.join(part, short, "k", select=["v"])
    naive.same_rows(naive.rows_of(out), expected)


@pytest.mark.parametrize("algorithm", [n for n in ss.ALGORITHMS if takes(n, "front_stage")])
def test_a_change_drops_only_the_changed_keys(algorithm: str, master: Any) -> None:
    hot = pa.table({"n": range(400), "k": HOT * 80})
    observer = RecordingObserver()
    join = ss.join(algorithm, memory="1MB", how="left")
    with join.open(master, on="k", observer=observer) as run:
        drive(run, cut(hot, 100))
        warm = run.stats.front_stage_hits
        master.upsert(changed([5], 1))
        batch = pa.record_batch({"n": pa.array([1, 2]), "k": pa.array([5, 300])})
        drive(run, [batch])
        assert run.stats.front_stage_hits == warm + 1, "300 is still there, 5 is not"
        ((old, new, dropped),) = observer.named("version_changed")
        assert (old, new, dropped) == (1, 2, 1)
