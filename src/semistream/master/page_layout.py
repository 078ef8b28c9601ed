"""Logical pages: what readers see when the table has deltas.

Without deltas a logical page is a physical page. With deltas the key space is cut at the first
key of every physical page of every segment::

    base     [a ......... f][g ............. p][q ....... z]
    upsert           [d . e .... h]
    cuts      a       d      g                  q
    logical  [a     )[d    )[g                )[q          ]

so each interval overlaps at most one page per segment, and merging it needs one page of each. The
exception is a run of equal keys that fills several pages of a segment: those pages share one
cut. All but the last of them contain only the cut's key, so each becomes a separate logical page,
and the last one is merged with the other segments as usual. They are skipped here, unread, if the
index already shows that a newer segment has the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from semistream.keys import KeyCodec
from semistream.master.index import Keys, PageIndex
from semistream.master.manifest import SegmentInfo
from semistream.master.reader import OpenSegment

Pages = np.ndarray[Any, np.dtype[np.int64]]


class PageLayout:
    """Which physical pages make up each logical page.

    ``pieces[l, s]`` is the page of segment ``s`` that logical page ``l`` needs, or -1.
    ``only[l]`` is the segment whose rows page ``l`` shows if it is part of a run of equal keys,
    else -1 for all. ``interval[l]`` numbers its cut in ``cuts``.
    """

    def __init__(
        self, segments: Sequence[OpenSegment], infos: Sequence[SegmentInfo], codec: KeyCodec
    ) -> None:
        self.segments = list(segments)
        self.shows_rows = [info.kind != "delete" for info in infos]
        self.firsts = [codec.sortable(s.pages.firsts.columns) for s in segments]
        self.lasts = [codec.sortable(s.pages.lasts.columns) for s in segments]
        self.plain = segments[0] if len(segments) == 1 else None
        if self.plain is not None:
            firsts, lasts = self.firsts[0], self.lasts[0]
            continues = np.zeros(len(firsts), dtype=np.bool_)
            continues[:-1] = lasts[:-1] == firsts[1:]
            self.index = PageIndex(codec, firsts, continues, self.plain.nbytes)
            self.num_pages = len(firsts)
            self.max_page_bytes = int(self.plain.pages.lengths.max(initial=0))
        else:
            self._cut(codec)
        self._measure()

    def _cut(self, codec: KeyCodec) -> None:
        self.cuts: Keys = np.unique(np.concatenate(self.firsts))
        final = [
            _overlapping(self.cuts, firsts, lasts)
            for firsts, lasts in zip(self.firsts, self.lasts, strict=True)
        ]
        last = np.stack([pages for _, pages in final], axis=1)
        numbers = np.arange(len(self.cuts))
        interval, pieces = [numbers], [last]
        only = [np.full(len(numbers), -1, dtype=np.int64)]
        order = [np.full(len(numbers), np.iinfo(np.int64).max)]
        for s, (first, _) in enumerate(final):
            for cut in np.flatnonzero((first >= 0) & (first < last[:, s])):
                if not self.shows_rows[s] or self._superseded(s, int(cut), final):
                    continue
                run = np.arange(first[cut], last[cut, s])
                rows = np.tile(last[cut], (len(run), 1))
                rows[:, :s] = -1
                rows[:, s] = run
                interval.append(np.full(len(run), cut))
                pieces.append(rows)
                only.append(np.full(len(run), s, dtype=np.int64))
                order.append(run)
        where = np.concatenate(interval)
        sequence = np.lexsort((np.concatenate(order), np.concatenate(only) < 0, where))
        self.interval = where[sequence]
        self.pieces: Pages = np.concatenate(pieces)[sequence]
        self.only = np.concatenate(only)[sequence]
        self.num_pages = len(sequence)
        continues = np.zeros(self.num_pages, dtype=np.bool_)
        continues[:-1] = self.interval[:-1] == self.interval[1:]
        beside = sum(segment.nbytes for segment in self.segments)
        beside += self.pieces.nbytes + self.only.nbytes + self.interval.nbytes + self.cuts.nbytes
        self.index = PageIndex(codec, self.cuts[self.interval], continues, beside)

    def _superseded(self, s: int, cut: int, final: list[tuple[Pages, Pages]]) -> bool:
        """Whether the index alone shows that a newer segment has the key of this cut."""
        key = self.cuts[cut]
        for newer in range(s + 1, len(final)):
            page = int(final[newer][1][cut])
            if page >= 0 and (self.firsts[newer][page] == key or self.lasts[newer][page] == key):
                return True
        return False

    def _measure(self) -> None:
        shown = [s.pages for s, shows in zip(self.segments, self.shows_rows, strict=True) if shows]
        self.max_row_bytes = max((int(p.max_row_bytes.max(initial=0)) for p in shown), default=0)
        rows = sum(int(p.rows.sum()) for p in shown)
        self.row_bytes = sum(int(p.lengths.sum()) for p in shown) / rows if rows else 0.0
        if self.plain is not None:
            return
        total = np.zeros(self.num_pages, dtype=np.int64)
        for s, segment in enumerate(self.segments):
            if self.shows_rows[s] and len(segment.pages):
                page = self.pieces[:, s]
                visible = (page >= 0) & ((self.only < 0) | (self.only == s))
                total += np.where(visible, segment.pages.lengths[np.maximum(page, 0)], 0)
        self.max_page_bytes = int(total.max(initial=0))


def _overlapping(cuts: Keys, firsts: Keys, lasts: Keys) -> tuple[Pages, Pages]:
    """For each interval the first and last page of one segment that reach into it, or -1."""
    if len(firsts) == 0:
        nothing = np.full(len(cuts), -1, dtype=np.int64)
        return nothing, nothing
    last = np.searchsorted(firsts, cuts, side="right").astype(np.int64) - 1
    reaches = (last >= 0) & (lasts[np.maximum(last, 0)] >= cuts)
    left = np.searchsorted(firsts, cuts, side="left").astype(np.int64)
    before = np.maximum(left - 1, 0)
    earlier = left - ((left > 0) & (lasts[before] >= cuts))
    first = np.where(left <= last, earlier, last)
    return np.where(reaches, first, -1), np.where(reaches, last, -1)
