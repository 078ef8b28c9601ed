"""Every example runs by itself, and leaves nothing in the working folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servers import postgres_server

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout


def test_the_engine_only(tmp_path: Path) -> None:
    said = run("engine_only.py", tmp_path)
    assert "500,000 sales in, 500,000 rows out, version 2" in said


def test_a_table_with_history(tmp_path: Path) -> None:
    said = run("as_of_history.py", tmp_path)
    assert "100,000 sales with the price of their day" in said
    assert re.search(r"^[12]\d of the last 20,000 with a corrected price", said, re.MULTILINE)


@pytest.mark.slow
def test_spark_with_files(tmp_path: Path) -> None:
    said = run("spark_files.py", tmp_path)
    assert re.search(r"\| *200000\|", said)


@pytest.mark.slow
def test_a_star_of_three_tables(tmp_path: Path) -> None:
    said = run("star_join.py", tmp_path)
    # Three cities and the unknown customers, with two managers each.
    assert len(re.findall(r"\| *(?:Lyon|Bari|Gent|NULL)\| *(?:Ines|Olaf)\|", said)) == 8


@pytest.mark.slow
@pytest.mark.xdist_group("postgres")
def test_postgresql_in_and_out(tmp_path: Path) -> None:
    with postgres_server() as server:
        said = run("postgresql.py", tmp_path, str(server.get_uri()))
    assert "2,000 orders in example_orders, 2,000 of them distinct" in said


@pytest.mark.slow
def test_the_notebook(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / "skew_and_memory.ipynb", as_version=4)
    client.NotebookClient(
        notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert any("image/png" in out.get("data", {}) for out in outputs), "a plot"
    assert [out for out in outputs if out["output_type"] == "error"] == []
    assert list(tmp_path.iterdir()) == []


def test_the_notebook_is_stored_without_output() -> None:
    cells = json.loads((EXAMPLES / "skew_and_memory.ipynb").read_text())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    names = [path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")]
    assert len(names) == 7
    assert [name for name in names if f"]({name})" not in listed] == []
