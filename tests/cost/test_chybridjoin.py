"""CHYBRIDJOIN's model: HYBRIDJOIN's for the keys that the front stage does not hold."""

from __future__ import annotations

from cost.shapes import case
from semistream.cost import predict


def test_it_serves_more_than_hybridjoin_where_keys_repeat() -> None:
    cached, plain = (
        predict(case(name, "50MB", exponent=1.0, clustered=False))
        for name in ("chybridjoin", "hybridjoin")
    )
    assert cached.front_share > 0.3
    assert cached.rate > plain.rate
    assert cached.pages_per_tuple < plain.pages_per_tuple


def test_a_front_stage_serves_no_more_than_its_most_frequent_rows() -> None:
    found = case("chybridjoin", "50MB", front_stage=0.2, adapt=False)
    rows = 0.2 * 50e6 / found.table.row_bytes  # at most
    assert predict(found).front_share <= found.traffic.keys.top(int(rows))
