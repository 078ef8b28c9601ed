"""The queue of shed tuples on disk: appended at one end, returned at the other, oldest first."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from semistream.errors import SemistreamError
from semistream.master.files import Files
from semistream.memory import format_size
from semistream.overload.options import Shedding
from semistream.overload.tuple_folder import TupleFolder


class StoreFullError(SemistreamError):
    """The store of shed tuples has reached its limit."""


@dataclass
class _File:
    number: int
    rows: int
    nbytes: int
    written: float
    taken: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)  # once it is being returned


class ShedStore:
    """Files of shed tuples; ``tuples`` of them have not been taken yet.

    A file whose tuples have been taken stays on disk until ``checkpoint``.
    """

    def __init__(
        self,
        options: Shedding,
        files: Files | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        assert options.store is not None
        self._folder = TupleFolder(options.store, options.recover, files)
        self._limit = options.limit_bytes
        self._clock = clock
        self._files: deque[_File] = deque()
        self.tuples = 0  # that have not been taken
        self.nbytes = 0  # on disk
        self.taken_bytes = 0  # of files that were taken completely, and are still there
        self.in_flight = 0  # tuples taken since the last checkpoint
        try:
            for number, taken in self._folder.live.items():
                notes = self._folder.notes(number, "written")
                size = self._folder.size(number)
                self._add(_File(number, notes["rows"], size, notes["written"], taken or 0))
        except BaseException:
            self._folder.close()
            raise

    def _add(self, file: _File) -> None:
        self._files.append(file)
        self.tuples += file.rows - file.taken
        self.nbytes += file.nbytes

    @property
    def oldest_seconds(self) -> float:
        """How long ago the oldest tuple was shed; 0 if there is none."""
        return max(0.0, self._clock() - self._files[0].written) if self._files else 0.0

    def has_room(self, nbytes: int) -> bool:
        return self._limit is None or self.nbytes + nbytes <= self._limit

    def append(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Add tuples durably. If it raises, none was added."""
        rows = sum(batch.num_rows for batch in batches)
        nbytes = sum(batch.nbytes for batch in batches)
        if self._limit is not None and not self.has_room(nbytes):
            raise StoreFullError(
                f"{self._folder.path} would hold {format_size(self.nbytes + nbytes)} of shed "
                f"tuples, and limit={format_size(self._limit)}; no tuple is lost. Serve them with "
                'flush() (with recover="checkpoint", then call checkpoint()), raise the limit, or '
                'choose when_full="drop"'
            )
        now = self._clock()
        number = self._folder.write(batches, {"rows": rows, "written": now})
        self._add(_File(number, rows, self._folder.size(number), now))

    def peek(self, most: int) -> pa.RecordBatch | None:
        """Some of the oldest tuples; None if there are none. ``take`` removes them."""
        if not self._files:
            return None
        file = self._files[0]
        if not file.batches:
            file.batches = self._folder.read(file.number)
        skip = file.taken
        for batch in file.batches:
            if skip < batch.num_rows:
                return batch.slice(skip, most)
            skip -= batch.num_rows
        raise SemistreamError(f"file {file.number} of {self._folder.path} lacks tuples")

    def take(self, rows: int) -> None:
        """Remove tuples that ``peek`` has returned; a checkpoint makes it durable."""
        file = self._files[0]
        file.taken += rows
        self.tuples -= rows
        self.in_flight += rows
        if file.taken >= file.rows:
            self._files.popleft()
            self.taken_bytes += file.nbytes

    def checkpoint(self) -> None:
        """A run that is opened after a crash finds the tuples that are here now."""
        self._folder.checkpoint({file.number: file.taken for file in self._files})
        self.nbytes -= self.taken_bytes
        self.taken_bytes = self.in_flight = 0

    def close(self) -> None:
        self._folder.close()
