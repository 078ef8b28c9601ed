"""``semistream warm-up``: the command; tests/warmup tests what it compiles."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from semistream.cli import warm_up as command
from semistream.warmup import background
from semistream.warmup.compile_all import WarmUp


def test_it_prints_how_many_kernels_were_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def fake(progress: Callable[[int, int], None] = lambda done, total: None) -> WarmUp:
        progress(1, 2)
        seen.append((1, 2))
        return WarmUp(compiled=3, signatures=80, seconds=1.25)

    monkeypatch.setattr(command, "warm_up", fake)
    for arguments in ([], ["--quiet"]):
        done = CliRunner().invoke(command.app, arguments)
        assert done.exit_code == 0, done.output
        assert "3 kernels compiled, 80 in the cache, 1.2 s" in done.output
    assert len(seen) == 2


def test_help_names_the_command() -> None:
    code = "from semistream.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "warm-up", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "NUMBA_CACHE_DIR" in done.stdout


def test_a_background_warm_up_that_cannot_start_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading

    from semistream.kernels import cache_folder

    def fails(*arguments: object, **options: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(background, "_started", threading.Lock())
    monkeypatch.setattr(cache_folder, "is_complete", lambda: False)
    monkeypatch.setattr(background.subprocess, "Popen", fails)
    assert background.warm_up_in_background() is None


def test_a_complete_cache_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from semistream.kernels import cache_folder

    started: list[object] = []
    monkeypatch.setattr(background, "_started", threading.Lock())
    monkeypatch.setattr(cache_folder, "is_complete", lambda: True)
    monkeypatch.setattr(background.subprocess, "Popen", lambda *a, **o: started.append(a))
    assert background.warm_up_in_background() is None
    assert started == []
