"""The cost benchmark goes on where it stopped, and says what it found."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab import bench_cost, cost_cell, cost_report
from lab.bench_cost import SIZES, Results, Task, run, tasks
from lab.cost_cell import CostCell, Learning, Turns, case_of, in_turns, measure, middle_rate
from lab.cost_data import KINDS, CostData
from semistream.cost import Machine, predict


def rate_entry(name: str, join: str, rate: float, predicted: float) -> dict[str, Any]:
    cell = {
        "rows": 1,
        "percent": 1,
        "exponent": 1,
        "scattered": True,
        "drained": 0,
        "kind": "plain",
    }
    hits = {"hit": 0.5, "predicted_hit": 0.5}
    return {"name": name, "join": join, "rate": rate, "predicted": predicted, **hits, **cell}


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Results, "factors", lambda self, task: Machine())


def some_tasks(done: list[str]) -> list[Task]:
    def work(name: str, rate: float) -> Any:
        def measured(factors: Machine) -> dict[str, Any]:
            done.append(name)
            return rate_entry(name, name, rate, 1.1 * rate)

        return measured

    return [Task("rates", name, 1, "plain", work(name, 1e6 * i)) for i, name in enumerate("abc", 1)]


def test_a_slice_is_continued_and_never_mixed_with_another_commit(
    tmp_path: Path, no_tables: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, log = tmp_path / "cost.json", list[str]()
    done: list[str] = []
    clock = iter([0.0, 0.0, 1e9])
    monkeypatch.setattr(bench_cost.time, "perf_counter", lambda: next(clock, 1e9))
    assert run(some_tasks(done), Results(path, False, log.append), 1.0, log.append) == 2
    assert done == ["a"]
    monkeypatch.undo()
    monkeypatch.setattr(Results, "factors", lambda self, task: Machine())
    results = Results(path, False, log.append)
    assert run(some_tasks(done), results, 1.0, log.append) == 0
    assert done == ["a", "b", "c"]
    assert len(json.loads(path.read_text())["rates"]) == 3
    monkeypatch.setattr(bench_cost, "_commit", lambda: "another")
    assert Results(path, False, log.append).report["rates"] == []
    found = {target["target"]: target["value"] for target in results.report["summary"]["targets"]}
    assert found["median error"] == pytest.approx(0.1)
    assert found["share of predictions within 30 %"] == 1.0
    assert found["pairs of joins in the right order"] == 1.0


def test_the_best_of_several_passes_counts(tmp_path: Path, no_tables: None) -> None:
    rates = iter([3e6, 1e6, 2e6, 5e6])  # of two cells, in two passes
    done: list[str] = []

    def work(name: str) -> Any:
        def measured(factors: Machine) -> dict[str, Any]:
            done.append(name)
            return rate_entry(name, name, next(rates), 4e6)

        return measured

    todo = [Task("rates", name, 1, "plain", work(name)) for name in "ab"]
    results = Results(tmp_path / "cost.json", False, lambda text: None)
    assert run(todo, results, 1.0, lambda text: None, passes=1) == 0
    assert run(todo, results, 1.0, lambda text: None, passes=2) == 0
    assert done == ["a", "b", "a", "b"]
    found = {entry["name"]: entry for entry in results.report["rates"]}
    assert {name: entry["rate"] for name, entry in found.items()} == {"a": 3e6, "b": 5e6}
    assert found["a"]["passes"] == [3e6, 2e6]
    assert run(todo, results, 1.0, lambda text: None, passes=2) == 0
    assert len(done) == 4, "nothing is missing"


@pytest.mark.parametrize(
    ("part", "entry", "says"),
    [
        ("grid", {"rate": 95.0, "best": 100.0}, "0.95 of the best"),
        ("auto", {"rate": 9, "best": 10, "picked": "inlj", "best_join": "cinlj"}, "best cinlj"),
        ("least", {"out_of_reach": True}, "out of reach"),
        ("moved", {"last": 9, "tuned": 10, "seconds_until": 1.5}, "near after 1.5 s"),
        ("moved", {"last": 1, "tuned": 10, "seconds_until": None}, "near never"),
    ],
)
def test_lines(part: str, entry: dict[str, Any], says: str) -> None:
    assert says in cost_report.line(part, {"name": "x", **entry})


def test_every_part_has_tasks() -> None:
    for size in SIZES.values():
        found = tasks(size, list(bench_cost.PARTS), list(bench_cost.ss.ALGORITHMS))
        names = [(task.part, task.name) for task in found]
        assert len(set(names)) == len(names)
        assert {task.part for task in found} == set(bench_cost.PARTS)
        assert {task.kind for task in found} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_of_every_kind_of_table(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.cost_data.DATA", tmp_path)
    cell = CostCell("hybridjoin", 20_000, 20, kind=kind, warm_seconds=0.2, seconds=0.2)
    data = CostData(20_000, kind)
    data.prepare(lambda text: None)
    found = measure(cell)
    expected = predict(case_of(cell, data, Machine()))
    assert found["served"] > 0
    assert expected.pages_per_tuple == pytest.approx(found["pages_per_tuple"], rel=0.3)


@pytest.fixture
def small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.cost_data.DATA", tmp_path)
    CostData(20_000).prepare(lambda text: None)


@pytest.mark.slow
def test_runs_that_are_compared_are_open_together(small_table: None) -> None:
    short = {"warm_seconds": 0.05, "seconds": 0.02}
    cells = [CostCell(name, 20_000, 20, **short) for name in ("hybridjoin", "chybridjoin")]
    found = in_turns(cells, 3)
    assert list(found) == cells
    assert all(rate > 0 for rate in found.values())


def test_a_slow_second_of_the_host_is_not_in_a_rate() -> None:
    usual = [(100 + i, 1.0) for i in (-1, 0, 0, 1)]
    assert middle_rate([*usual, (20, 1.0), (30, 1.0), (140, 1.0), (150, 1.0)]) == 100.0
    assert middle_rate([(90, 3.0)]) == 30.0


def test_few_settings_are_all_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A brief measurement ends before a large front stage has learned."""
    cells = [CostCell("cinlj", 1, i) for i in range(1, 8)]
    brief, together = list[CostCell](), list[int]()

    def measured(cell: CostCell) -> dict[str, Any]:
        brief.append(cell)
        return {"rate": cell.percent}

    def turns(some: Any, *_: Any) -> dict[CostCell, float]:
        together.append(len(some))
        return {cell: 10.0 * cell.percent for cell in some}

    monkeypatch.setattr(bench_cost, "measure", measured)
    monkeypatch.setattr(bench_cost, "in_turns", turns)
    few = bench_cost.best_of(cells[:4], cells[4], 0.9)
    assert few == {cell: 10.0 * cell.percent for cell in cells[:5]}
    assert not brief
    many = bench_cost.best_of(cells, cells[0], 0.9)
    assert len(brief) == len(cells)
    assert sorted(cell.percent for cell in many) == [1, 6, 7]
    assert together == [5, 3]


def test_a_share_of_the_best_is_clear_on_either_side_of_the_target() -> None:
    tuned, best = (CostCell("cinlj", 1, percent) for percent in (1, 2))
    steady, shaky = [100, 101, 99, 100], [70, 130, 90, 105]
    turns = {name: [(rows, 1.0) for rows in each] for name, each in (("a", steady), ("b", shaky))}
    assert bench_cost.is_clear({tuned: turns["a"], best: [(120, 1.0)] * 4}, tuned, 0.95)
    assert bench_cost.is_clear({tuned: turns["a"], best: [(102, 1.0)] * 4}, tuned, 0.95)
    assert bench_cost.is_clear({tuned: [(160, 1.0)] * 4, best: turns["b"]}, tuned, 0.95)
    # It is ahead, but by chance perhaps.
    assert not bench_cost.is_clear({tuned: turns["b"], best: [(97, 1.0)] * 4}, tuned, 0.95)
    assert bench_cost.is_clear({tuned: turns["b"]}, tuned, 0.95)  # there is no other one
    assert not bench_cost.is_clear({tuned: turns["b"], best: [(104, 1.0)] * 4}, tuned, 0.95)
    assert not bench_cost.is_clear({tuned: [(100, 1.0)], best: [(120, 1.0)]}, tuned, 0.95)


@pytest.mark.slow
def test_turns_go_on_while_a_comparison_is_in_doubt(small_table: None) -> None:
    cell, asked = CostCell("hybridjoin", 20_000, 20, warm_seconds=0.05, seconds=0.02), list[int]()

    def is_decided(measured: Turns) -> bool:
        asked.append(len(measured[cell]))
        return len(asked) == 3

    in_turns([cell], 2, is_decided)
    assert asked == [2, 3, 4]


@pytest.mark.slow
def test_each_round_opens_the_runs_anew(small_table: None, monkeypatch: pytest.MonkeyPatch) -> None:
    cell, opened, measured = CostCell("hybridjoin", 20_000, 20, seconds=0.02), 0, list[int]()
    open_one = CostCell.open

    def counted(self: CostCell, data: CostData) -> Any:
        nonlocal opened
        opened += 1
        return open_one(self, data)

    monkeypatch.setattr(CostCell, "open", counted)
    monkeypatch.setattr(cost_cell, "middle_rate", lambda turns: measured.append(len(turns)) or 1.0)
    in_turns([cell], 2, rounds=3)
    assert opened == 3
    assert measured == [6]


def test_a_front_stage_has_learned_when_its_hits_stay() -> None:
    """In spans of four tuples per slot, and half as long again as all before."""
    stats = SimpleNamespace(rows_out=0, front_stage_hits=0)
    front = SimpleNamespace(capacity=100)
    run = SimpleNamespace(stats=stats, parts=(None, None, None, SimpleNamespace(front=front)))
    learning, found = Learning(), []
    for hits in (100, 200, 300, 301, 302, 302, 302):  # of 400 tuples
        stats.rows_out += 400
        stats.front_stage_hits += hits
        found.append(learning.is_over(run))
    assert found == [False] * 4 + [True] * 3


def test_results_are_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    from lab import cost_docs

    cells = [rate_entry("a", "inlj", 1e6, 1.2e6), rate_entry("b", "cinlj", 2e6, 2e6)]
    moved = [{"name": "x", "last": 9, "tuned": 10, "seconds_until": None}]
    report: dict[str, Any] = {part: [] for part in bench_cost.PARTS}
    report |= {"rates": cells, "moved": moved, "commit": "0123456789abcdef"}
    report["machine"] = {"processor": "a processor", "load": [0.1, 0.2, 0.3]}
    report["summary"] = cost_report.summary(report)
    page = tmp_path / "tuning.md"
    page.write_text(f"before\n{cost_docs.BEGIN}\nold\n{cost_docs.END}\nafter\n")
    cost_docs.write([report], page)
    cost_docs.write([report], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| median error | 0.10 | 0.15 | met |") == 1
    assert "| inlj | 1 | 20% | 20% |" in text
    assert "| x | 0.90 | never |" in text
    assert (tmp_path / "images" / "cost-rates.png").stat().st_size > 1_000


def test_changed_results_are_of_the_same_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a benchmark whose results are committed could not be continued."""
    asked: list[tuple[str, ...]] = []

    def git(*command: str) -> str:
        asked.append(command)
        return "abc" if command[0] == "rev-parse" else ""

    monkeypatch.setattr(bench_cost, "_git", git)
    assert bench_cost._commit() == "abc"
    assert not any("results" in word for word in asked[1])
