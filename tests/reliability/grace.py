"""Time that passes, as far as the litter of dead writers is concerned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from semistream.master import vacuum, workspace


@contextmanager
def grace_is_over() -> Iterator[None]:
    """What a writer left that may be alive on another machine is old enough to be removed."""
    with mock.patch.object(vacuum, "GRACE", -1.0), mock.patch.object(workspace, "GRACE", -1.0):
        yield
