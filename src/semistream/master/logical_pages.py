"""Logical pages: all pages of the base, then those of each delta, oldest first, as one segment.

    base      [a ......... f][g ............. p][q ....... z]      pages 0 to 2
    delta 1            [d . e .... h]                              page 3
    delta 2    changed: b, e (deleted)   [b]                       page 4

A delta hides the rows that older segments have with the codes that it changed. Nothing is merged
when pages are read: the page index has the pages of every changed code, and rows that are hidden
are masked (:meth:`PageIndex.visible`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from semistream.keys import Codes, KeyCodec
from semistream.master.changed import ChangedCodes
from semistream.master.delta_codes import Delta, DeltaCodes
from semistream.master.index import PageIndex, PagePlaces
from semistream.master.manifest import ChangedInfo, Manifest, SegmentInfo
from semistream.master.reader import OpenSegment, PlainReader, open_segment
from semistream.master.stitch import check_base_order, stitched
from semistream.master.store import LocalStore

_KINDS = "base", "delta"
_MOST_FOLDED = 16  # deltas that are kept after they were folded: each has a file open


class LogicalPages:
    """The open files of a version as one segment, and their page index.

    ``bounds`` has the first page of the base and of every delta, and the end of the last. Files
    that ``known``, another version with this schema, has open are not opened and checked again.

    ``awaited``: tuples wait for pages of an older ``known``, for none from this one on. After the
    pages of this version come those of deltas that were folded since, the newest change first, as
    far as they are awaited. No code is located there.
    """

    def __init__(
        self,
        store: LocalStore,
        manifest: Manifest,
        codec: KeyCodec,
        known: LogicalPages | None = None,
        awaited: int = 0,
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
        self._folded: list[SegmentInfo] = []
        if known is not None and known._is_before(self):
            self._folded = known._folded_in(infos, awaited)
        old = [known_files[str(store.path(info.file))] for info in self._folded]
        self.segment: OpenSegment = stitched([*opened, *old], [*infos, *self._folded])
        self._codes = self._changed_codes(store, manifest, known)
        old_sizes = [len(part.pages) for part in old]
        self.index: PageIndex = _index(
            codec, self.segment, self.bounds, old_sizes, list(self._codes.values())
        )

    def _changed_codes(
        self, store: LocalStore, manifest: Manifest, known: LogicalPages | None
    ) -> dict[str, DeltaCodes]:
        """The changed codes of each delta. Those that another version has are shared with it."""
        shared = {} if known is None else known._codes
        names = {delta.name for delta in manifest.deltas}
        folded = [codes for name, codes in shared.items() if name not in names]
        follows = known is not None and known._version == manifest.parent and known._is_before(self)
        found: dict[str, DeltaCodes] = {}
        for info in manifest.deltas:
            codes = shared.get(info.name)
            if codes is None and follows and folded and manifest.changed is not None:
                codes = DeltaCodes.of_fold(folded, _read(store, manifest.changed))
            if codes is None and info.changed is not None:
                codes = _read(store, info.changed)
            if codes is not None:
                found[info.name] = codes
        return found

    def codes_in_memory(self, name: str) -> Codes | None:
        """The codes of a file of changed codes, if they are in memory as they are in the file."""
        lists = (one for delta in self._codes.values() for one in delta.lists)
        return next((one.codes for one in lists if one.name == name), None)

    def _folded_in(self, infos: Sequence[SegmentInfo], awaited: int) -> list[SegmentInfo]:
        """The deltas that a newer version with these segments does not have, and those that this
        one has kept, up to the last that is ``awaited``."""
        firsts = zip([*self._infos[1], *self._folded], self.index.boundaries, strict=True)
        found = [info for info, first in firsts if info not in infos and first < awaited]
        return [info for info in found if info.pages][:_MOST_FOLDED]

    def _is_before(self, other: LogicalPages) -> bool:
        """Whether this is an older version with the same base."""
        return self._version < other._version and self._infos[0] == other._infos[0]

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


def _read(store: LocalStore, info: ChangedInfo) -> DeltaCodes:
    return DeltaCodes(ChangedCodes.read(store, info), info.name)


def _index(
    codec: KeyCodec,
    segment: OpenSegment,
    bounds: list[int],
    old_sizes: list[int],
    changed: list[DeltaCodes],
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
        deltas=list(map(Delta, changed, bounds[1:], bounds[2:])),
    )
