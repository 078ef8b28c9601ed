"""CHYBRIDJOIN (003, which has no equations): HYBRIDJOIN behind a front stage.

Derived: HYBRIDJOIN's model (000) for the tuples that miss, whose keys are those that the front
stage does not hold (``front_stage.py``), with the hits added to w as in 001 equation 3. A key
is counted between two reads of its page.
"""

from __future__ import annotations

from semistream.cost.case import Case
from semistream.cost.hybridjoin import hybrid
from semistream.cost.moving import at_rest
from semistream.cost.prediction import Prediction


def predict(case: Case) -> Prediction:
    return at_rest(case, hybrid)
