"""What a warehouse promises: a batch of a query is there once, whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from semistream.errors import SemistreamError

ABANDONED = 7 * 24 * 3600.0  # seconds without a sign of life after which a query's rubbish goes
SWEEP_EVERY = 100  # batches of a query, its first included, between looks at others' rubbish


@dataclass(frozen=True)
class Batch:
    """What makes a micro-batch the same one, however often it is run."""

    query: str
    number: int

    def is_in(self, newest: int | None, place: str) -> bool:
        """Whether the sink has it, whose newest batch of this query is ``newest``.

        Spark repeats the newest batch, never one before it. A smaller number comes from a
        checkpoint that is older than the sink, and then stands for other rows than it did.
        """
        if newest is None or self.number > newest:
            return False
        if self.number == newest:
            return True
        raise SemistreamError(
            f"the checkpoint is older than the sink: query {self.query} writes batch "
            f"{self.number}, but {place} has its batch {newest} already. Was the checkpoint "
            "restored from a backup, or did a crash take its newest files? The rows may be other "
            "ones than those written under this number, so the batch is neither written nor "
            f"skipped. Use the checkpoint that knows batch {newest}, or restore the sink to its "
            f"state before batch {self.number}, too. If this is an old driver whose successor "
            "runs, stop it; nothing is lost"
        )


@dataclass(frozen=True)
class Staged:
    """What one task wrote and nobody sees yet: the message from a worker to the driver."""

    batch: Batch
    partition: int
    rows: int
    nbytes: int
    place: str
    """A file name or table name; empty when there was no row."""
    schema: bytes
    """The Arrow schema of the rows, serialized."""

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class Sink(Protocol):
    """Staging runs in workers, at once and more than once; committing runs in one driver."""

    @property
    def place(self) -> str:
        """What it writes to: two sinks with the same place share a ledger."""

    def check(self, schema: pa.Schema | None = None) -> None:
        """Refuse now what would fail later: a place that cannot be written, a schema."""

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        """Write rows where no reader looks. A schema of None is that of the first batch."""

    def commit(self, staged: Sequence[Staged], batch: Batch) -> bool:
        """Make the batch visible in one step; False if it was there already."""

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        """Remove what was staged."""


def peek(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema | None
) -> tuple[pa.Schema | None, Iterable[pa.RecordBatch]]:
    """The schema of the rows, and the rows without empty batches; no row is lost by looking."""
    from itertools import chain

    full = (batch for batch in rows if batch.num_rows)
    first = next(full, None)
    if first is None:
        return schema, ()
    return first.schema, chain([first], full)
