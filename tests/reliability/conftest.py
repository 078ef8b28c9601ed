"""Fixtures of the reliability tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reliability.tally import Tally


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    return Tally(record_property)
