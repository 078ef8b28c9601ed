"""Cost models: what a join will do, from sizes alone. One file per algorithm, named as in
``joins/``.

    predict(Case(join, table_shape, stream_shape, traffic, machine)) -> Prediction

Nothing is opened. The memory comes from the memory plan that a run allocates by; the work from
the algorithm, the distribution of the keys and the plan; the seconds from the machine's
factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from semistream.cost import (
    chybridjoin,
    cinlj,
    cmeshjoin,
    hybridjoin,
    inlj,
    meshjoin,
    optimised_x_hybridjoin,
    r_meshjoin,
    sweepjoin,
    x_hybridjoin,
)
from semistream.cost.case import Case
from semistream.cost.keys import Keys, from_sample, uniform, zipf
from semistream.cost.machine import FACTORS, Machine
from semistream.cost.prediction import Prediction, Wait
from semistream.cost.traffic import Traffic

MODELS: Mapping[str, Callable[[Case], Prediction]] = MappingProxyType(
    {
        "meshjoin": meshjoin.predict,
        "r-meshjoin": r_meshjoin.predict,
        "inlj": inlj.predict,
        "hybridjoin": hybridjoin.predict,
        "x-hybridjoin": x_hybridjoin.predict,
        "optimised-x-hybridjoin": optimised_x_hybridjoin.predict,
        "cmeshjoin": cmeshjoin.predict,
        "chybridjoin": chybridjoin.predict,
        "cinlj": cinlj.predict,
        "sweepjoin": sweepjoin.predict,
    }
)


def predict(case: Case) -> Prediction:
    """The prediction of the join's own model."""
    return MODELS[case.join.name](case)


__all__ = [
    "FACTORS",
    "MODELS",
    "Case",
    "Keys",
    "Machine",
    "Prediction",
    "Traffic",
    "Wait",
    "from_sample",
    "predict",
    "uniform",
    "zipf",
]
