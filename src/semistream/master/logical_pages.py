"""Logical pages: all pages of the base, then those of each delta, oldest first, as one segment.

    base      [a ......... f][g ............. p][q ....... z]      pages 0 to 2
    delta 1            [d . e .... h]                              page 3
    delta 2    changed: b, e (deleted)   [b]                       page 4

A delta hides the rows that older segments have with the codes that it changed. Nothing is merged
when pages are read: the page index has the pages of every changed code, and rows that are hidden
are masked (:meth:`PageIndex.visible`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, takewhile

import numpy as np
import pyarrow as pa

from semistream.keys import Codes, KeyCodec, Mask
from semistream.master.changed import ChangedCodes
from semistream.master.index import ChangedPages, PageIndex, PagePlaces, page_ranges
from semistream.master.manifest import Manifest
from semistream.master.reader import OpenSegment, PlainReader, open_segment
from semistream.master.stitch import check_base_order, stitched
from semistream.master.store import LocalStore

_KINDS = "base", "delta"


class LogicalPages:
    """The open files of a version as one segment, and their page index.

    ``bounds`` has the first page of the base and of every delta, and the end of the last. Files
    that ``known``, another version with this schema, has open are not opened and checked again.
    """

    def __init__(
        self,
        store: LocalStore,
        manifest: Manifest,
        codec: KeyCodec,
        known: LogicalPages | None = None,
    ) -> None:
        infos = manifest.segments
        known_files = {} if known is None else known.segment.by_file()
        opened = [
            known_files.get(str(store.path(info.file))) or open_segment(store, manifest, info)
            for info in infos
        ]
        check_base_order([part for part, i in zip(opened, infos, strict=True) if i.kind == "base"])
        self.segment: OpenSegment = stitched(opened, infos)
        sizes = [len(part.pages) for part in opened]
        base = sum(n for n, info in zip(sizes, infos, strict=True) if info.kind == "base")
        deltas = [n for n, info in zip(sizes, infos, strict=True) if info.kind == "delta"]
        self.bounds = [0, *np.cumsum([base, *deltas]).tolist()]
        self._files = [[info.file for info in infos if info.kind == kind] for kind in _KINDS]
        self._version = manifest.version
        shared, before = self._deltas_shared_with(known)
        changed = [
            ChangedCodes.read(store, info.changed)
            for info in manifest.deltas[shared:]
            if info.changed is not None
        ]
        self.index: PageIndex = _index(codec, self.segment, self.bounds, changed, before)

    def _deltas_shared_with(self, known: LogicalPages | None) -> tuple[int, PageIndex | None]:
        """How many of the first deltas an older version has, too, and its index; 0 and None if it
        is not older, or has another base."""
        if known is None or known._version >= self._version or known._files[0] != self._files[0]:
            return 0, None
        pairs = zip(self._files[1], known._files[1], strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))), known.index

    @property
    def num_pages(self) -> int:
        return len(self.segment.pages)

    @property
    def pages(self) -> PagePlaces:
        return self.segment.pages

    def pages_of(self, delta: int) -> tuple[int, int]:
        """The first page of a delta, counted from the oldest, and the end of its last."""
        return self.bounds[1 + delta], self.bounds[2 + delta]

    @property
    def row_bytes(self) -> float:
        """Bytes of an average row on disk, framing included."""
        rows = self.pages.rows
        return int(self.pages.lengths.sum()) / rows if rows else 0.0

    def streams(self) -> list[Iterator[pa.RecordBatch]]:
        """The visible rows of the base and of each delta, each in code order. A batch is valid
        until the next one of its stream is read."""
        ranges = zip(self.bounds, self.bounds[1:], strict=False)
        return [self._visible(first, end) for first, end in ranges if first < end]

    def _visible(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        reader = PlainReader(self.segment, 1, direct=False)
        codes = self.segment.codes
        for number in range(first, end):
            (page,) = reader.read(number)
            shown = self.index.visible(number, codes.stored(page), np.array([page.num_rows]))
            if shown is not None and not shown.all():
                page = page.filter(pa.array(shown))
            if page.num_rows:
                yield page


def _index(
    codec: KeyCodec,
    segment: OpenSegment,
    bounds: list[int],
    changed: list[ChangedCodes],
    before: PageIndex | None,
) -> PageIndex:
    firsts, continues = segment.pages.first_codes, segment.pages.continues
    inner = [bound for bound in bounds[1:-1] if 0 < bound < len(firsts)]
    continues[[bound - 1 for bound in inner]] = False  # the next page is of another segment
    return PageIndex(
        codec,
        firsts,
        continues,
        segment.nbytes - firsts.nbytes - continues.nbytes,  # they are the index's own
        boundaries=bounds[1:-1],
        changed=_changed_pages(firsts, continues, bounds, changed, before),
    )


def _changed_pages(
    firsts: Codes,
    continues: Mask,
    bounds: list[int],
    changed: list[ChangedCodes],
    before: PageIndex | None,
) -> ChangedPages | None:
    """The pages of every changed code, in the newest delta that has it.

    ``changed`` are the lists of the last deltas. ``before`` is the index of a version that has the
    others, too; a delta that only that version has was folded into one of the last, which has all
    its codes.
    """
    if not changed and before is None:
        return None
    found = ChangedPages.none()
    if before is not None:
        found = ChangedPages(before.changed, before.changed_low, before.changed_high)
    for delta, (begin, end) in zip(
        changed, list(pairwise(bounds))[-len(changed) :] if changed else (), strict=True
    ):
        low, high = page_ranges(firsts[begin:end], continues[begin:end], delta.codes)
        lows = np.where(delta.present, low + begin, 0).astype(np.int32)
        highs = np.where(delta.present, high + begin, -1).astype(np.int32)
        found = _merged(ChangedPages(delta.codes, lows, highs), found)
    return found


def _merged(newer: ChangedPages, older: ChangedPages) -> ChangedPages:
    """All codes of both; where both have a code, the newer one is right."""
    if not len(older.codes):
        return newer
    if not len(newer.codes):
        return older
    from semistream.kernels import changed_codes

    most = len(newer.codes) + len(older.codes)
    codes, low, high = np.empty(most, np.int64), np.empty(most, np.int32), np.empty(most, np.int32)
    count = changed_codes.merge(
        newer.codes, newer.low, newer.high, older.codes, older.low, older.high, codes, low, high
    )
    for array in (codes, low, high):
        array.resize(count, refcheck=False)  # in place: nobody else has it
    return ChangedPages(codes, low, high)
