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
        self._start_over()

    def _start_over(self) -> None:
        self._pushed = self._most_waiting = self._grew_at = 0

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        yield from self.run.push(batch)
        self._pushed += batch.num_rows
        waiting = self.run.stats.waiting
        if waiting > 1.01 * self._most_waiting:
            self._most_waiting, self._grew_at = waiting, self._pushed

    def flush(self) -> Iterable[pa.RecordBatch]:
        yield from self.run.flush()
        self._start_over()

    @property
    def warm(self) -> bool:
        """The window is as full as it gets, and has been turned over since.

        While it fills, hot keys are answered and the others only collected: the rate flatters.
        """
        return self._pushed - self._grew_at >= max(1, self._most_waiting)

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
