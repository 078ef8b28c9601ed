"""CINLJ (003, which has no equations): INLJ behind a front stage.

Derived: INLJ's model for the tuples that miss. A key is counted in the temporary buffer, whose
span is short: a key must be seen twice in it, and the keys of earlier spans stay as long as
there is room (``front_stage.py``). The rows of keys that reach the threshold are offered to the
front stage. The threshold rises and falls with the evictions in a span, so a large front stage
is offered the rows of half of what misses, which costs more than it gains.
"""

from __future__ import annotations

import math

from semistream.cost.case import MOST_SERVED, Case
from semistream.cost.inlj import pooled
from semistream.cost.keys import Keys, poisson_tail
from semistream.cost.prediction import Prediction
from semistream.cost.window_stage import behind_front_stage, front_capacity
from semistream.engine.front.recorder import CHURN_LEAST, CHURN_MOST


def predict(case: Case) -> Prediction:
    span = float(case.join.recent_tuples)
    keys, hit = behind_front_stage(case, span, case.join.threshold, adapts=False)
    if case.front_share is not None:
        hit = min(case.front_share, MOST_SERVED)
    return pooled(case, keys, hit, offered_share(case, keys, span))


def offered_share(case: Case, missed: Keys, span: float) -> float:
    """The share of missed tuples whose rows are offered. The threshold is judged once in a span:
    it falls if few rows were offered, a Poisson variable, and rises after the next span."""
    present = span * (1.0 - case.traffic.absent)
    capacity = max(1, front_capacity(case))
    once, twice = (seen_keys(missed, present, least) for least in (1, 2))
    if once <= CHURN_MOST * capacity:
        return once / span  # it stays at 1
    falls = 1.0 - float(poisson_tail(twice, math.ceil(CHURN_LEAST * capacity)))
    at_one = falls / (1.0 + falls)
    return (at_one * once + (1.0 - at_one) * twice) / span


def seen_keys(keys: Keys, tuples: float, least: int) -> float:
    """Expected keys that come so often within so many tuples."""
    number = keys.counts * keys.active
    return float((number * poisson_tail(keys.probability * tuples, least)).sum())
