"""Ctrl-C while Spark works."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")

from semistream.spark.interrupts import deferred_interrupts, noted_interrupts


@pytest.fixture(autouse=True)
def _logging_again() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


def test_the_first_is_noted() -> None:
    with noted_interrupts() as noted:
        signal.raise_signal(signal.SIGINT)
        assert noted.is_set()
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        signal.raise_signal(signal.SIGINT)


def test_the_second_raises_and_what_it_cuts_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(KeyboardInterrupt), noted_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    logging.error("KeyboardInterrupt while sending command.")  # as Py4J does
    assert caplog.records == []
