"""What a case has beside the equality of keys: a condition, an order, load shedding.

The stream's column ``n`` and the master's column ``v`` count their rows, so that a comparison of
them holds for some pairs and not for others.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss

_OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "!=": operator.ne,
}


def _same_parity(stream: pa.RecordBatch, master: pa.RecordBatch) -> Any:
    return (np.asarray(stream["n"]) - np.asarray(master["v"])) % 2 == 0


@dataclass(frozen=True)
class Where:
    """``n operator v``; without an operator, a predicate: both are odd, or both are even."""

    operator: str | None

    @classmethod
    def draw(cls, rng: Random) -> Where | None:
        return cls(rng.choice((*_OPERATORS, None))) if rng.random() < 0.25 else None

    @property
    def condition(self) -> Any:
        if self.operator is None:
            return ss.Predicate(_same_parity, ["n"], ["v"])
        return ss.Compare("n", self.operator, "v")

    def holds(self, row: dict[str, Any], other: dict[str, Any]) -> bool:
        if self.operator is None:
            return (row["n"] - other["v"]) % 2 == 0
        return bool(_OPERATORS[self.operator](row["n"], other["v"]))


@dataclass(frozen=True)
class Around:
    """Rows in the order of the stream, or load shedding with a small buffer, or neither."""

    order: str | None
    mode: str | None  # of load shedding
    buffer: int

    @classmethod
    def draw(cls, rng: Random) -> Around:
        kind = rng.random()
        if kind < 0.15:
            return cls("stream", None, 0)
        if kind < 0.35:
            return cls(None, rng.choice(("considering", "keep")), rng.choice((2_000, 20_000)))
        return cls(None, None, 0)

    @property
    def is_ordered(self) -> bool:
        return self.order is not None

    @property
    def sheds(self) -> bool:
        return self.mode is not None

    def options(self, folder: Path) -> dict[str, Any]:
        """For ``join.open``; shed tuples go to ``folder``."""
        if self.mode is None:
            return {"order": self.order}
        return {"shedding": ss.Shedding(self.mode, store=folder), "buffer": self.buffer}
