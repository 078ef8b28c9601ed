"""The stream as the models see it."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.cost.keys import Keys


@dataclass(frozen=True, eq=False)
class Traffic:
    """How the tuples of a stream are distributed, and how they arrive."""

    keys: Keys
    clustered: bool = False  # keys that are frequent are close to each other in the table
    absent: float = 0.0  # share of tuples whose key is not in the table
    push: int = 50_000  # tuples per batch
    drained: bool = False  # nothing may wait when the next batch comes, as in a Spark task
