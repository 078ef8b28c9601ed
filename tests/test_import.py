"""What ``import semistream`` loads and costs, seen from a fresh process."""

from __future__ import annotations

import subprocess
import sys

import pytest


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["numba", "pyspark", "pandas", "typer", "rich"])
def test_import_does_not_load_heavy_modules(module: str) -> None:
    assert python(f"import sys, semistream; print({module!r} in sys.modules)") == "False"


def test_every_public_name_exists() -> None:
    import semistream as ss

    for name in ss.__all__:
        assert getattr(ss, name) is not None
    names = "MasterTable join ALGORITHMS HybridJoin SemistreamError ConfigError SchemaError"
    assert set(names.split()) <= set(ss.__all__)
    assert set(ss.__all__) <= set(dir(ss))


def test_import_costs_a_tenth_of_a_second_at_most() -> None:
    """In addition to pyarrow; CPU time, because the machine may be busy."""
    code = """
import time
import pyarrow
start = time.process_time()
import semistream
print(time.process_time() - start)
"""
    assert min(float(python(code)) for _ in range(7)) <= 0.1
