"""A run around another one: forwards everything. Subclasses override what they change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from semistream.engine.plan import MemoryPlan
from semistream.stats import MemoryUse, Stats


class WrappedRun(ABC):
    """``inner`` is a :class:`~semistream.engine.run.Run`, or another wrapped run."""

    def __init__(self, inner: Any, join: Any, extra_bytes: int) -> None:
        self.inner = inner
        self.join = join  # as the user described it
        self._extra_bytes = extra_bytes  # of the budget, which the inner run does not have
        self._context, self._intake, self._output, self._policy = inner.parts

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return self.inner.push(batch)  # type: ignore[no-any-return]

    def step(self) -> Iterator[pa.RecordBatch]:
        return self.inner.step()  # type: ignore[no-any-return]

    def flush(self) -> Iterator[pa.RecordBatch]:
        return self.inner.flush()  # type: ignore[no-any-return]

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Serve the tuples in memory."""
        inner = self.inner
        rows: Iterator[pa.RecordBatch] = getattr(inner, "drain", inner.flush)()
        return rows

    def checkpoint(self) -> Iterator[pa.RecordBatch]:
        """Serve or shed the tuples in memory, then make the stores' content the state to which a
        new run with ``recover="checkpoint"`` returns. Done when the iterator is exhausted."""
        inner = self.inner
        rows: Iterator[pa.RecordBatch] = getattr(inner, "checkpoint", inner.flush)()
        return rows

    def requeue(self, batch: pa.RecordBatch) -> None:
        self.inner.requeue(batch)

    def check(self, batch: pa.RecordBatch) -> None:
        self.inner.check(batch)

    def use(self, version: int) -> None:
        self.inner.use(version)

    def close(self) -> None:
        """Release memory, files and folders. Tuples in memory are discarded: flush first, or
        make a checkpoint. Those in the stores stay there."""
        self.inner.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stats(self) -> Stats:
        return self._context.stats  # type: ignore[no-any-return]

    @property
    def version(self) -> int:
        return self.inner.version  # type: ignore[no-any-return]

    @property
    def failed_version(self) -> int | None:
        return self.inner.failed_version  # type: ignore[no-any-return]

    @property
    def next_version(self) -> int:
        return self.inner.next_version  # type: ignore[no-any-return]

    @property
    def source(self) -> Any:
        return self.inner.source

    @property
    def parts(self) -> Any:
        return self.inner.parts

    @property
    def schema(self) -> pa.Schema | None:
        return self.inner.schema

    @property
    def plan(self) -> MemoryPlan:
        """How the inner run divides its part of the budget."""
        return self.inner.plan  # type: ignore[no-any-return]

    @property
    def longest_wait(self) -> int | None:
        """As of the inner run, for a tuple that is neither shed nor parked."""
        return self.inner.longest_wait  # type: ignore[no-any-return]

    @property
    def memory(self) -> MemoryUse:
        inner = self.inner.memory
        return MemoryUse({**inner, **self._own_memory()}, inner.budget + self._extra_bytes)

    @abstractmethod
    def _own_memory(self) -> dict[str, int]:
        """Bytes of the parts around the inner run."""
