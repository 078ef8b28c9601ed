"""Reading logical pages of a table with deltas: the newest segment that has a key wins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.keys import KeyCodec
from semistream.master.index import Keys, single
from semistream.master.page_buffer import PageBuffer, aligned
from semistream.master.page_layout import PageLayout
from semistream.master.reader import OpenSegment, fetch, raise_read_error
from semistream.master.sort import joined
from semistream.master.store import ALIGNMENT

_OBJECT = 64
_SCRATCH_PAGES = 2  # while one page is merged: its concatenated rows, and their keys


class MergingReader:
    """One buffer per segment, and the merged pages of the last read."""

    def __init__(
        self,
        layout: PageLayout,
        schema: pa.Schema,
        codec: KeyCodec,
        pages_at_once: int,
        direct: bool,
    ) -> None:
        self._layout = layout
        self._nothing = pa.RecordBatch.from_pylist([], schema=schema)
        self._codec = codec
        self._at_once = pages_at_once
        self._direct = direct
        self._buffers: list[PageBuffer] | None = [
            PageBuffer(_room(segment, pages_at_once, direct)) for segment in layout.segments
        ]
        self._keys_of = [
            [segment.schema.get_field_index(field.name) for field in _key_fields(layout)]
            for segment in layout.segments
        ]
        self._held: list[dict[int, _Piece]] = [{} for _ in layout.segments]
        self.bytes_read = 0

    @staticmethod
    def bytes_for(layout: PageLayout, codec: KeyCodec, pages_at_once: int, direct: bool) -> int:
        """The bytes that a reader will hold."""
        merged = (pages_at_once + _SCRATCH_PAGES) * layout.max_page_bytes
        buffers = sum(aligned(_room(s, pages_at_once, direct)) for s in layout.segments)
        return buffers + merged + sum(_key_room(s, pages_at_once, codec) for s in layout.segments)

    @property
    def nbytes(self) -> int:
        if self._buffers is None:
            return 0
        return self.bytes_for(self._layout, self._codec, self._at_once, self._direct)

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        pages = self._layout.num_pages
        if self._buffers is None or first < 0 or count > self._at_once or first + count > pages:
            raise_read_error(first, count, pages, self._at_once, self._buffers is None)
        wanted = self._layout.pieces[first : first + count]
        loaded = [self._load(s, wanted[:, s]) for s in range(len(self._layout.segments))]
        return [self._merged(page, loaded) for page in range(first, first + count)]

    def close(self) -> None:
        self._buffers = None
        self._held = []

    def _load(self, s: int, wanted: np.ndarray[Any, Any]) -> dict[int, _Piece]:
        """The pages of one segment; adjacent pages are read with one request.

        One page of a small delta overlaps many pages of the base: if the buffer still holds
        exactly the requested pages, nothing is read.
        """
        assert self._buffers is not None
        pages = sorted(set(wanted[wanted >= 0].tolist()))
        held = self._held[s]
        if pages == list(held):
            return held
        self._held[s] = {}  # so that a failed read leaves no partial pages
        loaded: dict[int, _Piece] = {}
        at = 0
        for start, count in _runs(pages):
            batches, nbytes = fetch(
                self._layout.segments[s], start, count, self._buffers[s], at, self._direct
            )
            at += nbytes
            self.bytes_read += nbytes
            for page, batch in enumerate(batches, start):
                loaded[page] = _Piece(batch, self._keys_of[s], self._codec)
        self._held[s] = loaded
        return loaded

    def _merged(self, page: int, loaded: list[dict[int, _Piece]]) -> pa.RecordBatch:
        layout = self._layout
        interval = int(layout.interval[page])
        only = int(layout.only[page])
        shown: list[_Rows] = []
        newer: list[Keys] = []
        for s in range(len(loaded) - 1, -1, -1):  # newest first
            number = int(layout.pieces[page, s])
            if number < 0:
                continue
            piece = loaded[s][number]
            begin, end = self._extent(s, number, interval, piece)
            if begin == end:
                continue
            if layout.shows_rows[s] and only in (-1, s):
                shown.append(_Rows(piece, begin, end, newer))
            if s > 0:
                newer.append(piece.keys[begin:end])
        return self._assembled([rows for rows in shown if rows.count])

    def _assembled(self, shown: list[_Rows]) -> pa.RecordBatch:
        """Rows of several segments in key order, with as few copies as possible."""
        if not shown:
            return self._nothing
        if len(shown) == 1 and shown[0].keep is None:
            return shown[0].batch
        batch = joined([rows.batch for rows in shown])
        places, keys, at = [], [], 0
        for rows in shown:
            places.append(
                np.arange(at, at + rows.batch.num_rows) if rows.keep is None else at + rows.keep
            )
            keys.append(rows.keys if rows.keep is None else rows.keys[rows.keep])
            at += rows.batch.num_rows
        order = np.argsort(np.concatenate(keys), kind="stable")
        return batch.take(pa.array(np.concatenate(places)[order]))

    def _extent(self, s: int, number: int, interval: int, piece: _Piece) -> tuple[int, int]:
        """The rows of a physical page in an interval; from the index alone if possible."""
        layout = self._layout
        low = layout.cuts[interval]
        begin, end = 0, piece.batch.num_rows
        if layout.firsts[s][number] < low:
            begin = piece.position(low)
        if interval + 1 < len(layout.cuts):
            high = layout.cuts[interval + 1]
            if layout.lasts[s][number] >= high:
                end = piece.position(high)
        return begin, end


class _Piece:
    """A physical page in the buffer; its sortable keys are computed on first use."""

    def __init__(self, batch: pa.RecordBatch, key: list[int], codec: KeyCodec) -> None:
        self.batch = batch
        self._key = key
        self._codec = codec
        self._keys: Keys | None = None

    @property
    def keys(self) -> Keys:
        if self._keys is None:
            self._keys = self._codec.sortable([self.batch.column(i) for i in self._key])
        return self._keys

    def position(self, key: Any) -> int:
        return int(np.searchsorted(self.keys, single(key, self.keys))[0])


class _Rows:
    """Adjacent rows of a piece; ``keep`` lists those whose key is in no newer segment."""

    def __init__(self, piece: _Piece, begin: int, end: int, newer: list[Keys]) -> None:
        self.batch = piece.batch.slice(begin, end - begin)
        self._piece, self._begin, self._end = piece, begin, end
        self.keep: np.ndarray[Any, np.dtype[np.intp]] | None = None
        self.count = end - begin
        hidden = np.zeros(self.count, dtype=np.bool_)
        for others in newer:
            hidden |= contains(others, self.keys)
        if hidden.any():
            self.keep = np.flatnonzero(~hidden)
            self.count = len(self.keep)

    @property
    def keys(self) -> Keys:
        return self._piece.keys[self._begin : self._end]


def contains(sorted_keys: Keys, keys: Keys) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each key, whether it is among ``sorted_keys``."""
    if len(sorted_keys) == 0:
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.searchsorted(sorted_keys, keys)
    found = sorted_keys[np.minimum(places, len(sorted_keys) - 1)] == keys
    return np.asarray((places < len(sorted_keys)) & found, dtype=np.bool_)


def _runs(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as runs of consecutive ones: first number and count."""
    start = 0
    for i in range(1, len(pages) + 1):
        if i == len(pages) or pages[i] != pages[i - 1] + 1:
            yield pages[start], i - start
            start = i


def _key_fields(layout: PageLayout) -> pa.Schema:
    return layout.segments[0].pages.firsts.schema


def _room(segment: OpenSegment, pages_at_once: int, direct: bool) -> int:
    """Bytes of the buffer for one segment's pages."""
    count = min(pages_at_once, len(segment.pages))
    slack = 2 * ALIGNMENT if direct else 0
    between = min(count, segment.gaps) * segment.gap
    return count * (int(segment.pages.lengths.max(initial=0)) + slack) + between


def _key_room(segment: OpenSegment, pages_at_once: int, codec: KeyCodec) -> int:
    """Bytes of the sortable keys of the buffered pages: numbers, or byte strings as objects."""
    pages = segment.pages
    sizes = 8 * pages.rows if codec.exact else _OBJECT * pages.rows + pages.lengths
    return min(pages_at_once, len(pages)) * int(sizes.max(initial=0))
