"""A pipeline file in Spark: two consistent routes, one budget for all its joins."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from spark.streams import feed, master, products, sales
from spark.test_budget import held

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from semistream.pipeline import check, describe, load
from semistream.sinks import open_sink
from semistream.spark import pipeline as at_work

PIPELINE = """\
name: {name}
source:
  format: parquet
  path: {folder}/in
  schema: {{sale_id: long, product_id: long, note: string}}
  options: {{maxFilesPerTrigger: 1}}
lookups:
  - {{master: {folder}/products, on: product_id, select: [price]}}
sink: {{output: parquet, path: {folder}/out}}
checkpoint: {folder}/checkpoint
memory: 24MB
"""


def run(spark: Any, folder: Path, more: str = "") -> Any:
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.format(folder=folder, name=folder.name.replace("_", "-")) + more)
    loaded, document = load(file)
    masters = check(loaded, document)
    query = at_work.start(spark, loaded, masters, once=True)
    query.awaitTermination()
    return describe(loaded, document, masters)


class Dies:
    """A sink whose commit fails: the driver dies between two commits."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def __reduce__(self) -> Any:
        return copy.copy, (self._sink,)  # workers get the sink itself

    def commit(self, staged: Any, batch: Any) -> bool:
        raise OSError("the driver dies here")


STEPS = """\
steps:
  - surrogate_key: {{mapping: {folder}/keys, source: shop, key: note, to: key}}
  - new_only: {{master: {folder}/loaded, on: sale_id}}
"""


def ledgers(sessions: Any) -> set[Path]:
    return {path for path in sessions.folder.glob("local/*/semistream/*") if path.is_dir()}


def granted(before: set[Path], sessions: Any) -> list[int]:
    """Bytes that the workers hold of each budget that is new."""
    return [sum(held(path).values()) for path in ledgers(sessions) - before]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    master(tmp_path / "products")
    keys = {"of": ["shop"] * 600, "note": [f"sale {i}" for i in range(600)], "key": range(600)}
    master(tmp_path / "keys", pa.table(keys), key=["of", "note"])
    master(tmp_path / "loaded", pa.table({"sale_id": range(50)}), key="sale_id")
    feed(tmp_path / "in", sales(300))
    return tmp_path


def expected(rows: int) -> naive.Rows:
    found = naive.join(sales(rows), products(), "product_id", select=["price"])
    return [(row[0], row[1], row[3], row[0]) for row in found if row[0] >= 50]


@pytest.mark.slow
def test_all_joins_of_a_pipeline_share_its_memory(spark: Any, sessions: Any, folder: Path) -> None:
    """What the workers' ledgers grant for look-ups and steps adds up to what the plan says."""
    before = ledgers(sessions)
    plan = run(spark, folder, STEPS.format(folder=folder))
    grants = granted(before, sessions)
    assert len(grants) == 3
    assert 0 < sum(grants) <= 24_000_000
    assert "24.0 MB per executor, using auto: look-ups 8.0 MB, surrogate_key 8.0 MB" in plan
    naive.same_rows(naive.rows_of([pq.read_table(folder / "out")]), expected(300))


@pytest.mark.slow
def test_a_replay_between_two_commits_routes_every_row_as_before(
    spark: Any, sessions: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ledgers(sessions)
    more = STEPS.format(folder=folder) + f"dead_letter: {{path: {folder}/dead}}\n"
    with monkeypatch.context() as patch:
        patch.setattr(at_work, "open_sink", lambda *a, **o: Dies(open_sink(*a, **o)))
        with pytest.raises(Exception, match="dies here"):
            run(spark, folder, more)
    assert not list(folder.glob("dead/*.parquet"))
    # What was unmatched matches now, and what matched is gone.
    table = ss.MasterTable.open(folder / "products").upsert(products(400, stride=1))
    table.delete(pa.array(range(0, 800, 2)))
    run(spark, folder, more)
    naive.same_rows(naive.rows_of([pq.read_table(folder / "out")]), expected(300))
    lost = pq.read_table(folder / "dead").select(["sale_id", "product_id", "note"])
    unmatched = naive.join(sales(300), products(), "product_id", "left_anti")
    naive.same_rows(naive.rows_of([lost]), unmatched)
    assert 0 < sum(granted(before, sessions)) <= 24_000_000


@pytest.mark.slow
def test_a_pipeline_with_rows_that_wait(spark: Any, folder: Path) -> None:
    from typer.testing import CliRunner

    from semistream.cli.drain import app

    more = f"""\
batch_time: 1ms
parking: {{path: {folder}/parked, max_rows: 20}}
dead_letter: {{path: {folder}/dead}}
"""
    feed(folder / "in", sales(300, start=300))
    small = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(small)
    spark.conf.set(small, "30")
    try:
        plan = run(spark, folder, more)
    finally:
        spark.conf.set(small, before)
    assert "batch time  1ms" in plan
    assert "1 from Spark to Python" in plan
    matched = naive.join(sales(600), products(), "product_id", select=["price"])
    assert 0 < pq.read_table(folder / "out").num_rows < len(matched)
    done = CliRunner().invoke(app, [str(folder / "pipeline.yaml")])
    assert done.exit_code == 0, done.output
    assert "20 are parked" in done.output
    naive.same_rows(naive.rows_of([pq.read_table(folder / "out")]), matched)
    unmatched = naive.join(sales(600), products(), "product_id", "left_anti")
    assert pq.read_table(folder / "dead").num_rows == len(unmatched) - 20


@pytest.mark.slow
def test_steps_of_a_pipeline_with_rows_that_wait(spark: Any, folder: Path) -> None:
    more = STEPS.format(folder=folder) + f"batch_time: 1ms\nparking: {{path: {folder}/parked}}\n"
    feed(folder / "in", sales(300, start=300))
    small = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(small)
    spark.conf.set(small, "30")
    try:
        plan = run(spark, folder, more)
    finally:
        spark.conf.set(small, before)
    assert "4 from Spark to Python" in plan
    assert 0 < pq.read_table(folder / "out").num_rows < len(expected(600))
    pipeline, document = load(folder / "pipeline.yaml")
    masters = check(pipeline, document)
    assert at_work.drain_pipeline(pipeline, masters, spark)["deferred"] == 0
    naive.same_rows(naive.rows_of([pq.read_table(folder / "out")]), expected(600))
