"""A Python of the workers that cannot join is refused before a task fails in it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from semistream.errors import ConfigError
from semistream.spark.worker_python import check_worker_python


def session(python: str, master: str = "local[2]") -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python))


def script(folder: Path, text: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_without_the_packages(tmp_path: Path) -> None:
    bare = script(tmp_path, f'exec {sys.executable} -I -S "$@"')
    with pytest.raises(ConfigError) as caught:
        check_worker_python(session(bare))
    assert str(caught.value) == (
        f"Spark's workers run {bare}, which has no semistream; activate the environment of "
        f"{sys.executable}, or set PYSPARK_PYTHON to it before the session is started"
    )
    check_worker_python(session(bare, "spark://host:7077"))  # only its executors know


def test_another_python_with_the_packages(tmp_path: Path) -> None:
    check_worker_python(session(script(tmp_path, f'exec {sys.executable} "$@"')))


def test_the_same_python() -> None:
    check_worker_python(session(sys.executable))


@pytest.mark.parametrize("text", ["exit 3", "echo"])
def test_a_python_that_does_not_answer_is_left_to_spark(tmp_path: Path, text: str) -> None:
    check_worker_python(session(script(tmp_path, text)))
    check_worker_python(session(str(tmp_path / "absent")))
