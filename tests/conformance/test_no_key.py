"""Conditions without an equality: MESHJOIN compares every tuple with the rows in its range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import naive
import semistream as ss
from harness import build, cut, drive

VALUES = st.none() | st.integers(-8, 40)
LOW, HIGH = -(2**63), 2**63 - 1
EXTREME = VALUES | st.sampled_from([LOW, HIGH])

CONDITIONS: dict[str, tuple[Any, Any]] = {
    "between": (
        ss.Between("x", "low", "high"),
        lambda r, o: None not in (r["x"], o["low"], o["high"]) and o["low"] <= r["x"] <= o["high"],
    ),
    "between, of the master": (
        ss.Between("v", "x", "y", of="master", closed="left"),
        lambda r, o: None not in (r["x"], r["y"]) and r["x"] <= o["v"] < r["y"],
    ),
    "compare": (
        ss.Compare("x", "<", "low"),
        lambda r, o: None not in (r["x"], o["low"]) and r["x"] < o["low"],
    ),
    "different": (
        ss.Compare("x", "!=", "low"),
        lambda r, o: None not in (r["x"], o["low"]) and r["x"] != o["low"],
    ),
    "predicate": (
        ss.Predicate(lambda stream, master: pa.compute.equal(stream["x"], master["v"])),
        lambda r, o: r["x"] == o["v"],
    ),
    "text": (ss.Compare("s", ">=", "t"), lambda r, o: r["s"] >= o["t"]),
    "two": (
        [ss.Compare("x", ">=", "low"), ss.Compare("y", "<=", "high")],
        lambda r, o: (
            None not in (r["x"], r["y"], o["low"], o["high"])
            and r["x"] >= o["low"]
            and r["y"] <= o["high"]
        ),
    ),
}


def _master(rows: list[tuple[Any, Any]]) -> pa.Table:
    count = len(rows)
    return pa.table(
        {
            "v": pa.array(range(count), pa.int64()),
            "low": pa.array([low for low, _ in rows], pa.int64()),
            "high": pa.array([high for _, high in rows], pa.int64()),
            "t": pa.array([f"{i % 7}" for i in range(count)], pa.string()),
        }
    )


def _stream(rows: list[tuple[Any, Any]]) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(len(rows)), pa.int64()),
            "x": pa.array([x for x, _ in rows], pa.int64()),
            "y": pa.array([y for _, y in rows], pa.int64()),
            "s": pa.array([f"{i % 9}" for i in range(len(rows))], pa.string()),
        }
    )


@pytest.mark.parametrize("name", list(CONDITIONS))
@given(
    rows=st.lists(st.tuples(EXTREME, EXTREME), max_size=40),
    tuples=st.lists(st.tuples(EXTREME, EXTREME), max_size=40),
    how=st.sampled_from(naive.HOWS),
    algorithm=st.sampled_from(["meshjoin", "auto"]),
    size=st.sampled_from([1, 7, 100]),
    memory=st.sampled_from([30_000, 1_000_000]),
    change=st.booleans(),
    order=st.sampled_from([None, "stream"]),
)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
def test_equals_naive(
    name: str, tmp_path_factory: Any, rows: Any, tuples: Any, how: str, algorithm: str,
    size: int, memory: int, change: bool, order: Any,
) -> None:  # fmt: skip
    where, condition = CONDITIONS[name]
    data, stream = _master(rows), _stream(tuples)
    master = build(tmp_path_factory.mktemp("no-key") / "t", data, ["v"], page_bytes=256)
    if change:  # key 0 is the code that all tuples have
        master = master.delete([0, 3]).upsert(_master([(5, 9)] * 2).slice(1))
        data = master.to_table()
    join = ss.join(algorithm, memory=memory * (2 if order else 1), how=how)
    with join.open(master, where=where, order=order) as run:
        out = naive.rows_of(drive(run, cut(stream, size)))
    naive.same_rows(out, naive.join(stream, data, {}, how, None, condition))


def test_plain_parquet_will_do(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    data, stream = (
        _master([(3 * i, 3 * i + 4) for i in range(100)]),
        _stream([(i, 0) for i in range(90)]),
    )
    pq.write_table(data, tmp_path / "r.parquet", row_group_size=17)
    where, condition = CONDITIONS["between"]
    with ss.join("meshjoin", memory="1MB", how="left").open(str(tmp_path), where=where) as run:
        out = naive.rows_of(drive(run, cut(stream, 20)))
    naive.same_rows(out, naive.join(stream, data, {}, "left", None, condition))


def test_a_window_whose_tuples_are_all_replaced_is_sorted_again(tmp_path: Path) -> None:
    """A table of one partition: all tuples of a full window leave, and as many others come."""
    data = _master([(0, 999), (1_000, 4_999), (5_000, 9_000)])
    master = build(tmp_path / "t", data, ["v"])
    stream = _stream([(i * 7_919 % 10_001, 0) for i in range(3_000)])
    where, condition = CONDITIONS["between"]
    with ss.join("meshjoin", memory=60_000, how="left").open(master, where=where) as run:
        out = naive.rows_of(drive(run, cut(stream, 3_000)))
        assert run.plan.window is not None
        assert run.plan.window.capacity < 1_000
    naive.same_rows(out, naive.join(stream, data, {}, "left", None, condition))


def test_ranges_to_infinity(tmp_path: Path) -> None:
    infinity, nan = float("inf"), float("nan")
    values = [-infinity, -1.5, 0.0, 2.5, infinity, nan, None]
    data = pa.table({"k": range(len(values)), "v": pa.array(values, pa.float64())})
    ranges = [(low, high) for low in values for high in values]
    stream = pa.table(
        {
            "x": pa.array([low for low, _ in ranges], pa.float64()),
            "y": pa.array([high for _, high in ranges], pa.float64()),
        }
    )
    master = build(tmp_path / "t", data, ["k"])
    where = ss.Between("v", "x", "y", of="master")
    with ss.join("meshjoin", memory="1MB").open(master, where=where, select=["k"]) as run:
        out = naive.rows_of(drive(run, cut(stream, 10)))
    expected = naive.join(
        stream, data, {}, "inner", ["k"],
        lambda r, o: None not in (r["x"], o["v"], r["y"]) and r["x"] <= o["v"] <= r["y"],
    )  # fmt: skip
    naive.same_rows(out, expected)


def test_the_window_is_searched_not_compared_with_every_row(tmp_path: Path) -> None:
    """Candidates are about as many as pairs: 5000 tuples times 5000 rows would be 25 million."""
    from semistream.engine import band_pairs

    seen = []
    real = band_pairs.BandPairs.find

    def counted(self: Any, scan: Any, *arrays: Any) -> Any:
        rows, slots = real(self, scan, *arrays)
        seen.append(len(rows))
        return rows, slots

    data, stream = (
        _master([(i, i + 2) for i in range(5000)]),
        _stream([(i, i + 2) for i in range(5000)]),
    )
    master = build(tmp_path / "t", data, ["v"])
    for where in (CONDITIONS["between"][0], CONDITIONS["between, of the master"][0]):
        seen.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(band_pairs.BandPairs, "find", counted)
            with ss.join("meshjoin", memory="4MB").open(master, where=where) as run:
                drive(run, cut(stream, 5000))
        assert sum(seen) < 40_000


def test_a_join_by_key_needs_a_key(tmp_path: Path) -> None:
    master = build(tmp_path / "t", _master([(1, 2)]), ["v"])
    with pytest.raises(ss.ConfigError, match="sweepjoin finds rows by their key"):
        ss.join("sweepjoin").open(master, where=ss.Compare("x", "<", "low"))
    with pytest.raises(ss.ConfigError, match="give on=, the column to join on, or where="):
        ss.join("meshjoin").open(master)


@pytest.mark.parametrize("how", naive.HOWS)
@pytest.mark.parametrize(
    ("where", "passes", "pages"),
    [
        (ss.Between("v", "x", "y", of="master"), lambda r, o: r["x"] <= o["v"] <= r["y"], 12),
        (ss.Compare("x", "==", "v"), lambda r, o: r["x"] == o["v"], 12),
        (ss.Compare("x", ">=", "v"), lambda r, o: r["x"] >= o["v"], 0),
        (ss.Between("x", "v", "high"), lambda r, o: o["v"] <= r["x"] <= o["high"], 0),
    ],
    ids=["between", "equal", "compare", "open to one side"],
)
def test_a_condition_on_the_key_reads_only_pages_in_range(
    tmp_path: Path, where: Any, passes: Any, pages: int, how: str
) -> None:
    """``pages``: the most; 0: fewer than all."""
    data = _master([(i, i + 2) for i in range(3000)])
    master = build(tmp_path / "t", data, ["v"], page_bytes=1024)
    stream = _stream([(100, 103), (101, 101), (None, 3), (7, 6), (1500, 1502), (-5, -3)])
    join = ss.join("meshjoin", memory="1MB", how=how, disk_buffer_pages=4)
    with join.open(master, where=where) as run:
        out = drive(run, cut(stream, 3))
        read = run.stats.pages_read
    complete = lambda r, o: None not in (r["x"], r["y"]) and passes(r, o)  # noqa: E731
    expected = naive.join(stream, data, {}, how, where=complete)
    naive.same_rows(naive.rows_of(out), expected)
    assert read <= (pages or 2 * master.num_pages - 1)
