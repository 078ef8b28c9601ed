"""The demo as a newcomer runs it, made small: a pipeline, a warehouse, an answer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semistream.cli._demo_pipeline import clear
from semistream.errors import ConfigError, SemistreamError

for module in ("pyspark", "pydantic", "yaml"):
    pytest.importorskip(module)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("output", ["delta", "parquet"])
def test_it_ends_with_an_answer(output: str, tmp_path: Path) -> None:
    # A process of its own: the demo stops its Spark session, and tests beside it have theirs.
    script = "from semistream.cli import main; import sys; sys.argv[0] = 'semistream'; main()"
    small = ["--rows", "20000", "--tuples", "16000", "--memory", "64MB", "--output", output]
    done = subprocess.run(
        [sys.executable, "-c", script, "demo", *small, "--folder", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said, folder = done.stdout, tmp_path / "demo"
    assert "4. The warehouse: 16,000 sales, each exactly once" in said
    assert len(re.findall(r"supplier +\d+ +[\d,]+ sales", said)) == 5
    assert re.search(
        rf"[\d,]+  semistream, the default join in 64MB, rows written to {output}", said
    )
    assert re.search(
        r"[\d,]+  Spark's stream\.join\(table\), heap of 1g, rows written to Parquet", said
    )
    assert list((folder / "own-join" / "rows").glob("*.parquet")), "both write files"
    assert not re.search("WARN |ERROR|log4j|Traceback", done.stderr), done.stderr
    assert f"report    {folder}/report.html" in said
    assert f"pipeline  {folder}/pipeline.yaml" in said
    assert "embedded" in (folder / "report.html").read_text()
    assert (folder / "pipeline.yaml").exists()


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="has other files; give an empty or a new folder"):
        clear(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_with_a_pipeline_of_ones_own_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text("name: production")
    (tmp_path / "warehouse").mkdir()
    with pytest.raises(ConfigError, match="has other files; give an empty or a new folder"):
        clear(tmp_path)
    assert (tmp_path / "warehouse").exists()


def test_a_demo_replaces_only_what_a_demo_made(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    clear(folder)  # an interrupted demo has not written its pipeline yet
    for name in ("report.html", "mine.txt"):
        (folder / name).write_text("")
    (folder / "sales").mkdir()
    (folder / "sales" / "000.parquet").write_text("")
    clear(folder)
    assert [path.name for path in folder.glob("[!.]*")] == ["mine.txt"]


def test_kernels_are_compiled_while_the_table_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.cli import _demo_story as story

    calls = []

    def prepare(demo: Any, progress: Any) -> None:
        calls.append("prepare")
        raise SemistreamError("far enough")

    monkeypatch.setattr(story, "warm_up_in_background", lambda: calls.append("compile"))
    monkeypatch.setattr(story.steps, "prepare", prepare)
    with pytest.raises(SemistreamError, match="far enough"):
        story.show_pipeline(100, 100, "10MB", "auto", 1.0, "parquet", tmp_path / "demo")
    assert calls == ["compile", "prepare"]
