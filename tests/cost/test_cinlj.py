"""CINLJ's model: INLJ's for the tuples that miss the front stage."""

from __future__ import annotations

from cost.shapes import case
from semistream.cost import predict


def test_hits_need_no_page() -> None:
    cached = predict(case("cinlj", "50MB", clustered=False))
    plain = predict(case("inlj", "50MB", clustered=False))
    assert cached.front_share > 0.3
    assert cached.pages_per_tuple < plain.pages_per_tuple


def test_keys_are_counted_in_the_temporary_buffer() -> None:
    assert predict(case("cinlj", "50MB")).work["recent.tuple"] > 0
    assert predict(case("inlj", "50MB")).work.get("recent.tuple", 0) == 0
