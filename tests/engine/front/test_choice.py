"""Front stages by name, and invalid names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from semistream.engine.front.choice import (
    CACHES,
    check_front_stage,
    front_stage_size,
    new_front_stage,
)
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.front.recorder import FrequencyRecorder
from semistream.errors import ConfigError


def test_each_name_selects_its_class() -> None:
    kinds = {}
    for cache in CACHES:
        size = front_stage_size(cache, [pa.int64()], 10_000, 0.0)
        front = new_front_stage(cache, [pa.int64()], size, 7)
        kinds[cache] = type(front)
        assert front.threshold == (7 if cache == "recorder" else 1)
    assert kinds == dict(
        zip(CACHES, (FrequencyRecorder, CountingCache, CountingCache), strict=True)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0.2, 0, "recorder"), "threshold=0"),
        ((0.2, 1, "lru"), "cache='lru' is unknown"),
        ((0.2, 1, "counting with a sketch"), "unknown"),
        ((1.0, 1, "recorder"), "front_stage=1.0"),
        (("much", 1, "recorder"), "front_stage='much'"),
    ],
)
def test_invalid_choices_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_front_stage(*options)


def test_valid_choices_are_accepted() -> None:
    for part in (0.0, 0.5, 4096, "2MB"):
        for cache in CACHES[:2]:
            assert check_front_stage(part, 1, cache) is None
