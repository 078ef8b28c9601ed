"""Lets tuples wait on while the table changes.

A change adds a delta; the pages of the base stay. A tuple that waits for a page of the base
meets the row there that its own version has, also when the run has moved to a newer version. So
before a switch only the tuples are served that wait for pages of deltas, which a change may fold
together. What later visits to the base find out about a key must not be remembered if the key has
changed since: the row that they read is hidden in the new version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semistream.joins.sweep.read_ahead import Visit
from semistream.joins.sweep.route import Route
from semistream.joins.sweep.stretches import Stretches
from semistream.keys import Codes
from semistream.master.changed import contains
from semistream.master.index import PageIndex
from semistream.master.pages import PageSource


class VersionSwitch:
    """``kept``: the stretches whose tuples need not be served before the switch; 0: all must be."""

    def __init__(self) -> None:
        self.kept = 0
        self._changed: Any = None  # codes in deltas, while older tuples wait for the base

    def prepare(
        self, old: PageSource, new: PageSource, stretches: Stretches, pages: int, fits: bool
    ) -> None:
        """``pages`` per stretch of the new version; ``fits``: no memory must be allocated anew."""
        self.kept = 0
        if fits and new.index is not None and new.shares_base(old) and new.distinct == old.distinct:
            self.kept = stretches.base if Stretches(new.index, pages).has_base_of(stretches) else 0

    def is_ready(self, window: Any, visits: Sequence[Visit], route: Route) -> bool:
        """Whether no tuple waits that must be served before. Visits to deltas come first."""
        urgent = visits and not visits[0].in_base
        return self.kept > 0 and not urgent and not route.waiting_from(window, self.kept)

    def done(self, index: PageIndex, waits: bool) -> None:
        """The run has this version now; ``waits``: with older tuples."""
        self._changed = index.changed if waits else None
        self.kept = 0

    def outdated(self, visit: Visit) -> Any:
        """Codes whose rows this visit may read in an older version; None: there are none."""
        return self._changed if visit.in_base else None

    def current(self, visit: Visit, codes: Codes) -> Codes:
        """Those of these codes that are the same in the version that the run has now."""
        changed = self.outdated(visit)
        return codes if changed is None else codes[~contains(changed, codes)]
