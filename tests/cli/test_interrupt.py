"""Ctrl-C, wherever it comes: one line, code 130, no traceback, no files left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
