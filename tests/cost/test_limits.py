"""Models at their limits: tables of any size, budgets of any size, streams of any kind."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from cost.shapes import case
from semistream.cost import predict
from semistream.errors import BudgetError


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(sorted(ss.ALGORITHMS)),
    rows=st.sampled_from([1, 300, 5_000, 400_000]),
    memory=st.sampled_from([200_000, 2_000_000, 100_000_000]),
    exponent=st.sampled_from([0.0, 1.0, 2.5]),
    clustered=st.booleans(),
    absent=st.sampled_from([0.0, 0.3, 1.0]),
    push=st.sampled_from([1, 1_000, 1_000_000]),
    drained=st.booleans(),
)
def test_a_prediction_is_always_a_number(
    name: str,
    rows: int,
    memory: int,
    exponent: float,
    clustered: bool,
    absent: float,
    push: int,
    drained: bool,
) -> None:
    found = case(
        name, memory, rows, exponent,
        clustered=clustered, absent=absent, push=push, drained=drained,
    )  # fmt: skip
    try:
        prediction = predict(found)
    except BudgetError:
        return
    for figure in (
        prediction.rate, prediction.seconds_per_iteration, prediction.tuples_per_iteration
    ):  # fmt: skip
        assert math.isfinite(figure)
        assert figure > 0
    assert 0 <= prediction.front_share <= 1
    assert 0 <= prediction.wait.expected <= prediction.wait.longest < math.inf
    assert prediction.pages_per_tuple >= 0
    assert prediction.total <= memory
