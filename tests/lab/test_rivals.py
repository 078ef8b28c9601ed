"""The rivals harness: missing, killed, slow and wrong rivals are reported as such."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from lab import bench_rivals, rivals
from lab.rivals import launch, limits, plot, report
from lab.rivals.cell import Cell
from lab.rivals.contract import Grant, Rival
from lab.rivals.data import RivalData
from lab.rivals.launch import KILLED
from lab.rivals.lookups import joined
from semistream import workload

ROWS = 2_000
FORMS = ("sort-merge, Parquet", "broadcast of the batch, cached")


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, disk_path: Path) -> Path:
    """Separate stores for the tests, with a tiny R."""
    monkeypatch.setenv("SEMISTREAM_LAB_DATA", str(disk_path / "data"))
    return disk_path / "data"


def cell(rival: str, variant: str, **changed: Any) -> Cell:
    settings: dict[str, Any] = {
        "rows": ROWS,
        "memory": "all",
        "exponent": 1.0,
        "batch": 500,
        "cold": False,
        "seed": 1,
        "check_tuples": 1_000,
        "check_seconds": 5.0,
        "warm_tuples": 1_000,
        "warm_seconds": 0.05,
        "repeats": 3,
        "repeat_seconds": 0.01,
        "time_limit": 20.0,
    }
    return Cell(rival, variant, **{**settings, **changed})


def measured(asked: Cell, limit: str = "auto") -> dict[str, Any]:
    kind, data = rivals.rival(asked.rival), RivalData(asked.rows, asked.seed)
    store = launch.prepare(kind, asked.variant, data, lambda line: None)
    return launch.run(asked, limit, store)


VARIANTS = [
    (name, variant)
    for name in rivals.ADAPTERS
    if name != "spark_static"
    for variant in rivals.rival(name).variants
    if name != "semistream" or variant in ("chybridjoin", "inlj")
]


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        q if q[0] in ("lmdb", "sqlite") else pytest.param(*q, marks=pytest.mark.slow)
        for q in VARIANTS
    ],
)
def test_every_rival_returns_the_correct_rows(name: str, variant: str) -> None:
    absent = rivals.missing(rivals.rival(name))
    if absent:
        pytest.skip(f"not installed: {absent}")
    memory = "10" if name == "lmdb" else "all"
    found = measured(cell(name, variant, memory=memory))
    assert found["outcome"] == "right", found
    assert len(found["rates"]) == 3
    assert found["interval"][0] <= found["rate"] <= found["interval"][1]
    assert found["checked_tuples"] == 1_000
    assert found["peak_anonymous"] > 2**20
    assert found["page_cache"].startswith("free")


# A JVM for each variant: two of them, one on Parquet and one cached, suffice to test the adapter.
# The benchmark itself fails if another variant returns wrong rows.
SPARK = [
    pytest.param(variant, marks=[] if variant in FORMS else [pytest.mark.rivals])
    for variant in rivals.rival("spark_static").variants
]


@pytest.mark.slow
@pytest.mark.parametrize("variant", SPARK)
def test_spark_returns_the_correct_rows(variant: str) -> None:
    found = measured(cell("spark_static", variant, time_limit=60.0))
    assert found["outcome"] == "right", found
    assert found["limit"] is None  # recorded: a JVM does not run under it


def test_a_rival_that_is_not_installed_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rivals.rival("polars"), "packages", ("no_such_package",))
    console = Console(record=True, width=200)
    results = bench_rivals.Results(tmp_path / "rivals.json")
    assert bench_rivals.installed(["polars", "sqlite"], results, console) == ["sqlite"]
    assert "polars is skipped: not installed: no_such_package" in console.export_text()
    assert "polars is skipped" in report.markdown(results, bench_rivals.grid.SIZES["small"])
    results.save()
    assert json.loads(results.path.read_text())["left_out"] == {
        "polars": "not installed: no_such_package"
    }


@pytest.mark.parametrize("kind", ["auto", "rlimit"])
def test_a_rival_killed_by_the_limit_is_reported_as_killed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200,000 rows in a dictionary take 80 MB more than the interpreter has here."""
    monkeypatch.setattr("lab.rivals.contract.PROCESS_ROOM", 120 << 20)
    found = measured(cell("dictionary", "of rows", rows=200_000, memory="1"), kind)
    assert found["outcome"] == KILLED
    assert "rate" not in found
    assert report.entry(found) == "killed"
    assert not report.is_wrong(found)


@pytest.mark.slow
def test_a_rival_that_is_too_slow_reports_its_progress() -> None:
    found = measured(cell("sqlite", "one by one", repeat_seconds=30.0, time_limit=1.5))
    assert found["outcome"] == "cut by the time limit"
    assert found["rate"] > 0
    assert found["interval"] is None
    assert report.entry(found).endswith("(cut)")


@pytest.mark.slow
def test_a_rival_that_is_killed_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB has a folder to spill to; killed after four seconds, it cannot remove it."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(launch, "GRACE", -56.0)
    found = measured(cell("duckdb", "R loaded", repeat_seconds=50.0, time_limit=60.0))
    assert found["outcome"].startswith("cut by the time limit while"), found
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("found", "late", "complaint", "said"),
    [
        ({"stage": "done", "cut": False}, False, "", "right"),
        ({"out_of_memory": "OutOfMemoryException"}, False, "", KILLED),
        ({"stage": "opening R"}, True, "", "cut by the time limit while opening R"),
        ({"stage": "opening R"}, False, "memory allocation of 9 bytes failed", KILLED),
        ({"stage": "opening R"}, False, "Segmentation fault", "failed: the process ended with"),
        ({"error": "ValueError: no"}, False, "", "failed: ValueError: no"),
    ],
)
def test_how_a_cell_ended(found: dict[str, Any], late: bool, complaint: str, said: str) -> None:
    limit = limits.Limit(1 << 20, None, "rlimit")
    assert launch.outcome(found, 1, limit, late, complaint).startswith(said)


def test_out_of_memory_without_a_limit_is_attributed_to_the_rival() -> None:
    limit = limits.Limit(1 << 20, None, "none")
    ended = launch.outcome({"out_of_memory": "Not enough memory"}, 0, limit, False, "")
    assert ended == "out of memory within its own limit"


def test_a_budget_that_is_refused_is_reported() -> None:
    found = measured(cell("semistream", "hybridjoin", memory="1"))
    assert found["outcome"].startswith("refused: ")
    assert report.entry(found) == "refused"


class Made(Rival):
    """Answers from the generator, with injected errors."""

    name = "made"
    variants = ("right",)

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.folder

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None: ...

    def open(self) -> None: ...

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        found = workload.product_rows(batch["product_id"].to_numpy(), seed=self.data.seed)
        yield joined(batch, found.columns[1:])

    def close(self) -> None: ...


def swapped(rows: pa.RecordBatch, name: str) -> pa.RecordBatch:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), rows[name].take(_turned(rows.num_rows)))


def _turned(n: int) -> pa.Array:
    return pa.array([*range(1, n), 0])


@pytest.mark.parametrize("name", ["product_id", "price", "supplier_id", "category", "description"])
def test_a_wrong_value_in_any_column_is_detected(name: str) -> None:
    data = RivalData(ROWS, 1)
    peer = Made("right", data, Grant(0, 500), False)
    sent = [next(data.endless(500))]
    (rows,) = peer.rows(sent[0])
    assert data.wrong([rows.slice(200), rows.slice(0, 200)], sent) is None
    assert name in str(data.wrong([swapped(rows, name)], sent))


def test_missing_and_repeated_rows_are_detected() -> None:
    data = RivalData(ROWS, 1)
    peer = Made("right", data, Grant(0, 500), False)
    sent = [next(data.endless(500))]
    (rows,) = peer.rows(sent[0])
    assert "1 sales missing" in str(data.wrong([rows.slice(1)], sent))
    assert "1 sales repeated" in str(data.wrong([rows, rows.slice(0, 1)], sent))


def test_a_wrong_answer_ends_the_run_with_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The cell's process expects another seed than that of R."""
    asked = cell("sqlite", "in batches", seed=1)
    kind, other = rivals.rival("sqlite"), RivalData(ROWS, 2)
    store = launch.prepare(kind, asked.variant, other, lambda line: None)
    mine = kind.store(asked.variant, RivalData(ROWS, 1))
    mine.parent.mkdir(parents=True)
    store.rename(mine)
    found = launch.run(asked, page_cache=mine)
    assert found["outcome"].startswith("wrong answer: a price")
    assert report.is_wrong(found)
    assert report.entry(found) == "WRONG ANSWER"


def test_a_join_is_warm_when_its_window_has_turned_over() -> None:
    data = RivalData(20_000, 1, exponent=0.5)
    kind = rivals.rival("semistream")
    launch.prepare(kind, "hybridjoin", data, lambda line: None)
    peer = kind("hybridjoin", data, Grant(600_000, 200), False)
    peer.open()
    stream, waiting = data.endless(200), []
    while not peer.warm:
        peer.serve(next(stream))
        waiting.append(peer.facts()["waiting"])
    peer.close()
    assert max(waiting) > 1_000
    filled = next(i for i, n in enumerate(waiting) if n > 0.98 * max(waiting))
    assert 200 * (len(waiting) - filled) > 0.9 * max(waiting)


@pytest.mark.slow
def test_cold_reads_are_reported() -> None:
    assert measured(cell("lmdb", "in batches", cold=True))["page_cache"].startswith("dropped")
    found = measured(cell("semistream", "chybridjoin", cold=True))
    assert found["outcome"] == "right"
    assert found["page_cache"].endswith("direct I/O")


def test_a_control_group_of_version_2_is_written(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    limit = limits.make(1 << 20, "cgroup v2", tmp_path)
    assert limit.kind == "cgroup v2"
    assert limit.group is not None
    assert (limit.group / "memory.max").read_text() == str(1 << 20)
    (limit.group / "memory.events").write_text("oom 2\noom_kill 1\n")
    assert limit.kills() == 1


def test_without_control_groups_there_is_an_rlimit(tmp_path: Path) -> None:
    assert limits.make(1 << 20, root=tmp_path).kind == "rlimit"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The whole benchmark on a tiny R, published into the test's folder."""
    settings = (500, 1.0, 500, 0.05, 2, 0.01, 10.0, "tiny.json")
    tiny = bench_rivals.grid.Size((ROWS,), *settings, centre_only=("sqlite",))
    monkeypatch.setitem(bench_rivals.grid.SIZES, "small", tiny)
    monkeypatch.setattr(bench_rivals, "DOCS", tmp_path)
    (tmp_path / "rivals.md").write_text("Before.\n\n<!-- table -->\nold\n<!-- end -->\n\nAfter.\n")
    return tmp_path


@pytest.mark.slow
def test_the_table_and_the_plot_are_written(small: Path) -> None:
    out = small / "rivals.json"
    common = ["--size", "small", "--out", str(out)]
    assert bench_rivals.main([*common, "--rivals", "dictionary"]) == 0
    first = json.loads(out.read_text())["cells"]
    assert bench_rivals.main([*common, "--rivals", "dictionary,sqlite", "--publish"]) == 0
    held = json.loads(out.read_text())
    assert held["cells"][: len(first)] == first  # kept, not measured again
    assert len(first) == 4  # two variants at the centre and with memory for all of R
    assert [cell["memory"] for cell in held["cells"]] == ["10"] * 2 + ["all"] * 2 + ["10"] * 2
    assert len(held["runs"]) == 2
    assert "duckdb" in held["runs"][1]["packages"]
    text = (small / "rivals.md").read_text()
    assert text.startswith("Before.")
    assert text.endswith("After.\n")
    assert "| dictionary | of positions |" in text
    assert "old" not in text
    assert (small / "rivals.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("cell", "drawn"),
    [
        ({"outcome": "right", "rate": 1.0, "steady": True}, plot.RATE),
        ({"outcome": "right", "rate": 1.0}, plot.RATE),  # a rival that has nothing to fill
        ({"outcome": "right", "rate": 1.0, "steady": False}, plot.FILLING),
        ({"outcome": "cut by the time limit", "rate": 0.0, "steady": False}, plot.FILLING),
        ({"outcome": "cut by the time limit", "rate": 1.0, "steady": True}, plot.RATE),
        ({"outcome": "cut by the time limit while opening R"}, plot.STOPPED),
        ({"outcome": KILLED}, plot.STOPPED),
        ({"outcome": KILLED, "rate": 1.0, "steady": False}, plot.STOPPED),
        ({"outcome": "refused: needs more"}, plot.STOPPED),
    ],
)
def test_a_filling_cell_is_not_drawn_as_killed(cell: dict[str, Any], drawn: str) -> None:
    assert plot.kind(cell) == drawn


def test_the_committed_plot_distinguishes_filling_from_killed() -> None:
    cells = bench_rivals.Results(bench_rivals.RESULTS / "rivals.json").cells.values()
    at_ease = [c for c in cells if c["rival"] == "semistream" and c["memory"] == "all"]
    assert plot.FILLING in {plot.kind(cell) for cell in at_ease}
    assert plot.STOPPED not in {plot.kind(cell) for cell in at_ease}


def test_an_unknown_rival_is_refused() -> None:
    with pytest.raises(SystemExit, match="unknown rival 'oracle'; choose from semistream"):
        bench_rivals.main(["--size", "small", "--rivals", "oracle"])
