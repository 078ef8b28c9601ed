"""Waiting rows of a streaming query: which are deferred, parked, returned and given up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from disks import small_disk
from overload.kit import MASTER, numbers
from overload.waiting_kit import Query, batches, build_table
from servers import execute, postgres_server


class Killed(Exception):  # noqa: N818
    """The driver dies here."""


def kill_at(query: Query, point: str) -> None:
    def fault(reached: str) -> None:
        if reached == point:
            raise Killed(point)

    query.fault = fault


def test_the_oldest_rows_are_served_first(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = Query(tmp_path, batch_time="4s")
    query.run(0, [batches(list(range(60)), 0)])
    served = numbers(query.rows())
    assert served == list(range(len(served)))
    assert 0 < len(served) < 60
    assert query.waiting("deferred") == list(range(len(served), 60))
    query.run(1, [batches(list(range(30)), 60)])
    assert numbers(query.rows())[:60] == list(range(60)), "files are served as a whole"
    before = len(query.rows())
    assert query.waiting("deferred") == list(range(before, 90))
    query.drain()
    assert numbers(query.rows()) == list(range(90))
    assert query.waiting("deferred") == []


def test_a_batch_without_any_time_still_serves_something(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = Query(tmp_path, batch_time="1ms")
    for number in range(4):
        query.run(number, [batches(list(range(20)), 20 * number), []])
    assert len(query.rows()) >= 4 * 10
    query.drain()
    assert numbers(query.rows()) == list(range(80))


def test_a_time_that_suffices_leaves_no_trace(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = Query(tmp_path, batch_time="1h")
    query.run(0, [batches(list(range(60)), 0)])
    assert numbers(query.rows()) == list(range(60))
    assert list((tmp_path / "out" / "_semistream" / "waiting").rglob("*.*")) == []


def test_only_files_with_an_arrived_key_are_read_again(tmp_path: Path) -> None:
    table = build_table(tmp_path, list(range(0, 100, 2)))
    query = Query(tmp_path, parking={})
    query.run(0, [batches([1, 2, 3], 0), batches([5, 7, None], 3)])
    assert query.waiting("parked") == [0, 2, 3, 4]
    table = table.upsert(_rows(3))
    reads: list[str] = []
    read = query.keeper.backlog.read
    query.keeper.backlog.read = lambda file: reads.append(file.name) or read(file)  # type: ignore
    turn = query.keeper.begin(1, 1, lambda: query.writer.versions(None))
    assert len(turn.parked) == 2, "both files may have it"
    query.run(1, [batches([2], 10)])
    assert numbers(query.rows()) == [1, 2, 10]
    assert query.waiting("parked") == [0, 3, 4]
    reads.clear()
    query.run(2, [batches([2], 11)])
    assert not reads, "no version since then, nothing to look for"


def test_rows_are_parked_where_they_have_no_match(tmp_path: Path) -> None:
    """At the second look-up they have the columns of the first, as it was when they came."""
    table = build_table(tmp_path, list(range(10)))
    groups = pa.table({"v": [0, 2, 4], "name": ["zero", "two", "four"]})
    other = ss.MasterTable.build(groups, tmp_path / "groups", key="v")
    second = ss.Lookup(str(tmp_path / "groups"), on="v", select=["name"])
    query = Query(tmp_path, more=[second], parking={"max_rows": 4})
    query.run(0, [batches([2, 3, 12, 7, None], 0)])
    assert query.rows() == [(0, 2, 2, "row 2", "two")]
    assert query.waiting("parked") == [1, 2, 3]
    assert query.dead() == [4]
    table = table.upsert(_rows(3, 12))  # changes the row of 3, which waits behind this look-up
    query.run(1, [[]])
    assert len(query.rows()) == 1
    assert query.waiting("parked") == [1, 2, 3], "12 has gone on to the second look-up"
    other.upsert(pa.table({"v": [3, 12], "name": ["three", "twelve"]}))
    query.run(2, [[]])
    assert sorted(query.rows())[1:] == [(1, 3, 3, "row 3", "three"), (2, 12, 12, "late", "twelve")]
    query.run(3, [batches([8, 9], 10)])
    query.run(4, [batches([15, 16], 20)])
    assert query.waiting("parked") == [10, 11, 20, 21]
    assert query.dead() == [3, 4]
    dead = pq.read_table(tmp_path / "dead")
    assert dead.column_names == ["n", "k", "dead_letter_reason"]


def test_small_parked_files_are_merged(tmp_path: Path) -> None:
    table = build_table(tmp_path, list(range(0, 100, 2)))
    query = Query(tmp_path, parking={"max_age": "1d"})
    most = 0
    for number in range(40):
        query.run(number, [batches([2 * number + 1, 2], 10 * number)])
        most = max(most, len(query.keeper.state.parked))
    assert most <= 8 + 8
    assert query.waiting("parked") == [10 * number for number in range(40)]
    table.upsert(_rows(1, 41, 79))
    query.run(40, [[]])
    assert numbers(query.rows()) == sorted([0, 200, 390, *(10 * n + 1 for n in range(40))])


def _rows(*keys: int) -> Any:
    rows = [{"k": key, "v": key, "text": "late"} for key in keys]
    return pa.Table.from_pylist(rows, MASTER)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


@pytest.fixture(
    params=[
        "parquet",
        pytest.param("delta", marks=pytest.mark.slow),
        pytest.param("postgresql", marks=pytest.mark.slow),
    ]
)
def warehouse(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param != "postgresql":
        return {"output": request.param}
    url = request.getfixturevalue("postgres").get_uri()
    execute(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return {"output": request.param, "url": url}


@pytest.mark.parametrize("point", ["staged", "published", "committed", "dead letters", "swept"])
def test_a_driver_killed_at(point: str, warehouse: dict[str, str], tmp_path: Path) -> None:
    """Its successor replays the batch, cut in another way, and every row is somewhere, once."""
    table = build_table(tmp_path, list(range(0, 100, 2)))
    query = Query(tmp_path, batch_time="4s", parking={"max_rows": 8}, **warehouse)
    query.run(0, [batches([*range(40), None], 0)])
    table.upsert(_rows(1, 3, 5))
    kill_at(query, point)
    second = [*range(30, 70), None]
    with pytest.raises(Killed):
        query.run(1, [batches(second, 100)])
    query.fault = lambda reached: None
    query.restart()
    done = query.run(1, [batches(second[:20], 100), batches(second[20:], 120)])
    assert done == (point in ("staged", "published"))
    everything = [*range(41), *range(100, 141)]
    assert (
        sorted(
            [
                *numbers(query.rows()),
                *query.dead(),
                *query.waiting("deferred"),
                *query.waiting("parked"),
            ]
        )
        == everything
    )
    query.drain()
    assert query.waiting("deferred") == []
    assert query.waiting("dead") == [] or set(query.waiting("dead")) <= set(query.dead())
    found = [*numbers(query.rows()), *query.dead(), *query.waiting("parked")]
    assert sorted(found) == everything


@pytest.mark.parametrize("batches_later", [0, 2])
@pytest.mark.parametrize("point", ["staged", "published", "committed", "dead letters"])
def test_a_driver_that_hangs_and_goes_on_beside_its_successor(
    point: str, batches_later: int, tmp_path: Path
) -> None:
    build_table(tmp_path, list(range(0, 100, 2)))
    options: Any = {"batch_time": "4s", "parking": {"max_rows": 8}}
    zombie, successor = Query(tmp_path, **options), Query(tmp_path, **options)
    zombie.run(0, [batches([*range(40), None], 0)])

    def fault(reached: str) -> None:
        if reached == point:
            zombie.fault = lambda reached: None
            for number in range(1, 2 + batches_later):
                successor.run(number, [batches([*range(30, 50), None], 100 * number)])

    zombie.fault = fault
    with contextlib.suppress(ss.SemistreamError):  # it may notice, or not
        zombie.run(1, [batches([*range(30, 50), None], 100)])
    successor.run(2 + batches_later, [batches([1, 2], 900)])
    successor.drain()
    everything = [*range(41), 900, 901]
    for number in range(1, 2 + batches_later):
        everything += range(100 * number, 100 * number + 21)
    everything.sort()
    found = [*numbers(successor.rows()), *successor.dead(), *successor.waiting("parked")]
    assert sorted(found) == everything
    assert successor.waiting("deferred") == []


def test_a_full_disk_loses_nothing(warehouse: dict[str, str], tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        build_table(tmp_path, list(range(0, 100, 2)))
        (disk.path / "waiting").mkdir()
        folder = disk.path / "waiting"
        query = Query(tmp_path, batch_time="3s", backlog=folder, parking={}, **warehouse)
        query.run(0, [batches(list(range(50)), 0)])
        disk.fill()
        with pytest.raises(ss.SemistreamError, match="cannot be written"):
            query.run(1, [batches(list(range(50)), 50)])
        disk.make_room()
        query.restart()
        query.run(1, [batches(list(range(50)), 50)])
        query.drain()
        assert numbers(query.rows()) == list(range(0, 100, 2))
        assert query.waiting("parked") == list(range(1, 100, 2))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch_time": "soon"}, "batch_time='soon'"),
        ({"batch_time": 0}, "above zero"),
        ({"unmatched": "keep"}, "unmatched='keep'"),
        ({"unmatched": "park"}, "together"),
        ({"backlog": "x"}, "need batch_time or parking"),
        ({"unmatched": "park", "parking": ss.Parking("p", max_rows=1)}, "dead_letters"),
        ({"unmatched": "park", "parking": ss.Parking("p", recover="checkpoint")}, "for a run"),
        ({"unmatched": "park", "parking": ss.Parking("p")}, "has none: give a master table"),
        ({"batch_time": "5s", "backlog": __file__}, "is a file"),
        ({"deferred_topic": {"topic": "t"}}, "needs batch_time"),
        ({"batch_time": "5s", "deferred_topic": {"topic": "t"}}, "needs servers"),
        ({"batch_time": "5s", "deferred_topic": {"tpic": "t"}}, "did you mean 'topic'"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    from semistream.spark.sink_options import options_of, plan_of
    from semistream.spark.waiting import waiting_options

    plan = plan_of(options_of([ss.Lookup("x", on="k")], path=tmp_path / "out"))
    with pytest.raises(ss.ConfigError, match=says):
        waiting_options(plan, **options)


def test_a_state_that_leads_out_of_its_folder(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = Query(tmp_path, batch_time="2s")
    query.run(0, [batches(list(range(60)), 0)])
    (state,) = query.keeper.backlog.folder.glob("*.state")
    name = query.keeper.state.deferred[0].name
    state.write_text(state.read_text().replace(name, f"../{name}"))
    query.restart()
    with pytest.raises(ss.SemistreamError, match=r"damaged: .*is not the name of a file"):
        query.run(1, [[]])


def test_tasks_that_were_not_planned_serve_no_waiting_rows(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = Query(tmp_path, batch_time="2s")
    query.run(0, [batches(list(range(60)), 0)])
    turn = query.keeper.begin(1, 2, list)
    shares = [turn.share(turn.deferred, partition) for partition in range(4)]
    assert sorted(file.name for share in shares for file in share) == [
        file.name for file in turn.deferred
    ]


def test_a_folder_that_was_lost_is_noticed(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = Query(tmp_path, batch_time="2s")
    query.run(0, [batches(list(range(60)), 0)])
    other = Query(tmp_path, batch_time="2s", backlog=tmp_path / "elsewhere")
    with pytest.raises(ss.SemistreamError, match=r"rows of query query-1 wait, but .*missing"):
        other.run(1, [batches([1], 60)])


def test_a_drain_while_the_query_runs(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query, other = Query(tmp_path, batch_time="2s"), Query(tmp_path, batch_time="2s")
    query.run(0, [batches(list(range(60)), 0)])
    query.fault = lambda point: other.drain() if point == "staged" else None
    with pytest.raises(ss.SemistreamError, match="changed while batch 1 ran"):
        query.run(1, [batches(list(range(20)), 60)])
    query.fault = lambda point: other.drain() if point == "published" else None
    query.restart()
    query.run(1, [batches(list(range(20)), 60)])
    with pytest.raises(ss.SemistreamError, match="in use by the running query"):
        query.run(2, [batches(list(range(60)), 80)])
    query.fault = lambda point: None
    query.restart()
    query.run(2, [batches(list(range(60)), 80)])
    query.drain()
    assert numbers(query.rows()) == list(range(140))
