"""CINLJ (003, which has no equations): INLJ behind a front stage.

Derived: INLJ's model for the tuples that miss. A key is counted in the temporary buffer, whose
span is short; so the keys of earlier spans stay as long as there is room (``front_stage.py``).
"""

from __future__ import annotations

from semistream.cost.case import Case
from semistream.cost.inlj import pooled
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import behind_front_stage


def predict(case: Case) -> Prediction:
    span = float(case.join.recent_tuples)
    keys, hit = behind_front_stage(case, span, case.join.threshold)
    if case.front_share is not None:
        hit = case.front_share
    return pooled(case, keys, hit, counts=True)
