"""More memory never predicts a lower best rate, also where a large window misses the processor's
caches and a smaller one would be faster."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cost.shapes import STREAM_SHAPE, table
from semistream.cost import Machine, Traffic, zipf
from semistream.tuning.sample import Observed
from semistream.tuning.tuner import Tuner


def best_rate(join: str, rows: int, exponent: float, memory: int, drained: bool) -> float:
    traffic = Traffic(zipf(rows, exponent), push=20_000, drained=drained)
    seen = Observed(table(rows), STREAM_SHAPE, traffic)
    return Tuner(seen, Machine(), [join], "inner", None).best(memory).rate


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    join=st.sampled_from(["meshjoin", "hybridjoin", "inlj", "cinlj", "sweepjoin"]),
    rows=st.sampled_from([500_000, 20_000_000]),
    exponent=st.sampled_from([0.0, 0.5, 1.0]),
    part=st.floats(0.01, 0.3),
    more=st.floats(1.0, 6.0),
    drained=st.booleans(),
)
@example(join="meshjoin", rows=20_000_000, exponent=0.0, part=0.125, more=2.0, drained=True)
def test_more_memory_never_predicts_less(
    join: str, rows: int, exponent: float, part: float, more: float, drained: bool
) -> None:
    memory = int(part * rows * 120)
    some = best_rate(join, rows, exponent, memory, drained)
    assert best_rate(join, rows, exponent, int(more * memory), drained) >= 0.97 * some
