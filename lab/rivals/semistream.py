"""semistream's own joins, as one more rival."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from lab.rivals.contract import Rival
from lab.rivals.data import RivalData


class SemistreamJoins(Rival):
    """Every algorithm within the budget. Cold reads are direct I/O."""

    name = "semistream"
    variants = tuple(ss.ALGORITHMS)
    cold = "direct"

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.master

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        data.write_master(path)

    @classmethod
    def largest_batch(cls, variant: str) -> int | None:
        return 1_000 if variant in ("inlj", "cinlj") else None

    def open(self) -> None:
        join = ss.join(self.variant, memory=self.grant.budget)
        master = ss.MasterTable.open(self.data.master)
        self.run = join.open(master, on="product_id", direct=self.is_cold)
        self._pushed = self._most_waiting = 0

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        yield from self.run.push(batch)
        self._pushed += batch.num_rows
        self._most_waiting = max(self._most_waiting, self.run.stats.waiting)

    def flush(self) -> Iterable[pa.RecordBatch]:
        yield from self.run.flush()
        self._pushed = self._most_waiting = 0

    @property
    def warm(self) -> bool:
        """The window has been filled and turned over once."""
        return self._pushed >= 2 * self._most_waiting

    def facts(self) -> dict[str, Any]:
        stats = self.run.stats
        return {
            "front_stage_hits": stats.front_stage_hits,
            "pages_read": stats.pages_read,
            "waiting": stats.waiting,
            "memory": sum(self.run.memory.values()),
        }

    def close(self) -> None:
        self.run.close()
