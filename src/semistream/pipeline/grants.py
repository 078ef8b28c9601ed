"""Divide the memory budget of a pipeline among its joins."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from semistream.memory import divide
from semistream.pipeline.model import Pipeline


@dataclass(frozen=True)
class Grants:
    """Bytes per executor. The look-ups share one grant; each step has its own."""

    lookups: int
    steps: Mapping[int, int]
    """By the index of the step."""


def with_memory(pipeline: Pipeline, masters: Sequence[Any]) -> Pipeline:
    """The pipeline with its budget in bytes: ``memory: auto`` is estimated from the rate."""
    if pipeline.memory != "auto":
        return pipeline
    from semistream.tuning.for_rate import memory_for_rate

    assert pipeline.rate is not None
    on = [lookup.on for lookup in pipeline.lookups]  # tables of steps have a key
    memory, _ = memory_for_rate(masters, pipeline.rate, pipeline.using, _workers(pipeline), on)
    return pipeline.model_copy(update={"memory": max(memory, 1 << 20)})


def _workers(pipeline: Pipeline) -> int:
    """How many tasks an executor runs at once, as far as the file says."""
    local = re.fullmatch(r"local\[(\d+)\]", str(pipeline.spark.get("spark.master", "")))
    cores = local[1] if local else str(pipeline.spark.get("spark.executor.cores", ""))
    return max(1, int(cores) if cores.isdigit() else os.cpu_count() or 1)


def grants(pipeline: Pipeline, masters: Sequence[Any]) -> Grants:
    """Divide by table size; the grants add up to the pipeline's memory, or to 0 without joins."""
    count = len(pipeline.lookups)
    sizes = [sum(master.nbytes for master in masters[:count])] if count else []
    sizes += [master.nbytes for master in masters[count:]]
    shares = divide(int(pipeline.memory), sizes)
    joining = [number for number, step in enumerate(pipeline.steps) if step.table is not None]
    lookups = shares.pop(0) if count else 0
    return Grants(lookups, dict(zip(joining, shares, strict=True)))
