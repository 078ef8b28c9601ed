"""The options of a join change its speed, never its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from conformance.suite import conform
from harness import Case, check_pinned, cut, drive, takes

KEYS = np.random.default_rng(1).zipf(1.4, 400) % 700
STREAM = pa.table({"n": range(400), "k": KEYS * 3})
MASTER = pa.table({"k": range(2000), "v": range(2000)})

SETTINGS: list[dict[str, Any]] = [
    {"disk_buffer_pages": 1},
    {"disk_buffer_pages": 3},
    {"disk_buffer_pages": 7},
    {"front_stage": 0.1},
    {"front_stage": 0.6},
    {"front_stage": "2KiB"},
    {"threshold": 1},
    {"threshold": 3},
    {"threshold": 10_000},
    {"pinned": 0.2},
    {"pinned": "3KiB"},
    {"hot_keys": [0, 3, 6, 9]},
    {"hot_keys": [100_000, 3]},
    {"observe": 1},
    {"observe": 50, "pinned": 0.4},
]


def spelled(options: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items())


CASES = [Case(spelled(options), STREAM, MASTER, options=options) for options in SETTINGS]


@pytest.mark.parametrize(
    ("algorithm", "how", "case"),
    [
        pytest.param(algorithm, how, case, id=f"{algorithm}-{how}-{case.name}")
        for case in CASES
        for algorithm in ss.ALGORITHMS
        if all(takes(algorithm, option) for option in case.options)
        for how in ("left", "left_semi")
    ],
)
def test_options(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))


@pytest.mark.parametrize("algorithm", [name for name in ss.ALGORITHMS if takes(name, "observe")])
@pytest.mark.parametrize("how", naive.HOWS)
def test_observed_hot_pages_are_pinned(algorithm: str, how: str, master_of: Any) -> None:
    """The stream continues afterwards, so both pinned pages and pages on disk serve it."""
    case = CASES[0]
    join = ss.join(algorithm, memory="60KB", how=how, observe=50, pinned="20KB")
    with join.open(master_of(case), on="k") as run:
        out = drive(run, cut(STREAM, 40))
        check_pinned(run)
    naive.same_rows(naive.rows_of(out), case.expected(how))


BAD: list[dict[str, Any]] = [
    {"disk_buffer_pages": 0},
    {"disk_buffer_pages": 1.5},
    {"front_stage": -0.1},
    {"front_stage": 1.5},
    {"threshold": -1},
    {"pinned": 2.0},
    {"pinned": "some"},
    {"how": "outer"},
    {"memory": "lots"},
    {"memory": 0},
    {"memory": -5},
    {"memory": None},
    {"memory": True},
]


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        pytest.param(algorithm, options, id=f"{algorithm}-{spelled(options)}")
        for algorithm in ss.ALGORITHMS
        for options in BAD
        if all(takes(algorithm, option) for option in options)
    ],
)
def test_invalid_options(algorithm: str, options: dict[str, Any]) -> None:
    with pytest.raises(ss.ConfigError) as refusal:
        ss.join(algorithm, **{"memory": "1MB", **options})
    for name, value in options.items():
        assert name in str(refusal.value)
        assert str(value) in str(refusal.value)


def test_an_unknown_join() -> None:
    with pytest.raises(ss.ConfigError) as refusal:
        ss.join("zigzag", memory="1MB")
    assert "zigzag" in str(refusal.value)
    assert "hybridjoin" in str(refusal.value)


def test_an_unknown_option() -> None:
    with pytest.raises((ss.ConfigError, TypeError), match="colour"):
        ss.join("hybridjoin", memory="1MB", colour="red")
