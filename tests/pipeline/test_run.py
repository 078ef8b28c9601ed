"""``semistream run`` as a user meets it: a plan, a run, Ctrl-C, and on again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import naive
import semistream as ss

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from semistream.cli.run import app

PRODUCTS = pa.table({"product_id": range(0, 200, 2), "price": [i * 0.5 for i in range(100)]})
PIPELINE = """\
name: sales
source:
  format: parquet
  path: in
  schema: {sale_id: long, product_id: long, quantity: int}
  options: {maxFilesPerTrigger: 1}
lookups:
  - {master: products, on: product_id, select: [price]}
steps:
  - compute: {amount: quantity * price}
sink: {output: delta, path: out}
dead_letter: {path: dead}
checkpoint: checkpoint
memory: 64MB
spark: {spark.master: "local[2]", spark.driver.memory: 1g}
"""


def sales(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    quantity = pa.array([n % 7 for n in numbers], pa.int32())
    return pa.table(
        {"sale_id": numbers, "product_id": [n * 3 % 230 for n in numbers], "quantity": quantity}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ss.MasterTable.build(PRODUCTS, tmp_path / "products", key="product_id", unique=True)
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def feed(folder: Path, number: int) -> None:
    pq.write_table(sales(number * 100, 100), folder / f".{number}")
    (folder / f".{number}").rename(folder / "in" / f"{number}.parquet")


def test_a_dry_run_shows_the_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PLACE", "products")
    text = PIPELINE.replace("master: products", "master: '${PLACE}'")
    (folder / "pipeline.yaml").write_text(text)
    done = CliRunner().invoke(app, ["pipeline.yaml", "--dry-run"])
    assert done.exit_code == 0, done.output
    for words in (
        "100 rows",
        "inner on product_id",
        "unmatched   parquet dead",
        "2 from Spark to Python",
    ):
        assert words in done.output
    assert not (folder / "checkpoint").exists()
    assert "pyspark" not in done.output


def test_a_mistake_is_one_line_and_code_2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "pipeline.yaml").write_text(PIPELINE.replace("64MB", "much"))
    done = CliRunner().invoke(app, ["pipeline.yaml"])
    assert done.exit_code == 2
    assert "pipeline.yaml:14: memory: 'much'" in done.output


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_runs_stops_and_goes_on(folder: Path) -> None:
    from deltalake import DeltaTable

    feed(folder, 0)
    feed(folder, 1)
    script = "from semistream.cli import main; import sys; sys.argv[0] = 'semistream'; main()"
    command = [sys.executable, "-u", "-c", script, "run", "pipeline.yaml"]
    log = folder / "log"
    with open(log, "w") as out:
        running = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 200
        while "batch 1 |" not in log.read_text():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0, log.read_text()
    finally:
        if running.poll() is None:
            running.kill()
    assert "done: 200 rows" in log.read_text()
    assert "hit rate" in log.read_text()
    feed(folder, 2)
    again = subprocess.run(
        [*command, "--once", "--metrics", "metrics.jsonl"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=dict(os.environ),
    )
    assert again.returncode == 0, again.stdout + again.stderr
    everything = sales(0, 300)
    expected = [(*row, row[2] * row[3]) for row in naive.join(everything, PRODUCTS, "product_id")]
    naive.same_rows(naive.rows_of([DeltaTable(folder / "out").to_pyarrow_table()]), expected)
    dead = pq.read_table(folder / "dead").select(["sale_id", "product_id", "quantity"])
    unmatched = naive.join(everything, PRODUCTS, "product_id", "left_anti")
    naive.same_rows(naive.rows_of([dead]), unmatched)
    assert (folder / "metrics.jsonl").read_text().count("\n") == 1


@pytest.mark.slow
def test_the_driver_syncs_while_the_query_runs(folder: Path) -> None:
    """A failing sync is reported, and the query goes on; the next one succeeds."""
    from deltalake import DeltaTable

    def write(price: float) -> None:
        rows = PRODUCTS.set_column(1, "price", pa.array([price] * len(PRODUCTS)))
        pq.write_table(rows, folder / ".draft")
        (folder / ".draft").rename(folder / "source.parquet")

    def wait_for(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 250
        while not condition():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    write(1.0)
    followed = PIPELINE.replace(
        "select: [price]}",
        "select: [price], max_age: 1h, sync: {parquet: source.parquet, every: 1s}}",
    )
    (folder / "pipeline.yaml").write_text(followed)
    feed(folder, 0)
    script = "from semistream.cli import main; import sys; sys.argv[0] = 'semistream'; main()"
    arguments = ["run", "pipeline.yaml", "--metrics", "metrics.jsonl"]
    log = folder / "log"
    with open(log, "w") as out:
        running = subprocess.Popen(
            [sys.executable, "-u", "-c", script, *arguments],
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: "batch 0 |" in log.read_text())
        (folder / "source.parquet").rename(folder / "gone")
        wait_for(lambda: "warning: sync of products failed" in log.read_text())
        write(2.0)
        wait_for(
            lambda: ss.MasterTable.open(folder / "products").lookup([4])["price"][0].as_py() == 2
        )
        feed(folder, 1)
        wait_for(lambda: "batch 1 |" in log.read_text())
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0, log.read_text()
    finally:
        if running.poll() is None:
            running.kill()
    found = DeltaTable(folder / "out").to_pyarrow_table()
    prices = dict(zip(found["sale_id"].to_pylist(), found["price"].to_pylist(), strict=True))
    assert {price for sale, price in prices.items() if sale < 100} == {1.0}
    assert {price for sale, price in prices.items() if sale >= 100} == {2.0}
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    ages = [record["lookups"][0]["data_age_seconds"] for record in records]
    assert len(ages) == 2
    assert all(0 <= age < 100 for age in ages)
