"""Tuning: the join and the sizes of its parts that serve the most, from a sample of the stream."""

from __future__ import annotations

from semistream.tuning.calibrate import calibrate
from semistream.tuning.plan import OutOfReachError, TuningPlan
from semistream.tuning.tuner import predict_join as predict
from semistream.tuning.tuner import tune

__all__ = ["OutOfReachError", "TuningPlan", "calibrate", "predict", "tune"]
