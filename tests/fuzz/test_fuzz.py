"""A few hundred cases with a fixed seed; ``make fuzz`` runs for a given time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import semistream as ss
from fuzz import worker
from fuzz.case import Case, _Play
from fuzz.faults import Disk

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("seed", range(1, 9))
def test_cases_with_a_fixed_seed(seed: int) -> None:
    tried: Counter[str] = Counter()
    disk = Disk()
    with disk.installed():
        worker.run_world(seed, range(30), disk, lambda case, done: tried.update([done]))
    assert tried == {False: 30, True: 30}


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_the_count_of_every_join_is_reported() -> None:
    done = command("--seed", "77", "--cases", "60", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines()[-11:])
    counts = {name.strip(): int(count) for name, count in counts.items()}
    total = counts.pop("all passed")
    assert list(counts) == list(ss.ALGORITHMS)
    assert sum(counts.values()) == total >= 60


def test_a_failure_reports_the_seed_of_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop one output row: the case fails, and its seed draws the same case again."""
    drawn: list[str] = []

    def careless(play: _Play) -> None:
        play.out = play.out[1:]
        drawn.append(str(play.case))
        raise AssertionError("a row is missing")

    monkeypatch.setattr(_Play, "_finish", careless)
    monkeypatch.setattr(_Play, "_close", careless)
    disk = Disk()
    for _ in range(2):
        with disk.installed(), pytest.raises(AssertionError, match=r"case 3\.7: "):
            worker.run_world(3, [7], disk, lambda case, done: None)
    assert drawn[0] == drawn[1]


def test_a_worker_that_dies_is_a_failure() -> None:
    member = worker.Worker([1 << 40])
    try:
        member.process.kill()
        member.process.join()
        assert "ended with -9" in str(member.failure())
    finally:
        member.stop()


def test_every_option_is_drawn() -> None:
    """A few hundred cases cover all joins, access modes, versions and ends."""
    with worker.scratch() as (folder, _):
        world = worker.World(5, folder)
        cases = [Case.draw(world, number) for number in range(300)]
    assert {case.algorithm for case in cases} == set(ss.ALGORITHMS)
    assert {case.access for case in cases} == {"read", "mapped", "resident", "direct"}
    assert {case.versions for case in cases} == {"newest", "pinned", "jumping", "changing"}
    assert {case.ends for case in cases} == {"flush", "close"}
    assert {case.faults for case in cases} == {True, False}
    assert {case.around.order for case in cases} == {None, "stream"}
    assert {case.around.mode for case in cases} == {None, "considering", "keep"}
    assert {case.where is None or case.where.operator for case in cases} >= {True, "<=", "!=", None}
