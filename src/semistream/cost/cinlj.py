"""CINLJ (003, which has no equations): INLJ behind a front stage.

Derived: INLJ's model for the tuples that miss. A key is counted in the temporary buffer, whose
span is short: a key must be seen twice in it, and the keys of earlier spans stay as long as
there is room (``front_stage.py``).
"""

from __future__ import annotations

from semistream.cost.case import MOST_SERVED, Case
from semistream.cost.inlj import pooled
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import behind_front_stage


def predict(case: Case) -> Prediction:
    span = float(case.join.recent_tuples)
    keys, hit = behind_front_stage(case, span, case.join.threshold, adapts=False)
    if case.front_share is not None:
        hit = min(case.front_share, MOST_SERVED)
    return pooled(case, keys, hit, counts=True)
