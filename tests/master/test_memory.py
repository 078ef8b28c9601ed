"""A build stays within its memory, however large the data is; measured from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = """
import json, sys
import numpy as np
import pyarrow as pa
import pyarrow.compute
from semistream.master import MasterTable

def status(field):
    line = next(line for line in open("/proc/self/status") if line.startswith(field))
    return int(line.split()[1]) * 1024

def batches(rows, kind):
    ids = np.random.default_rng(1).permutation(rows).astype(np.int32)
    for start in range(0, rows, 50_000):
        part = ids[start : start + 50_000].astype(np.int64)
        text = pa.array(part).cast(pa.string())
        wide = pa.compute.utf8_lpad(text, 80, "x")
        key = part if kind == "int" else pa.compute.utf8_lpad(text, 12, "0")
        yield pa.record_batch({"id": key, "price": part * 0.5, "name": wide})

rows, memory, kind, path = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
MasterTable.build(batches(1_000, kind), path + "-warm", key="id")
before = status("VmRSS")
table = MasterTable.build(batches(rows, kind), path, key="id", unique=True, memory=memory)
print(json.dumps({
    "rows": table.num_rows, "nbytes": table.nbytes, "growth": status("VmHWM") - before,
}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        pytest.param("int", 2_000_000, marks=pytest.mark.slow),
        ("text", 1_000_000),
    ],
)
def test_resident_memory_follows_the_budget(kind: str, rows: int, disk_path: Path) -> None:
    command = [sys.executable, "-c", BUILD, str(rows), "50MB", kind, str(disk_path / "t")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(run.stdout)
    assert result["rows"] == rows
    assert result["nbytes"] > 2 * 50e6, "the data must not fit"
    # 8 MB of shuffled ids and the current batches belong to the test, not to the build
    assert result["growth"] < 1.2 * 50e6 + 40e6, result
