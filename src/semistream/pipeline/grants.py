"""Divide the memory budget of a pipeline among its joins."""

from __future__ import annotations

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


def grants(pipeline: Pipeline, masters: Sequence[Any]) -> Grants:
    """Divide by table size; the grants add up to the pipeline's memory, or to 0 without joins."""
    count = len(pipeline.lookups)
    sizes = [sum(master.nbytes for master in masters[:count])] if count else []
    sizes += [master.nbytes for master in masters[count:]]
    shares = divide(int(pipeline.memory), sizes)
    joining = [number for number, step in enumerate(pipeline.steps) if step.table is not None]
    lookups = shares.pop(0) if count else 0
    return Grants(lookups, dict(zip(joining, shares, strict=True)))
