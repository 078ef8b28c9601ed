"""The options of a join change its speed, never its rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from conformance.suite import conform
from harness import Case

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
]


def spelled(options: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in options.items())


CASES = [Case(spelled(options), STREAM, MASTER, options=options) for options in SETTINGS]


def fields_of(algorithm: str) -> set[str]:
    return {field.name for field in dataclasses.fields(ss.ALGORITHMS[algorithm])}


@pytest.mark.parametrize(
    ("algorithm", "how", "case"),
    [
        pytest.param(algorithm, how, case, id=f"{algorithm}-{how}-{case.name}")
        for case in CASES
        for algorithm in ss.ALGORITHMS
        if set(case.options) <= fields_of(algorithm)
        for how in ("left", "left_semi")
    ],
)
def test_options(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))


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
        if set(options) <= fields_of(algorithm)
    ],
)
def test_options_that_cannot_be(algorithm: str, options: dict[str, Any]) -> None:
    with pytest.raises(ss.ConfigError) as refusal:
        ss.join(algorithm, **{"memory": "1MB", **options})
    for name, value in options.items():
        assert name in str(refusal.value)
        assert str(value) in str(refusal.value)


def test_an_unknown_join() -> None:
    with pytest.raises(ss.ConfigError) as refusal:
        ss.join("hashjoin", memory="1MB")
    assert "hashjoin" in str(refusal.value)
    assert "hybridjoin" in str(refusal.value)


def test_an_unknown_option() -> None:
    with pytest.raises((ss.ConfigError, TypeError), match="colour"):
        ss.join("hybridjoin", memory="1MB", colour="red")
