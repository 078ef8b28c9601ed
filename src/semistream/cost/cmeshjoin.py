"""CMESHJOIN (003, which has no equations): MESHJOIN behind a front stage.

Derived: the front stage holds the keys that were counted most often in one cycle
(``front_stage.py``). A tuple that hits costs a look-up and an output row, and no slot: the rate
is (w + hits) / cost of an iteration, as in 001 equation 3. The share that hits depends on the
length of a cycle in tuples, and this on the share: solved as a fixed point.
"""

from __future__ import annotations

from semistream.cost.case import Case
from semistream.cost.meshjoin import mesh
from semistream.cost.moving import at_rest
from semistream.cost.prediction import Prediction


def predict(case: Case) -> Prediction:
    return at_rest(case, lambda case: mesh(case, partition_pages=case.plan.buffer_pages))
