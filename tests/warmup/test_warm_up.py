"""After a warm-up, no run compiles anything, whatever its join, its keys and its columns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semistream.engine.rows.copied_rows import CopiedRows
from semistream.warmup.compile_all import OPTIONS, cases, most_frequent_cases, run_case
from semistream.warmup.shapes import Tables

TESTS = Path(__file__).parents[1]
# Signatures are counted as they are used, so the cache may be filled: the test need not compile.
USED_LATER = """
import json, os, pkgutil, sys
from importlib import import_module
from semistream import kernels
from semistream.kernels.compile import KERNELS
from semistream.warmup.compile_all import warm_up

os.fsync = lambda descriptor: None
for module in pkgutil.iter_modules(kernels.__path__):
    import_module(f"semistream.kernels.{module.name}")

def used():
    return {f"{k.__module__}.{k.__name__} {s}" for k in KERNELS for s in k.signatures}

def is_unused(kernel):
    is_inlined = kernel.targetoptions.get("inline") == "always"
    return not is_inlined and not kernel._cache._cache_file._load_index()

result = warm_up()
before = used()
unused = [k.__name__ for k in KERNELS if is_unused(k)]

from fuzz.faults import Disk
from fuzz.worker import run_world
disk = Disk()
with disk.installed():
    for seed in range(int(sys.argv[1])):
        run_world(seed, range(5), disk, lambda case, done: None)
later = sorted(used() - before)
print(json.dumps({"unused": unused, "later": later, "signatures": result.signatures}))
"""


def python(code: str, *arguments: str, **env: str) -> str:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": path, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report() -> Any:
    return json.loads(python(USED_LATER, "15"))


@pytest.mark.slow
def test_no_kernel_is_forgotten(report: Any) -> None:
    assert report["unused"] == []
    assert report["signatures"] > 50


@pytest.mark.slow
def test_random_joins_use_no_signature_that_the_warm_up_did_not(report: Any) -> None:
    assert report["later"] == []


def test_every_option_belongs_to_a_join_that_is_run() -> None:
    assert set(OPTIONS) <= {case.algorithm for case in cases()}


@pytest.mark.parametrize("shape", ["int64", "int64, fixed"])
def test_rows_are_copied_out_of_pages(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SweepJoin does so in its first visits to pages that were read before."""
    calls: list[int] = []
    copy = CopiedRows.copy
    monkeypatch.setattr(CopiedRows, "copy", lambda *given: calls.append(1) or copy(*given))
    tables = Tables(tmp_path)
    for case in most_frequent_cases():
        if case.shape == shape:
            run_case(case, tables)
    assert calls


def test_a_query_competes_with_few_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    from semistream.warmup import __main__ as process

    lowered: list[int] = []
    monkeypatch.setattr(process.os, "nice", lowered.append)
    urgent = process.most_frequent_cases()
    assert cases()[: len(urgent)] == urgent
    assert {case.algorithm for case in urgent} == {"sweepjoin"}
    assert {case.shape for case in urgent} == {"int64", "int64, fixed"}
    for done in range(len(cases()) + 1):
        process.make_way(done, len(cases()))
        assert bool(lowered) == (done >= len(urgent))
    assert lowered == [10]
