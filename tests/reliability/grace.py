"""Simulates that the grace period of dead writers is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from semistream.master import vacuum, workspace


@contextmanager
def grace_is_over() -> Iterator[None]:
    """Files of a writer on another machine are old enough to be removed."""
    with mock.patch.object(vacuum, "GRACE", -1.0), mock.patch.object(workspace, "GRACE", -1.0):
        yield
