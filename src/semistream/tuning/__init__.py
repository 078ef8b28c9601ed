"""Tuning: the join and the sizes of its parts that serve the most, from a sample of the stream."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semistream.tuning.plan import OutOfReachError, TuningPlan
    from semistream.tuning.tuner import predict_join as predict
    from semistream.tuning.tuner import tune

__all__ = ["OutOfReachError", "TuningPlan", "predict", "tune"]

# Loaded on first use: a Spark worker that opens ``auto`` needs none of them to start.
_FROM = {
    "OutOfReachError": ("plan", "OutOfReachError"),
    "TuningPlan": ("plan", "TuningPlan"),
    "predict": ("tuner", "predict_join"),
    "tune": ("tuner", "tune"),
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, original = _FROM[name]
    found = getattr(import_module(f"{__name__}.{module}"), original)
    globals()[name] = found
    return found
