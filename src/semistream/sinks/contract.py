"""The contract of a warehouse: every batch of a query is stored exactly once, atomically."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from semistream.errors import ConfigError, SemistreamError

ABANDONED = 7 * 24 * 3600.0  # seconds of inactivity after which a query's staged data is removed
SWEEP_EVERY = 100  # batches of a query between sweeps of other queries' garbage


@dataclass(frozen=True)
class Batch:
    """The identity of a micro-batch; a replay has the same one."""

    query: str
    number: int

    def is_in(self, newest: int | None, target: str) -> bool:
        """Whether the sink has this batch, given its ``newest`` batch of the query.

        Spark replays only the newest batch. A smaller number means that the checkpoint is older
        than the sink, and the batch may contain other rows than the one committed under its number.
        """
        if newest is None or self.number > newest:
            return False
        if self.number == newest:
            return True
        raise SemistreamError(
            f"the checkpoint is older than the sink: query {self.query} writes batch "
            f"{self.number}, but {target} already has its batch {newest}. Was the checkpoint "
            "restored from a backup, or did a crash lose its newest files? The rows may differ "
            "from those written under this number, so the batch is neither written nor "
            f"skipped. Use the checkpoint that contains batch {newest}, or restore the sink to its "
            f"state before batch {self.number}, too. If this is an old driver whose successor "
            "is running, stop it; nothing is lost"
        )


@dataclass(frozen=True)
class Staged:
    """Rows that one task wrote and that are not visible yet: its message to the driver."""

    batch: Batch
    partition: int
    rows: int
    nbytes: int
    name: str
    """A file name or table name; empty if there were no rows."""
    schema: bytes
    """The Arrow schema of the rows, serialized."""
    note: str = ""
    """What the task did with waiting rows; not for the sink."""

    @classmethod
    def of(
        cls,
        batch: Batch,
        partition: int,
        schema: pa.Schema | None,
        rows: int = 0,
        nbytes: int = 0,
        name: str = "",
    ) -> Staged:
        """With the schema as an object; default: no rows."""
        serialized = b"" if schema is None else schema.serialize().to_pybytes()
        return cls(batch, partition, rows, nbytes, name, serialized)

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


@dataclass(frozen=True)
class Mark:
    """What the ledger says about a query's rows that wait outside of the sink: the number of the
    state that lists them, and how many there are. A commit that changes them has a new mark, in
    the same atomic step."""

    query: str
    number: int
    rows: int

    @property
    def drains(self) -> str:
        """The ledger key of commits that have no batch: waiting rows that were served at the end
        of the stream."""
        return f"{self.query}-drain"


def check_mark(found: Mark | None, given: Mark | None, target: str) -> None:
    """Raise if a commit would forget rows that wait."""
    if found is not None and found.rows and given is None:
        raise ConfigError(
            f"{found.rows} rows of query {found.query} that were deferred or parked still wait "
            f"for {target}; start the query with batch_time or parking as before, or drain them "
            "first: semistream drain"
        )


class Sink(Protocol):
    """Staging runs in workers, in parallel and possibly repeated; committing in the driver."""

    @property
    def target(self) -> str:
        """Identifies the output: sinks with the same target share a ledger."""

    def check(self, schema: pa.Schema | None = None) -> None:
        """Raise early if the target is not writable or cannot store the schema."""

    def stage(
        self, rows: Iterable[pa.RecordBatch], schema: pa.Schema | None, batch: Batch, partition: int
    ) -> Staged:
        """Write rows where readers do not look. ``schema`` defaults to the first batch's."""

    def commit(self, staged: Sequence[Staged], batch: Batch, mark: Mark | None = None) -> bool:
        """Make the batch visible atomically, with the mark; False if it was committed before."""

    def mark(self, query: str) -> Mark | None:
        """The newest mark of a query; None if it never had one."""

    def abort(self, staged: Sequence[Staged], batch: Batch) -> None:
        """Remove what was staged."""


def safe_name(query: str) -> str:
    """A query's id as part of a file name; Spark's ids are UUIDs and stay unchanged."""
    if re.fullmatch(r"[A-Za-z0-9-]{1,64}", query):
        return query
    return uuid.uuid5(uuid.NAMESPACE_OID, query).hex


def peek(
    rows: Iterable[pa.RecordBatch], schema: pa.Schema | None
) -> tuple[pa.Schema | None, Iterable[pa.RecordBatch]]:
    """The schema of the rows, and an iterator over all of them without empty batches."""
    from itertools import chain

    full = (batch for batch in rows if batch.num_rows)
    first = next(full, None)
    if first is None:
        return schema, ()
    return first.schema, chain([first], full)
