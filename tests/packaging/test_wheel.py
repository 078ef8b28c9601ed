"""The wheel: built, looked into, and installed into an empty environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import semistream as ss

ROOT = Path(__file__).parent.parent.parent


def test_there_is_one_version() -> None:
    """The code has it; the package's metadata are made from it, and the citation repeats it."""
    project = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project
    assert not re.search(r"^version\s*=", project, re.MULTILINE)
    assert f"\nversion: {ss.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {ss.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def started(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=280,
    )


def command(*words: str | Path, cwd: Path) -> str:
    done = started(*words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refused(*words: str | Path, cwd: Path) -> str:
    done = started(*words, cwd=cwd)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    pytest.importorskip("build")
    command(sys.executable, "-m", "build", "--wheel", "-o", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"semistream-{ss.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"semistream-{ss.__version__}.dist-info/METADATA").decode()
    assert "semistream/live/page.html" in names
    assert "semistream/py.typed" in names
    assert "semistream/spark/log4j2.properties" in names
    assert {name.split("/")[0] for name in names} == {
        "semistream",
        f"semistream-{ss.__version__}.dist-info",
    }, "no tests, no laboratory"
    assert "Provides-Extra: all" in metadata
    python = tmp_path / "venv" / "bin" / "python"
    command(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    command(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    semistream = python.parent / "semistream"
    assert "pip install 'semistream[cli]'" in refused(semistream, "--version", cwd=tmp_path)
    example = (ROOT / "docs/getting-started.md").read_text().split("```python\n")[1].split("```")[0]
    assert "'price': 9.99" in command(python, "-c", example, cwd=tmp_path)
    said = refused(python, "-c", "import semistream as ss; ss.enrich", cwd=tmp_path)
    assert "ss.enrich needs pyspark" in said
    assert "pip install 'semistream[spark]'" in said

    command(python, "-m", "pip", "install", "--quiet", f"{wheel}[cli]", cwd=tmp_path)
    assert command(semistream, "--version", cwd=tmp_path) == f"semistream {ss.__version__}\n"
    said = command(
        semistream, "demo", "--engine", "--rows", "5000", "--tuples", "5000", cwd=tmp_path
    )
    assert "5,000 tuples" in said
    assert "the demo needs pyspark" in refused(semistream, "demo", cwd=tmp_path)
