"""What an adapter must offer: open R, serve batches, say what it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from lab.rivals.data import RivalData

PROCESS_ROOM = 256 * 2**20
RESULT_ROW_BYTES = 133  # a sale and its product
BATCHES_IN_FLIGHT = 4


@dataclass(frozen=True)
class Grant:
    """The memory of one cell: ``budget`` for R, and the same room beside it for every rival.

    The room is for what has nothing to do with R: the interpreter with its libraries, the batch
    and its result, each of which may exist in several copies while it changes its form.
    """

    budget: int
    batch_rows: int

    @property
    def batch_room(self) -> int:
        return BATCHES_IN_FLIGHT * self.batch_rows * RESULT_ROW_BYTES

    @property
    def limit(self) -> int:
        """What the kernel enforces."""
        return self.budget + PROCESS_ROOM + self.batch_room


class Rival(ABC):
    """One rival in one variant, in a process of its own.

    The harness calls ``open``, then ``rows`` for the batches whose answer it checks, ``flush``,
    then ``serve`` on the clock, then ``close``.
    """

    name: ClassVar[str]  # as the tables call it
    packages: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[tuple[str, ...]]
    limit_refused: ClassVar[str | None] = None  # why the rival cannot live under a kernel limit
    one_core: ClassVar[bool] = True  # False: one task at a time, helpers of the runtime beside it
    patience: ClassVar[float] = 1.0  # times the time limit of a cell
    cold: ClassVar[str] = "dropped"  # what cold reads are for it: dropped page cache, or direct I/O

    def __init__(self, variant: str, data: RivalData, grant: Grant, cold: bool) -> None:
        self.variant = variant
        self.data = data
        self.grant = grant
        self.is_cold = cold

    @classmethod
    @abstractmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        """Where R lies for this variant; made by ``build`` if it is not there."""

    @classmethod
    @abstractmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        """Write R into its store."""

    @classmethod
    def largest_batch(cls, variant: str) -> int | None:
        """For what answers one tuple at a time: a smaller batch, to see how far it comes."""
        return None

    @abstractmethod
    def open(self) -> None:
        """Open R, and load it if that is what the variant does."""

    @abstractmethod
    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Joined rows: the batch's columns and R's."""

    def stage(self, batch: pa.RecordBatch) -> Any:
        """Put a batch where the rival takes its stream from; not on the clock."""
        return batch

    def serve(self, staged: Any) -> int:
        """Join one staged batch; how many rows came out."""
        return sum(rows.num_rows for rows in self.rows(staged))

    def flush(self) -> Iterable[pa.RecordBatch]:
        """What still waits; only semistream lets tuples wait."""
        return ()

    @property
    def warm(self) -> bool:
        """Whether more warm-up would change nothing."""
        return True

    def processes(self) -> list[int]:
        """Servers outside this process's tree, to be watched and, if need be, ended."""
        return []

    def facts(self) -> dict[str, Any]:
        """Whatever explains the rate: hit rate, plan, and so on."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""
