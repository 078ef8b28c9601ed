"""Runs the Spark tests with every supported version: ``python tests/spark_versions.py``.

Each version has an environment under ``.data/spark-versions/``, made on first use and updated when
pyproject.toml changes; they take about 1 GB each, and ``--discard`` removes each one after its
tests. A version takes two to four minutes; name one to run it alone. ``--short`` runs a few tests
with the oldest version, as a quick check.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".data" / "spark-versions"
VERSIONS = ("3.5", "4.0", "4.1", "4.2", "4.3")
PACKAGE = ".[delta,pipeline,postgres,spark]"
TOOLS = ("hypothesis", "pgserver", "psutil", "pytest>=8.2,<9.2", "pytest-timeout", "pytest-xdist")
QUICK = "not slow and not kafka"
TESTS = ("tests/spark", "tests/pipeline/test_run.py")
SHORT = (
    "tests/spark/test_versions.py",
    "tests/spark/test_build.py",
    "tests/spark/test_streaming.py",
    "tests/spark/test_steps.py",
)


def environment(version: str) -> Path:
    """The Python of this version's environment."""
    folder = ENVIRONMENTS / version
    python = folder / "bin" / "python"
    wanted = [PACKAGE, f"pyspark=={version}.*", *TOOLS]
    content = (ROOT / "pyproject.toml").read_text() + repr(wanted)
    stamp, digest = folder / ".installed", hashlib.sha256(content.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    print(f"==> installing Spark {version} into {folder.relative_to(ROOT)}", flush=True)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", *wanted], check=True, cwd=ROOT)
    stamp.write_text(digest)
    return python


def test(version: str, tests: tuple[str, ...], workers: int) -> bool:
    """Whether the tests pass; the reasons of all that are skipped are printed."""
    python = environment(version)
    print(f"==> Spark {version}", flush=True)
    start = time.monotonic()
    parallel = ("-n", str(workers), "--dist", "loadgroup") if workers > 1 else ()
    command = [str(python), "-m", "pytest", "-q", "-m", QUICK, *parallel, *tests]
    # The environment decides which pyspark is used, and nothing that was set for another one.
    kept = {n: v for n, v in os.environ.items() if n not in ("SPARK_HOME", "PYTHONPATH")}
    passed = subprocess.run(command, cwd=ROOT, env=kept).returncode == 0
    outcome = "passed" if passed else "FAILED"
    print(f"==> Spark {version} {outcome} in {time.monotonic() - start:.0f} s", flush=True)
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", metavar="version", help="default: all")
    parser.add_argument("--short", action="store_true", help="a few tests, the oldest version")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--discard", action="store_true", help="remove each environment afterwards")
    options = parser.parse_args()
    unknown = [version for version in options.versions if version not in VERSIONS]
    if unknown:
        parser.error(f"unknown version {unknown[0]}; choose from {', '.join(VERSIONS)}")
    versions = options.versions or (VERSIONS[:1] if options.short else VERSIONS)
    results = {}
    for version in versions:
        results[version] = test(version, SHORT if options.short else TESTS, options.workers)
        if options.discard:
            shutil.rmtree(ENVIRONMENTS / version)
    failed = [version for version, passed in results.items() if not passed]
    if failed:
        print(f"failed with Spark {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
