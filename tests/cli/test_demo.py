"""The demo, made small."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import semistream as ss
from semistream.cli._demo_burst import Moment, run_burst
from semistream.cli.demo import app, run_demo
from semistream.testing import FakeClock

SMALL = ["--engine", "--rows", "20000", "--tuples", "50000", "--memory", "2MB"]


FURTHER = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.parametrize(
    "join",
    ["auto", *(pytest.param(name, marks=FURTHER) for name in ss.ALGORITHMS)],
)
def test_it_measures(join: str, tmp_path: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    result = run_demo(
        rows=20_000,
        tuples=20_000,
        memory="2MB",
        join=join,
        exponent=1.0,
        folder=tmp_path,
        progress=lambda *step: steps.append(step),
    )
    assert result.master_rows == 20_000
    assert result.stats["rows_out"] == result.stats["tuples_in"] == 20_000
    assert result.tuples_per_second > 0
    assert sum(result.memory.values()) <= result.budget == 2_000_000
    assert result.sample.num_rows == 5
    assert None not in result.sample["price"].to_pylist()
    assert [step for step in steps if step[1] == step[2]], "the bars reach their end"


def test_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    done = CliRunner().invoke(app, SMALL, env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    for word in ("tuples/s", "front stage", "pages", "window", "of 2.0 MB", "price"):
        assert word in done.output
    assert list(tmp_path.iterdir()) == [], "the demo leaves nothing behind"


def test_a_burst_is_shed_and_served_later(tmp_path: Path) -> None:
    moments: list[Moment] = []
    result = run_burst(
        rows=5_000,
        memory="1MB",
        join="chybridjoin",
        exponent=1.0,
        folder=tmp_path,
        show=moments.append,
        seconds=0.09,
        clock=FakeClock(tick=0.001),
    )
    assert result.rows == result.offered
    assert result.overload["shed"] > 0
    assert result.overload["returned"] == result.overload["shed"]
    assert result.offered_in_burst > result.served_in_burst
    assert result.peak_memory <= result.budget
    assert {"calm", "burst", "done"} <= {moment.phase for moment in moments}
    assert moments[-1].stored == 0
    assert "shed " in moments[-1].line()
