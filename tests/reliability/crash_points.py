"""Checks every state that a crash may leave of a recorded operation."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import pytest

from reliability.disk import KILLED, POWER, Crash, Loss, crashes
from reliability.recorder import Recorder

# Killed; power lost with everything unsynced, and with unsynced bytes lost by chance.
QUICK = (KILLED, POWER[0], POWER[-1])
QUICK_AND_SLOW = [
    pytest.param(QUICK, id="quick"),
    pytest.param((KILLED, *POWER), id="all", marks=pytest.mark.slow),
]


def try_all(
    recorder: Recorder, losses: Sequence[Loss], scratch: Path, check: Callable[[Path, Crash], None]
) -> int:
    """Lay out each state in a fresh folder and check it; the number of crash points.

    A state that several crash points share is checked once.
    """
    points = states = 0
    with mock.patch("os.fsync"):
        for crash in crashes(recorder.start, recorder.operations, losses):
            points += 1
            if crash is None:
                continue
            states += 1
            folder = scratch / str(states)
            folder.mkdir()
            crash.lay_out(folder)
            try:
                check(folder, crash)
            except BaseException as error:
                raise AssertionError(f"crash point {crash.what}: {error!r}") from error
            shutil.rmtree(folder)
    assert states >= 5, "too few operations were recorded"
    return points
