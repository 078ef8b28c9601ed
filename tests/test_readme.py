"""The README's example prints what the README says, and leaves nothing behind."""

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
START = (ROOT / "docs/getting-started.md").read_text()
CHOOSING = (ROOT / "docs/choosing-a-join.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.slow
def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    """In a separate process: it leaves a Spark session behind."""
    (example,) = blocks(README, "python")
    (expected,) = blocks(README, "text")
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=work,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected.strip()
    assert list(work.iterdir()) == [], "nothing is left in the working folder"


def test_the_example_without_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = [text for text in blocks(START, "python") if "MasterTable.build" in text]
    exec(compile(example, "getting-started.md", "exec"), {})
    printed = capsys.readouterr().out
    (expected,) = blocks(START, "text")
    assert printed.startswith(expected.removesuffix(" ...\n"))
    assert list(tmp_path.iterdir()) == [], "nothing is left in the working folder"


def test_the_readme_is_one_screen_and_a_half() -> None:
    assert len(README.splitlines()) <= 90


def test_the_front_page_of_the_docs_has_the_same_lines() -> None:
    front = (ROOT / "docs/index.md").read_text()
    for language in ("python", "text"):
        assert blocks(front, language) == blocks(README, language)


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_every_join_is_in_the_table(algorithm: str) -> None:
    assert f"[`{algorithm}`](algorithms/{algorithm}.md)" in CHOOSING
