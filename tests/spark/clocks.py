"""A clock that counts its calls, in the driver and in workers."""

from __future__ import annotations

import sys
from typing import Any


class Ticking:
    """Each call takes ``step`` seconds. A task has a copy that goes on from the driver's time."""

    def __init__(self, step: float = 1.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def by_value() -> Any:
    """Workers cannot import the tests: send this module's classes along."""
    from pyspark import cloudpickle

    return cloudpickle.register_pickle_by_value(sys.modules[__name__])
