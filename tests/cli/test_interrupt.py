"""Ctrl-C, wherever it comes: one line, code 130, no traceback, no files left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.master import MasterTable

PIPELINE = """
name: orders
source: {format: json, path: orders, schema: {order_id: long, product_id: long}}
lookups: [{master: products, on: product_id}]
sink: {output: delta, path: warehouse}
checkpoint: checkpoint
"""
SCRIPT = "import sys; sys.argv[0] = 'semistream'; from semistream.command import main; main()"
ENGINE = ("demo", "--engine", "--rows", "300000", "--tuples", "30000000", "--memory", "20MB")


def interrupted(folder: Path, arguments: tuple[str, ...], seconds: float, said: str = "") -> str:
    """What the command prints to stderr if its terminal sends Ctrl-C after ``seconds``, or as
    soon as it has printed ``said``."""
    log = folder / "log"
    with open(log, "w") as out, open(folder / "errors", "w") as errors:
        running = subprocess.Popen(
            [sys.executable, "-u", "-c", SCRIPT, *arguments],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder / "temporary")},
            stdout=out,
            stderr=errors,
            start_new_session=True,  # a terminal interrupts a whole group of processes
        )
    try:
        deadline = time.monotonic() + 120
        while said not in log.read_text():
            assert running.poll() is None, (folder / "errors").read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        time.sleep(seconds)
        assert running.poll() is None, "it had ended before"
        os.killpg(running.pid, signal.SIGINT)
        code = running.wait(60)
    finally:
        if running.poll() is None:
            running.kill()
    text = (folder / "errors").read_text()
    assert code == 130, (code, text)
    return text


def lines_of(text: str) -> list[str]:
    """Without what the JVM of the tests says about its options."""
    noise = ("Picked up JAVA", "WARN", "Using Spark", "Setting default", "To adjust", "Using incub")
    return [x for x in text.splitlines() if x.strip() and not any(n in x for n in noise)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "temporary").mkdir()
    return tmp_path


def test_while_it_joins(folder: Path) -> None:
    text = interrupted(folder, ENGINE, 2.5)
    assert lines_of(text) == ["interrupted"]
    assert list((folder / "temporary").iterdir()) == [], "the demo's folder is removed"


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.8, 1.2, 1.8])
def test_while_it_starts(folder: Path, seconds: float) -> None:
    assert lines_of(interrupted(folder, ENGINE, seconds)) == ["interrupted"]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_while_spark_starts(folder: Path, seconds: float) -> None:
    """The JVM and Py4J say nothing, and Spark removes its folders."""
    for module in ("pyspark", "pydantic", "deltalake"):
        pytest.importorskip(module)
    rows = pa.table({"product_id": range(100), "price": [1.0] * 100})
    MasterTable.build(rows, folder / "products", key="product_id", unique=True)
    (folder / "orders").mkdir()
    (folder / "p.yaml").write_text(PIPELINE)
    text = interrupted(folder, ("run", "p.yaml"), seconds, said="transfers")
    noise = ("Picked up JAVA", "Using incubator modules")
    said = [x for x in text.splitlines() if x.strip() and not any(n in x for n in noise)]
    assert said == ["interrupted"]
    assert list((folder / "temporary").iterdir()) == []
