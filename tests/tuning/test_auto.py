"""``auto``: which join it stands for, and that it passes everything on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from engine.kit import STREAM, pages_of, stream_shape, table_shape
from harness import build, drive
from semistream.engine.plan import plan_memory
from semistream.engine.shape import StreamShape
from semistream.errors import InternalError
from semistream.tuning.auto import AutoJoin, choose

OPTIONS: dict[str, Any] = {"memory": 123_456, "how": "left_anti", "disk_buffer_pages": 3}
SEEN = stream_shape(pa.record_batch({"k": [1], "a": [2]}, schema=STREAM))


def unordered() -> Any:
    source = pages_of([[1, 2], [3]])
    source.ordered = False
    return source


@pytest.mark.parametrize(("ordered", "kind"), [(True, ss.SweepJoin), (False, ss.MeshJoin)])
def test_the_page_index_decides(ordered: bool, kind: type[ss.Join]) -> None:
    """And neither the size of the table nor the budget."""
    assert AutoJoin(**OPTIONS).chosen(ordered) == kind(**OPTIONS)
    assert AutoJoin().chosen(ordered) == kind()
    for memory in (200_000, "1GB"):
        auto = AutoJoin(memory=memory)
        for pages in (1, 5_000):
            table = table_shape(pages, ordered=ordered)
            for stream in (StreamShape(), SEEN):
                assert plan_memory(auto, table, stream) == plan_memory(
                    kind(memory=memory), table, stream
                )


def test_a_budget_that_is_too_small_is_refused_in_the_name_of_auto() -> None:
    with pytest.raises(ss.BudgetError, match="for auto; the smallest budget that can is"):
        plan_memory(AutoJoin(memory=1_000), table_shape(), SEEN)


def test_opening_resolves_it(tmp_path: Path) -> None:
    rows = pa.table({"k": [2, 1, 3], "v": ["b", "a", "c"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    build(tmp_path / "table", rows, ["k"])
    batch = pa.record_batch({"k": [3, 9, 1]})
    for path, name in ((tmp_path / "table", "sweepjoin"), (tmp_path / "rows.parquet", "meshjoin")):
        with ss.join("auto", memory="1MB", how="left").open(path, on="k", select={"v": "w"}) as run:
            assert run.join.name == name
            out = pa.Table.from_batches(drive(run, [batch])).sort_by("k")
        assert out.to_pydict() == {"k": [1, 3, 9], "w": ["a", "c", None]}


def test_unresolved_it_has_no_policy() -> None:
    auto = AutoJoin()
    with pytest.raises(InternalError, match="auto was not resolved"):
        auto.policy(auto, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [None, "left"])
def test_choose_checks_the_source_and_sets_how(how: str | None) -> None:
    ordered = pages_of([[1, 2], [3]])
    expected = {**OPTIONS, "how": how or OPTIONS["how"]}
    assert choose(AutoJoin(**OPTIONS), ordered, how) == AutoJoin(**expected)
    drained = choose(AutoJoin(**OPTIONS), unordered(), how, drained=True)
    assert drained == AutoJoin(**expected, drained=True)
    assert choose(ss.HybridJoin(**OPTIONS), ordered, how) == ss.HybridJoin(**expected)
    assert choose(ss.ReducedMeshJoin(**OPTIONS), unordered(), how) == ss.ReducedMeshJoin(**expected)


def test_choose_refuses_what_could_not_run() -> None:
    with pytest.raises(ss.ConfigError, match="hybridjoin needs a page index"):
        choose(ss.HybridJoin(), unordered())
    with pytest.raises(ss.ConfigError, match="how='outer' is unknown"):
        choose(AutoJoin(), unordered(), "outer")


def test_the_first_batch_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line says why; the answer is the same."""
    from semistream import workload
    from semistream.tuning import auto

    rows = workload.products(5_000, 60, seed=1).read_all()
    master = build(tmp_path / "table", rows, ["product_id"])
    batch = next(iter(workload.sales(3_000, 5_000, 1.0, 1, batch_rows=3_000)))
    with (
        caplog.at_level("INFO", "semistream.auto"),
        ss.join("auto", memory="1MB").open(master, on="product_id") as run,
    ):
        out = [*run.push(batch), *run.push(batch), *run.flush()]
        assert run.stats.tuples_in == run.stats.matched == 6_000
        assert run.memory.total <= 1_000_000
    assert sum(part.num_rows for part in out) == 6_000
    assert [record.message.startswith("auto: ") for record in caplog.records] == [True]
    assert "tuples/s" in caplog.records[0].message
    assert auto.join("auto") == AutoJoin()


def test_a_better_join_takes_over_before_anything_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.tuning import auto

    table = pa.table({"k": range(2_000), "v": range(2_000)})
    master = build(tmp_path / "table", table, ["k"])
    chosen = ss.MeshJoin(memory="1MB")
    monkeypatch.setattr(auto, "decide", lambda *_: auto.Choice(chosen, "because", 1e6))
    batch = pa.record_batch({"k": pa.array(range(1_000, 2_500))})
    with ss.join("auto", memory="1MB").open(master, on="k", where=None) as run:
        stats = run.stats
        assert run.join.name == "sweepjoin"
        list(run.push(batch.slice(0, 0)))
        run.use(1)
        with pytest.raises(ss.SchemaError):
            run.push(pa.record_batch({"other": pa.array(range(1_500))}))
        out = [*run.push(batch), *run.flush()]
        assert run.join == chosen
        assert run.stats is stats
        assert run.stats.predicted_rate == 1e6
        assert run.stats.rate is not None
        assert run.stats.rate > 0
        assert "predicted_rate" not in run.stats.as_dict()
        assert run.stats.matched == 1_000
        assert run.version == 1
    assert sum(part.num_rows for part in out) == 1_000


def test_a_prediction_that_fails_does_not_stop_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from semistream.tuning import auto

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(auto, "decide", fail)
    master = build(tmp_path / "table", pa.table({"k": range(2_000)}), ["k"])
    with ss.join("auto", memory="1MB", how="left_semi").open(master, on="k") as run:
        out = [*run.push(pa.record_batch({"k": pa.array(range(1_500))})), *run.flush()]
    assert sum(part.num_rows for part in out) == 1_500
    assert "no prediction could be made" in caplog.text


def test_a_closed_run_stays_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semistream.tuning import auto

    master = build(tmp_path / "table", pa.table({"k": range(2_000)}), ["k"])
    monkeypatch.setattr(auto, "decide", lambda *_: auto.Choice(ss.MeshJoin(), "because"))
    run = ss.join("auto", memory="1MB").open(master, on="k")
    run.close()
    with pytest.raises(ss.ConfigError, match="closed"):
        run.push(pa.record_batch({"k": pa.array(range(1_500))}))


@pytest.mark.parametrize("when", ["open", "push"])
def test_a_better_join_that_fails_is_not_used(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a tuple too wide for it: what SweepJoin can do, auto can do."""
    from semistream.engine.run import Run
    from semistream.tuning import auto

    master = build(tmp_path / "table", pa.table({"k": range(2_000)}), ["k"])
    better = ss.MeshJoin(memory=1_000 if when == "open" else "1MB")
    monkeypatch.setattr(auto, "decide", lambda *_: auto.Choice(better, "because", 1.0))
    push, runs = Run.push, []

    def refuse(run: Any, batch: Any) -> Any:
        runs.append(run)
        if run.join.name == "meshjoin":
            raise ss.BudgetError("too wide")
        return push(run, batch)

    monkeypatch.setattr(Run, "push", refuse)
    with ss.join("auto", memory="1MB").open(master, on="k") as run:
        out = [*run.push(pa.record_batch({"k": pa.array(range(1_500))})), *run.flush()]
        assert run.join.name == "sweepjoin"
        assert run.stats.matched == run.stats.tuples_in == sum(part.num_rows for part in out)
        assert run.stats.predicted_rate is None
    assert [one.join.name for one in runs] == ["meshjoin", "sweepjoin"][when == "open" :]
    assert all(one._closed for one in runs)
    assert "sweepjoin, as meshjoin failed" in caplog.text


def test_drained_batches_of_another_size_decide_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.tuning import auto

    master = build(tmp_path / "table", pa.table({"k": range(2_000)}), ["k"])
    asked: list[int] = []

    def decide(join: AutoJoin, source: Any, seen: Any) -> Any:
        asked.append(seen.traffic.push)
        name = "inlj" if seen.traffic.push < 5_000 else "sweepjoin"
        return auto.Choice(join.named(name), "because", 1.0)

    monkeypatch.setattr(auto, "decide", decide)
    joins, rows = [], 0
    with ss.join("auto", memory="1MB", drained=True).open(master, on="k") as run:
        for number in (1_000, 2_000, 100, 20_000, 30_000, 1_500):
            keys = pa.array([i % 2_000 for i in range(number)])
            batch = pa.record_batch({"k": keys})
            rows += sum(out.num_rows for out in [*run.push(batch), *run.flush()])
            joins.append(run.join.name)
        assert run.stats.matched == run.stats.tuples_in == rows == 54_600
    assert asked == [1_000, 20_000, 1_500]
    assert joins == ["inlj"] * 3 + ["sweepjoin"] * 2 + ["inlj"]
