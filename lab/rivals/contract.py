"""The interface of an adapter: open R, serve batches, report facts."""

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
    """The memory of one cell: ``budget`` for R, plus the same overhead for every rival.

    The overhead is for everything but R: the interpreter with its libraries, the batch and its
    result, each of which may exist in several copies during conversions.
    """

    budget: int
    batch_rows: int

    @property
    def batch_room(self) -> int:
        return BATCHES_IN_FLIGHT * self.batch_rows * RESULT_ROW_BYTES

    @property
    def limit(self) -> int:
        """The limit that the kernel enforces."""
        return self.budget + PROCESS_ROOM + self.batch_room


class Rival(ABC):
    """One rival in one variant, in a separate process.

    The harness calls ``open``, then ``rows`` for the batches whose answer it checks, ``flush``,
    then ``serve`` on the clock, then ``close``.
    """

    name: ClassVar[str]  # as shown in the tables
    packages: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[tuple[str, ...]]
    limit_refused: ClassVar[str | None] = None  # why the rival cannot run under a kernel limit
    one_core: ClassVar[bool] = True  # False: one task at a time, plus threads of the runtime
    patience: ClassVar[float] = 1.0  # factor for the time limit of a cell
    cold: ClassVar[str] = "dropped"  # the kind of cold reads: dropped page cache, or direct I/O

    def __init__(self, variant: str, data: RivalData, grant: Grant, cold: bool) -> None:
        self.variant = variant
        self.data = data
        self.grant = grant
        self.is_cold = cold

    @classmethod
    @abstractmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        """The path of R for this variant; ``build`` creates it if it does not exist."""

    @classmethod
    @abstractmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        """Write R into its store."""

    @classmethod
    def largest_batch(cls, variant: str) -> int | None:
        """A limit on the batch size, for a variant that serves one tuple at a time."""
        return None

    @abstractmethod
    def open(self) -> None:
        """Open R, and load it if that is what the variant does."""

    @abstractmethod
    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Joined rows: the batch's columns and R's."""

    def stage(self, batch: pa.RecordBatch) -> Any:
        """Prepare a batch as the rival's input; not timed."""
        return batch

    def serve(self, staged: Any) -> int:
        """Join one staged batch. Returns the number of rows."""
        return sum(rows.num_rows for rows in self.rows(staged))

    def flush(self) -> Iterable[pa.RecordBatch]:
        """The rows of waiting tuples; only semistream lets tuples wait."""
        return ()

    @property
    def warm(self) -> bool:
        """Whether more warm-up would change nothing."""
        return True

    def processes(self) -> list[int]:
        """Server processes outside this process's tree, to be monitored and terminated."""
        return []

    def facts(self) -> dict[str, Any]:
        """Facts that explain the rate: hit rate, plan, and so on."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""
