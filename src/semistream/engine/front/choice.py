"""The front stages by name. A join with a front stage can use either."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from semistream.engine.front.contract import CacheSize, FrontStage
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.front.recorder import FrequencyRecorder
from semistream.errors import ConfigError
from semistream.memory import check_part

CACHES = ("recorder", "counting", "counting with a sketch")


def check_front_stage(front_stage: float | int | str, threshold: int, cache: str) -> None:
    """Raise ConfigError for invalid options of a front stage."""
    check_part(front_stage, "front_stage")
    if threshold < 1:
        raise ConfigError(f"threshold={threshold!r}: must be at least 1")
    if cache not in CACHES[:2]:
        raise ConfigError(f"cache={cache!r} is unknown; choose one of {', '.join(CACHES[:2])}")


def front_stage_size(
    cache: str, types: Sequence[pa.DataType], nbytes: int, heap_per_row: float
) -> CacheSize:
    """The largest front stage that fits into ``nbytes``."""
    if cache == "recorder":
        return FrequencyRecorder.size_for(types, nbytes, heap_per_row)
    return CountingCache.size_for(types, nbytes, heap_per_row, sketch=cache != "counting")


def new_front_stage(
    cache: str, types: Sequence[pa.DataType], size: CacheSize, threshold: int
) -> FrontStage:
    if cache == "recorder":
        return FrequencyRecorder(types, size, threshold)
    return CountingCache(types, size, sketch=cache != "counting")
