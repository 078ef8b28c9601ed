"""A join by its name: what is unknown is named, with what was probably meant."""

from __future__ import annotations

import re

import pytest

import semistream as ss


@pytest.mark.parametrize("name", ["auto", *ss.ALGORITHMS])
def test_every_name(name: str) -> None:
    assert ss.join(name, memory="9MB").memory == 9_000_000


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("hybrdjoin", {}, "unknown join 'hybrdjoin'; did you mean 'hybridjoin'?"),
        ("zzz", {}, f"unknown join 'zzz'; valid joins: auto, {', '.join(ss.ALGORITHMS)}"),
        ("auto", {"memroy": 1}, "auto: unknown option 'memroy'; did you mean 'memory'?"),
        ("inlj", {"zzz": 1}, "inlj: unknown option 'zzz'; valid options: memory, how"),
    ],
)
def test_what_is_unknown(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(ss.ConfigError, match="^" + re.escape(message)):
        ss.join(name, **options)
