"""The result of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Wait(NamedTuple):
    """Seconds that a tuple waits for its rows, while the stream comes as fast as it is served."""

    expected: float
    longest: float


@dataclass(frozen=True)
class Prediction:
    """What a join will do.

    An *iteration* is the join's own: a partition read by MESHJOIN or HYBRIDJOIN, a wave of INLJ, a
    visit of SweepJoin.
    """

    join: str
    memory: Mapping[str, int]  # bytes by component
    seconds_per_iteration: float
    tuples_per_iteration: float
    rate: float  # tuples per second
    front_share: float  # of the stream that the front stage serves
    wait: Wait
    pages_per_tuple: float
    work: Mapping[str, float] = field(default_factory=dict, repr=False)  # per tuple, by factor
    at_rest: Mapping[str, float] = field(default_factory=dict)  # options to which memory moves

    @property
    def total(self) -> int:
        """Bytes of all components."""
        return sum(self.memory.values())
