"""The rate to expect of a run that nobody tuned: only where a calibration is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from harness import build
from semistream.cost import Machine
from semistream.tuning.calibration_file import save
from semistream.tuning.predicted import predicted_rate

ROWS = 4_000


@pytest.fixture
def master(tmp_path: Path) -> Any:
    table = pa.table({"k": range(ROWS), "v": range(ROWS)})
    return build(tmp_path / "table", table, ["k"])


@pytest.fixture(autouse=True)
def never_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a run must not calibrate")

    monkeypatch.setattr("semistream.tuning.tuner.calibrate", fail)


def batch(rows: int = 2_000) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array([i * 7 % ROWS for i in range(rows)])})


def rate(master: Any, rows: int = 2_000, **options: Any) -> float | None:
    join = ss.HybridJoin(memory="1MB", **options)
    return predicted_rate(join, master, batch(rows), "k", None, drained=True)


def test_without_a_calibration_nothing_is_predicted(master: Any) -> None:
    assert rate(master) is None


def test_with_one_it_is_what_predict_says(master: Any) -> None:
    save(master, Machine())
    found = rate(master)
    expected = ss.predict(
        ss.HybridJoin(memory="1MB"), master, sample=batch(), on="k", push=2_000, drained=True
    )
    assert found == pytest.approx(expected.rate)
    assert rate(master, rows=10) is None, "ten tuples say nothing"


@pytest.mark.parametrize("damage", ["{", "[]", '{"format_version": 99}', ""])
def test_a_damaged_calibration_predicts_nothing(master: Any, damage: str) -> None:
    save(master, Machine()).write_text(damage)
    assert rate(master) is None


def test_an_old_calibration_predicts_nothing(master: Any) -> None:
    path = save(master, Machine())
    content = json.loads(path.read_text()) | {"seconds": 0.0}
    path.write_text(json.dumps(content))
    assert rate(master) is None


def test_a_batch_that_does_not_fit_predicts_nothing(master: Any) -> None:
    save(master, Machine())
    other = pa.record_batch({"x": pa.array(range(2_000))})
    assert predicted_rate(ss.HybridJoin(), master, other, "k", None, drained=True) is None


def test_auto_has_a_predicted_rate_only_with_a_calibration(master: Any) -> None:
    rates = []
    for _ in range(2):
        with ss.join("auto", memory="1MB").open(master, on="k") as run:
            assert [*run.push(batch()), *run.flush()]
            assert run.why.startswith(run.join.name)  # type: ignore[attr-defined]
            rates.append(run.stats.predicted_rate)
        save(master, Machine())
    assert rates[0] is None
    assert rates[1] is not None
    assert rates[1] > 0
