"""Makes SweepJoin copy rows out of scattered pages wherever it can, however long that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semistream.engine.rows.copied_rows import CopiedRows
from semistream.joins.sweep import visit_copies
from semistream.joins.sweep.visit import MAP_ROWS, READ_ROWS
from semistream.joins.sweep.visit_copies import WayChoice

WAYS = {"read": READ_ROWS, "mapped": MAP_ROWS}
MEMORY = "128MB"  # enough for this, see mapped_share in semistream/engine/settings.py


def count_copies(way: int, set_attribute: Callable[[Any, str, Any], None] = setattr) -> list[int]:
    """The rows of every call that copies rows, from now on."""
    found: list[int] = []
    copy = CopiedRows.copy

    def counted(self: CopiedRows, *arguments: Any) -> int:
        following = copy(self, *arguments)
        found.append(self.count)
        return following

    set_attribute(CopiedRows, "copy", counted)
    set_attribute(WayChoice, "choose", lambda *_: way)
    set_attribute(visit_copies, "MANY", 1 << 30)
    return found
