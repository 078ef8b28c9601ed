"""What the window joins share: disk pages come through a buffer and are probed into the window.

A *partition* is a range of pages, walked in buffer-sized reads. The walk is a cursor in the run
(partition, page, row, tuple), so that it can stop after any output batch or failed read.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.joins.binding import Binding
from semistream.joins.front_stage import MOST_ROWS_PER_KEY
from semistream.joins.intake import IntakeRun
from semistream.joins.page_rows import PageColumns
from semistream.joins.rows import Rows, ranges
from semistream.joins.window import Window
from semistream.kernels import states
from semistream.keys import Codes, Mask
from semistream.master.pages import PageReader, PageSource

_UNSEEN_WINDOW = 1024  # bytes for the window before a stream tuple has been seen


class Walk:
    """Where a run is in a partition: pages ``next`` to ``last`` are still to be read.

    The pages in the disk buffer are probed together, as one run of rows.
    """

    def __init__(self, first: int, last: int) -> None:
        self.begin = first
        self.next = first
        self.last = last
        self.first = first  # number of the first page in the buffer
        self.pages: list[pa.RecordBatch] = []  # in the buffer, not yet probed to the end
        self.codes: Codes | None = None
        self.valid: Mask | None = None
        self.counts: Any = None  # tuples that each row met
        self.cursor = np.array([0, -1], np.int64)

    @property
    def ended(self) -> bool:
        return not self.pages and self.next > self.last

    def fill(self, pages: list[pa.RecordBatch], binding: Binding) -> None:
        """Take pages that have come into the buffer."""
        self.pages = pages
        self.starts = np.cumsum([0] + [page.num_rows for page in pages])
        self.codes, self.valid = codes_of(pages, binding)
        self.counts = np.zeros(len(self.codes), np.int32)
        self.cursor[:] = 0, -1
        self._columns: dict[tuple[str, ...], PageColumns] = {}

    def take(self, rows: Any, names: list[str]) -> list[pa.Array]:
        """These columns of these rows of the buffer."""
        return self.columns(names).take(*self.places(rows))

    def places(self, rows: Any) -> tuple[Any, Any]:
        """The page of each of these rows of the buffer, and its row there."""
        pages = np.searchsorted(self.starts, rows, side="right") - 1
        return pages, rows - self.starts[pages]

    def columns(self, names: list[str]) -> PageColumns:
        """These columns of all pages in the buffer."""
        columns = self._columns.get(tuple(names))
        if columns is None:
            schema = self.pages[0].schema
            kinds = [schema.field(name).type for name in names]
            columns = PageColumns(kinds, len(self.pages))
            for place, page in enumerate(self.pages):
                columns.put(place, [page.column(name) for name in names])
            self._columns[tuple(names)] = columns
        return columns


def codes_of(pages: list[pa.RecordBatch], binding: Binding) -> tuple[Codes, Mask | None]:
    """The codes of all rows of these pages, and which have a key at all."""
    parts = [binding.master_codes(page) for page in pages]
    if len(parts) == 1:
        return parts[0]
    codes = np.concatenate([codes for codes, _ in parts])
    if all(valid is None for _, valid in parts):
        return codes, None
    masks = [np.ones(len(codes), np.bool_) if valid is None else valid for codes, valid in parts]
    return codes, np.concatenate(masks)


class ProbingRun(IntakeRun):
    """A run with a window of waiting tuples, a disk buffer, and possibly a front stage."""

    _disk_share = 16  # the disk buffer's part of the budget: one in so many bytes
    _disk_most = 64  # pages
    _window: Any
    _window_kind: type[Window]
    _front_learns = True  # from the pages that pass

    def _attach(self, source: PageSource) -> None:
        self._source = source
        self._walk: Walk | None = None
        self._pages_at_once = self._buffer_pages()
        self._reader: PageReader = source.reader(self._pages_at_once, self._direct)

    def _detach(self) -> None:
        self._walk = None
        self._reader.close()

    def _buffer_pages(self) -> int:
        """Pages of the disk buffer: as asked for, or a share of the budget."""
        if self.join.disk_buffer_pages is not None:
            return int(max(1, min(self.join.disk_buffer_pages, self._source.num_pages)))
        pages = self._budget // self._disk_share // max(1, self._source.max_page_bytes)
        return int(max(1, min(pages, self._disk_most, self._source.num_pages)))

    def _page_scratch(self) -> int:
        """Codes, counts and validity of the rows that are being probed."""
        rows = self._source.max_page_bytes // max(1, int(self._source.row_bytes) or 1)
        return 17 * (rows + 1) * self._pages_at_once

    def _measure(self, sample: pa.RecordBatch) -> None:
        assert self._stream is not None
        columns = self._stream.columns(sample)
        self._variable_bytes = self._stream.layout.heap_bytes(columns)
        self._least_window = self._window_kind.slot_bytes + self._stream.layout.slot_bytes + 128
        if sample.num_rows:
            self._least_window = self._window_kind.smallest(self._stream, columns, _longest(sample))

    def _hold_least(self) -> int:
        return self._least_window if self._stream else _UNSEEN_WINDOW

    def _disk_bytes(self) -> int:
        return self._reader.nbytes + self._page_scratch()

    def _window_bytes(self) -> int:
        return self._window.nbytes if self._stream else 0

    def _scratch_bytes(self) -> int:
        return self._rows.nbytes + self._slots.nbytes if self._stream else 0

    def _allocate(self, nbytes: int) -> None:
        """The front stage, and a window with all the rest."""
        assert self._stream is not None
        nbytes -= self._make_front_stage()
        self._rows = np.empty(self._most_rows, np.int32)
        self._slots = np.empty(self._most_rows, np.int32)
        self._window = self._window_kind(self._stream, nbytes, self._variable_bytes)

    def _admit(self) -> None:
        """Take in what fits into the vacant slots."""
        vacant = self._window.vacant
        if vacant:
            self._admit_to(vacant, self._window.add)
        else:
            self._full = True

    def _check_room(self, batch: pa.RecordBatch) -> None:
        assert self._stream is not None
        columns = self._stream.columns(batch)
        row = self._window.rows.first_too_large(columns)
        if row is not None:
            needed = self._window_kind.smallest(self._stream, columns, row)
            raise self._refuse(self._budget + 2 * needed)

    @property
    def _held(self) -> int:
        return self._window.count if self._stream else 0

    # -- walking pages ---------------------------------------------------------------------

    @property
    def _busy(self) -> bool:  # type: ignore[override]
        return self._walk is not None

    def _resume(self) -> None:
        walk = self._walk
        assert walk is not None
        if not walk.pages:
            self._read_on(walk)
        if self._probe(walk):
            self._buffer_done(walk)
            walk.pages = []
            if walk.ended:
                self._partition_done(walk)

    def _read_on(self, walk: Walk) -> None:
        """Fill the disk buffer with the next pages of the partition."""
        count = min(self._pages_at_once, walk.last - walk.next + 1)
        walk.fill(self._read(self._reader, walk.next, count), self._binding)
        walk.first = walk.next
        walk.next += count

    def _probe(self, walk: Walk) -> bool:
        """Probe the buffer into the window; True when all of it has been probed."""
        codes = walk.codes
        assert codes is not None
        exact, keeps = self._binding.codec.exact, self._binding.keeps_master
        most = min(self._most_rows, len(self._rows))
        found = self._window.probe(
            codes,
            walk.valid,
            walk.cursor,
            exact,
            not keeps,
            self._rows[:most],
            self._slots[:most],
        )
        if found:
            rows, slots = self._rows[:found], self._slots[:found]
            if not exact:
                rows, slots = self._verified(walk, rows, slots)
            self._window.count_pairs(rows, walk.counts)
            self._emit_pairs(walk, rows, slots)
        return bool(walk.cursor[0] >= len(codes))

    def _verified(self, walk: Walk, rows: Any, slots: Any) -> tuple[Any, Any]:
        """Codes were equal; keep the pairs whose keys are, and mark their tuples."""
        master = walk.take(rows, list(self._binding.master_key))
        same = self._binding.codec.same(self._window.keys(slots), master)
        rows, slots = rows[same], slots[same]
        if not self._binding.keeps_master:  # each tuple once
            slots, first = np.unique(slots, return_index=True)
            rows = rows[first]
        self._window.state[slots] = states.MATCHED
        return rows, slots

    def _emit_pairs(self, walk: Walk, rows: Any, slots: Any) -> None:
        if self._binding.how == "left_anti" or not len(rows):
            return
        stream = self._window.take(slots)
        names = self._binding.master_columns
        self._emit(stream, walk.take(rows, names) if names else [])

    @abstractmethod
    def _buffer_done(self, walk: Walk) -> None:
        """The pages in the buffer have met every waiting tuple."""

    @abstractmethod
    def _partition_done(self, walk: Walk) -> None:
        """All pages of the partition have."""

    # -- the front stage -------------------------------------------------------------------

    def _admit_to_front_stage(self, walk: Walk) -> None:
        """Rows in the buffer that met enough tuples at once become cached.

        A key whose rows go on outside the buffer is passed over: the cache must hold all rows
        of a key or none.
        """
        front = self._front
        if front is None or not self._front_learns:
            return
        codes, counts = walk.codes, walk.counts
        assert codes is not None
        worth = front.worth(codes, counts)
        hot: Rows = np.flatnonzero(worth >= front.threshold)
        if not len(hot):
            return
        if self._source.unique:
            rows, sizes, first = hot, np.ones(len(hot), np.int64), hot
        else:
            rows, sizes, first = self._whole_keys(walk, hot)
        if not len(rows):
            return
        columns = walk.take(rows, self._cached_names())
        admitted, evicted = front.admit(
            codes[first], sizes, worth[first], columns, np.arange(len(rows))
        )
        if admitted or evicted:
            self._observer.front_stage_changed(admitted, evicted, front.count, front.threshold)

    def _whole_keys(self, walk: Walk, hot: Rows) -> tuple[Rows, Any, Rows]:
        """(all rows of the hot keys that lie in the buffer entirely, rows per key, first rows)."""
        codes = walk.codes
        assert codes is not None
        starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        ends = np.r_[starts[1:], len(codes)]
        group = np.unique(np.searchsorted(starts, hot, side="right") - 1)
        cut_before, cut_after = self._cut_edges(walk)
        keep = ends[group] - starts[group] <= MOST_ROWS_PER_KEY
        if cut_before:
            keep &= group != 0
        if cut_after:
            keep &= group != len(starts) - 1
        group = group[keep]
        sizes = ends[group] - starts[group]
        return ranges(starts[group], sizes), sizes, starts[group]

    def _cut_edges(self, walk: Walk) -> tuple[bool, bool]:
        """Whether the buffer's first and last key have rows in a neighbouring page too."""
        continues = self._source.index.continues  # type: ignore[union-attr]
        last = walk.first + len(walk.pages) - 1
        return bool(walk.first > 0 and continues[walk.first - 1]), bool(continues[last])


def _longest(batch: pa.RecordBatch) -> int:
    """The row of the batch with the longest text."""
    lengths = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_large_unicode(column.type) or pa.types.is_unicode(column.type):
            lengths += np.asarray(pc.fill_null(pc.binary_length(column), 0))
    return int(lengths.argmax())
