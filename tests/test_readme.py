"""The README's examples work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import semistream as ss

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def run(example: str) -> None:
    exec(compile(example, "README.md", "exec"), {})


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = [text for text in EXAMPLES if "pyspark" not in text]
    run(example)
    printed = capsys.readouterr().out
    assert printed.count("'price': 9.99") == 3
    assert printed.count("'price': None") == 1


@pytest.mark.xdist_group("spark-local")
def test_the_example_with_spark_runs(tmp_path: Path) -> None:
    """In a separate process: it leaves a Spark session behind."""
    (example,) = [text for text in EXAMPLES if "pyspark" in text]
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| *9\.99\| *50000\|", done.stdout), done.stdout


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_every_join_is_in_the_table(algorithm: str) -> None:
    assert f"[`{algorithm}`](docs/algorithms/{algorithm}.md)" in README
