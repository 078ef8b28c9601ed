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
from typing import Any

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

    ``keeps_folded``: after these come the pages of deltas that an older ``known`` has and this
    version does not, for tuples that wait for them. No code is located there.
    """

    def __init__(
        self,
        store: LocalStore,
        manifest: Manifest,
        codec: KeyCodec,
        known: LogicalPages | None = None,
        keeps_folded: bool = False,
    ) -> None:
        infos = manifest.segments
        known_files = {} if known is None else known.segment.by_file()
        opened = [
            known_files.get(str(store.path(info.file))) or open_segment(store, manifest, info)
            for info in infos
        ]
        check_base_order([part for part, i in zip(opened, infos, strict=True) if i.kind == "base"])
        sizes = [len(part.pages) for part in opened]
        base = sum(n for n, info in zip(sizes, infos, strict=True) if info.kind == "base")
        deltas = [n for n, info in zip(sizes, infos, strict=True) if info.kind == "delta"]
        self.bounds = [0, *np.cumsum([base, *deltas]).tolist()]
        self._infos = [[info for info in infos if info.kind == kind] for kind in _KINDS]
        self._version = manifest.version
        shared, before = self._deltas_shared_with(known)
        folded = []
        if keeps_folded and known is not None and before is not None:
            folded = [info for info in known._infos[1][shared:] if info.pages]
        old = [known_files[str(store.path(info.file))] for info in folded]
        self.segment: OpenSegment = stitched([*opened, *old], [*infos, *folded])
        changed = [
            ChangedCodes.read(store, info.changed)
            for info in manifest.deltas[shared:]
            if info.changed is not None
        ]
        old_sizes = [len(part.pages) for part in old]
        self.index: PageIndex = _index(codec, self.segment, self.bounds, old_sizes, changed, before)

    def _deltas_shared_with(self, known: LogicalPages | None) -> tuple[int, PageIndex | None]:
        """How many of the first deltas an older version has, too, and its index; 0 and None if it
        is not older, or has another base."""
        if known is None or known._version >= self._version or known._infos[0] != self._infos[0]:
            return 0, None
        pairs = zip(self._infos[1], known._infos[1], strict=False)
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
    old_sizes: list[int],
    changed: list[ChangedCodes],
    before: PageIndex | None,
) -> PageIndex:
    firsts, continues = segment.pages.first_codes, segment.pages.continues
    old_bounds = (bounds[-1] + np.cumsum([0, *old_sizes])).tolist() if old_sizes else bounds[-1:]
    boundaries = [*bounds[1:-1], *old_bounds[:-1]]
    inner = [bound for bound in boundaries if 0 < bound < len(firsts)]
    continues[[bound - 1 for bound in inner]] = False  # the next page is of another segment
    return PageIndex(
        codec,
        firsts,
        continues,
        segment.nbytes - firsts.nbytes - continues.nbytes,  # they are the index's own
        boundaries=boundaries,
        own_pages=bounds[-1],
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
    found = ChangedPages.none() if before is None else before.changed_pages
    for delta, (begin, end) in zip(
        changed, list(pairwise(bounds))[-len(changed) :] if changed else (), strict=True
    ):
        low, high = _pages_of(delta, firsts[begin:end], continues[begin:end], begin)
        found = ChangedPages(delta.codes, low, high).merged_into(found)
    return found


def _pages_of(delta: ChangedCodes, firsts: Codes, continues: Mask, begin: int) -> tuple[Any, Any]:
    """The first and last page of each code of a delta, whose first page is ``begin``."""
    if continues.any() or not len(firsts):
        low, high = (
            (pages + begin).astype(np.int32)
            for pages in page_ranges(firsts, continues, delta.codes)
        )
    else:  # there are fewer pages than codes, and both ascend: look up the pages among the codes
        begins = np.searchsorted(delta.codes, firsts[1:])
        counts = np.diff(np.r_[0, begins, len(delta)])
        numbers = np.arange(begin, begin + len(firsts), dtype=np.int32)
        low = high = np.repeat(numbers, counts)
    if not delta.present.all():
        low, high = np.where(delta.present, low, 0), np.where(delta.present, high, -1)
    return low.astype(np.int32, copy=False), high.astype(np.int32, copy=False)
