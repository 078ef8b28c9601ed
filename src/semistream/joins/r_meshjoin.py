"""R-MESHJOIN, "reduced" MESHJOIN, as 002 uses it as a peer.

Our reading: its own paper is not at hand, and 002 and 003 say only that it divides the memory
differently, removes a dependency between components, and is simpler and slightly faster than
MESHJOIN. So: MESHJOIN ties the stream chunk to the disk buffer, because a chunk enters with
every read of b pages and the buffer must hold all b. Here the chunk is tied to a *group* of
pages, and the buffer holds one page of the group at a time; the memory saved goes to the window.

Waiting is bounded by one cycle, as in MESHJOIN.

Differences from the paper: see above; and those of MESHJOIN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.errors import ConfigError
from semistream.joins.contract import Join
from semistream.joins.meshjoin import MeshRun
from semistream.joins.run import Run


@dataclass(frozen=True, kw_only=True)
class ReducedMeshJoin(Join):
    """R-MESHJOIN: MESHJOIN with a one-page disk buffer and chunks per group of pages.

    Parameters
    ----------
    group_pages
        Pages that a chunk of the stream is tied to; None lets the number of pages decide.
    """

    group_pages: int | None = None

    name: ClassVar[str] = "r-meshjoin"
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_pages is not None and self.group_pages < 1:
            raise ConfigError(f"group_pages={self.group_pages!r}: give at least 1")

    @classmethod
    def _run_class(cls) -> type[Run]:
        return ReducedMeshRun


class ReducedMeshRun(MeshRun):
    _disk_most = 1

    @property
    def _partition_pages(self) -> int:
        asked = self.join.group_pages
        return max(1, min(asked or 16, self._source.num_pages))
