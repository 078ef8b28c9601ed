"""The demo as a newcomer runs it, made small: a pipeline, a warehouse, an answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
    assert f"16,000 sales in the {output} warehouse, each exactly once" in done.stdout
    assert "top suppliers" in done.stdout
    assert "1 from Spark to Python" in done.stdout
    assert (tmp_path / "demo/pipeline.yaml").exists()
