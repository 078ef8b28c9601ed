"""How a run divides its budget among its components.

What cannot be done without comes first (index, one page, room for two output rows, one tuple):
its sum is the smallest budget that works, and an error names it. What is spare goes to larger
output batches, the parts that were asked for, and the window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from semistream.errors import BudgetError
from semistream.joins.binding import Binding
from semistream.joins.rows import longest_row
from semistream.joins.window import StreamLayout
from semistream.master.pages import PageSource
from semistream.memory import format_size, parse_size

SLICE_ROWS = 1 << 16
_UNSEEN_TUPLE = 512  # room for a stream tuple before one has been seen
_PAIR_BYTES = 32  # scratch per output row: page row, slot, and their gathers


def _output_share(budget: int) -> int:
    """What rows on their way out may take: a sixteenth, but enough for efficient batches."""
    return min(max(budget // 16, min(budget // 4, 64 << 10)), 8 << 20)


class MemoryPlan(ABC):
    """The part of a run that knows what everything costs."""

    join: Any
    _binding: Binding
    _budget: int
    _source: PageSource
    _stream: StreamLayout | None
    _stream_row_most: int
    _output_bytes: int
    _rows_allocated: int = SLICE_ROWS
    _fixed: int = 1 << 62  # bytes of index and disk buffers when the memory was divided
    _spare: int

    @abstractmethod
    def _allocate(self, nbytes: int) -> None:
        """Build the window (and what else depends on the stream) within ``nbytes``."""

    @abstractmethod
    def _hold_least(self) -> int:
        """Bytes that the window needs at least; a guess while the stream is unknown."""

    @abstractmethod
    def _disk_bytes(self) -> int:
        """Bytes of disk buffers and what goes with them."""

    @property
    def _index_bytes(self) -> int:
        return self._source.index.nbytes if self._source.index is not None else 0

    def _need(self) -> int:
        """The smallest budget that can work for this master and what is known of the stream."""
        row = self._row_most() + (0 if self._stream else _UNSEEN_TUPLE)
        parts = self._hold_least() + self._asked_for() + 64
        return int(self._index_bytes + self._disk_bytes() + 2 * row + parts)

    def _divide(self) -> None:
        """Give every component its part of the budget. Nothing waits when this happens."""
        need = self._need()
        self._spare = self._budget - need
        if self._spare < 0:
            raise self._refuse(need)
        least = 2 * self._row_most()
        self._output_bytes = max(least, min(_output_share(self._budget), least + self._spare // 4))
        self._rows_allocated = SLICE_ROWS
        self._rows_allocated = self._most_rows
        self._fixed = self._index_bytes + self._disk_bytes()
        self._allocate(self._budget - self._fixed - self._output_bytes)

    def _part(self, value: float | int | str, what: str) -> int:
        """Bytes of an optional part: a size is kept to, a fraction gives way if memory is tight."""
        if isinstance(value, float):
            return int(min(value * self._budget, self._spare / 2))
        return parse_size(value, what)

    def _asked_for(self) -> int:
        """Bytes of optional parts whose size was given."""
        return 0

    def _refuse(self, smallest: int) -> BudgetError:
        return BudgetError(
            f"memory={format_size(self._budget)} ({self._budget} bytes) cannot hold one page and "
            f"one tuple for {self.join.name}; the smallest budget that can is {smallest} bytes"
        )

    def _note_widest(self, batch: pa.RecordBatch) -> None:
        """Output must have room for two rows of the widest kind."""
        before = self._stream_row_most
        self._stream_row_most = max(before, longest_row(batch, self._budget // 64))
        if self._stream is not None and 2 * self._row_most() > self._output_bytes:
            need = self._need() + 2 * self._row_most()
            self._stream_row_most = before
            raise self._refuse(max(need, self._budget + 2 * self._row_most()))

    def _row_most(self) -> int:
        """Bytes that one output row can take at most, scratch included."""
        master = self._source.max_row_bytes if self._binding.keeps_master else 0
        return self._stream_row_most + master + _PAIR_BYTES

    @property
    def _most_rows(self) -> int:
        """Output rows that are built at once.

        Never more than when the memory was divided: a later version of the master may have
        shorter rows, but buffers have the length that they were given then.
        """
        fit = self._output_bytes // (2 * self._row_most())
        return int(max(1, min(self._rows_allocated, fit)))

    def _scratch_bytes(self) -> int:
        return 0
