"""Several files read as one: the base of a parallel build, and the deltas after it.

A parallel build writes one segment per range of codes. Copying them into one file would send the
whole table through one process; instead the files are mapped, one after the other, into one offset
space. Each starts at a block boundary, so that direct reads stay aligned. Bytes between the pages
of adjacent files (a footer, padding, a header) are read and ignored.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from semistream.errors import MasterTableError
from semistream.master.extents import Extents
from semistream.master.index import PagePlaces
from semistream.master.local_file import ALIGNMENT, RangeFile
from semistream.master.manifest import SegmentInfo
from semistream.master.page_claims import PageClaims, StitchedClaims
from semistream.master.reader import OpenSegment


def stitched(parts: Sequence[OpenSegment], infos: Sequence[SegmentInfo]) -> OpenSegment:
    """Segments one after the other, as one. Files without pages are closed."""
    used = [(p, info) for p, info in zip(parts, infos, strict=True) if len(p.pages)]
    used = used or [(parts[0], infos[0])]
    for part in parts:
        if all(part is not other for other, _ in used):
            part.close()
    if len(used) == 1:
        return used[0][0]
    parts, infos = [part for part, _ in used], [info for _, info in used]
    starts = _starts([info.bytes for info in infos])
    pages = [part.pages for part in parts]
    firsts = np.cumsum([0, *(len(p) for p in pages)]).tolist()
    # In place: a run that moves to a new version waits for it, and new memory takes longest.
    offsets = np.concatenate([p.offsets for p in pages])
    for first, end, start in zip(firsts, firsts[1:], starts, strict=False):
        if start:
            offsets[first:end] += start
    continues = np.concatenate([p.continues for p in pages])
    for end, (before, after) in zip(firsts[1:], pairwise(pages), strict=False):
        continues[end - 1] = before.last_code == after.first_codes[0]
    whole = PagePlaces(
        offsets,
        np.concatenate([p.lengths for p in pages]),
        np.concatenate([p.first_codes for p in pages]),
        continues,
        pages[-1].last_code,
        sum(p.rows for p in pages),
        max(p.max_row_bytes for p in pages),
    )
    file = StitchedFile([part.file for part in parts], [info.bytes for info in infos], starts)
    claims = StitchedClaims([part.claims for part in parts], firsts[:-1])
    return StitchedSegment(parts, firsts, starts, file, whole, claims)


class StitchedSegment(OpenSegment):
    """Several segments as one. ``firsts`` has the first page of each, ``starts`` the place of its
    file."""

    def __init__(
        self, members: Sequence[OpenSegment], firsts: list[int], starts: list[int],
        file: StitchedFile, pages: PagePlaces, claims: PageClaims,
    ) -> None:  # fmt: skip
        first = members[0]
        super().__init__(file, file.name, first.codes, pages, claims, first.page_check)
        self.parts = [(first, m.parts[0][1]) for first, m in zip(firsts, members, strict=False)]
        self.checked = np.concatenate([member.checked for member in members])
        self._starts = starts
        # The first is the largest, and all versions have it: what is known of it is kept.
        self._first_pages, self._first_windows = len(first.pages), first._windows
        self._files = [(member.file, member.claims) for member in members]
        # Their arrays are parts of this segment's.
        totals = (member.pages for member in members)
        self._totals = [(pages.last_code, pages.rows, pages.max_row_bytes) for pages in totals]

    def _largest_window(self, count: int, slack: int) -> int:
        end, known = self._first_pages, self._first_windows
        if end < count:
            return super()._largest_window(count, slack)
        if (count, slack) not in known:
            known[count, slack] = self._largest_between(0, end, count, slack)
        others = self._largest_between(end - count + 1, len(self.offsets), count, slack)
        return max(known[count, slack], others)

    def by_file(self) -> dict[str, OpenSegment]:
        found, pages = {}, self.pages
        ends = [*(first for first, _ in self.parts[1:]), len(pages)]
        for (first, path), end, start, (file, claims), totals in zip(
            self.parts, ends, self._starts, self._files, self._totals, strict=True
        ):
            own = slice(first, end)
            continues = pages.continues[own].copy()
            continues[-1:] = False
            places = PagePlaces(
                pages.offsets[own] - start if start else pages.offsets[own],
                pages.lengths[own],
                pages.first_codes[own],
                continues,
                *totals,
            )
            segment = OpenSegment(file, path, self.codes, places, claims, self.page_check)
            segment.checked = self.checked[own]
            if first == 0:
                segment._windows = self._first_windows
            found[path] = segment
        return found


def check_base_order(parts: Sequence[OpenSegment]) -> None:
    """Raise if the segments of a base are not in code order."""
    pages = [part.pages for part in parts if len(part.pages)]
    for before, after in pairwise(pages):
        if before.last_code > after.first_codes[0]:
            raise MasterTableError(
                f"{parts[0].parts[0][1]}: the segments of the base overlap or are out of order; "
                "build the table again"
            )


def _starts(sizes: Sequence[int]) -> list[int]:
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return starts


class StitchedFile:
    """Several files as one. A read ends early at a file that is shorter than expected."""

    def __init__(
        self, files: Sequence[RangeFile], sizes: Sequence[int], starts: Sequence[int]
    ) -> None:
        self.name = files[0].name
        self._files = list(files)
        self._sizes = list(sizes)
        self._starts = np.array(starts, np.int64)

    def read_into(self, target: memoryview, offset: int, direct: bool = False) -> int:
        done, wanted = 0, len(target)
        while done < wanted:
            i, at = self._find(offset + done)
            last = i + 1 == len(self._files)
            room = wanted - done if last else int(self._starts[i + 1]) - (offset + done)
            part = target[done : done + min(room, wanted - done)]
            got = self._files[i].read_into(part, at, direct)
            if got < len(part) and (last or at + got < self._sizes[i]):
                return done + got
            done += len(part)
        return done

    def read_ranges(self, target: memoryview, extents: Extents) -> bool:
        return all(self._files[i].read_ranges(target, some) for i, some in self._by_file(extents))

    def descriptors(self) -> list[tuple[int, int]]:
        parts = zip(self._files, self._starts.tolist(), strict=True)
        return [
            (start, descriptor) for file, start in parts for _, descriptor in file.descriptors()
        ]

    def prefetch(self, extents: Extents) -> None:
        for i, some in self._by_file(extents):
            self._files[i].prefetch(some)

    def located(self, extents: Extents) -> tuple[Any, Extents]:
        found = self._file_of(extents)
        descriptors, here = np.empty(len(extents), np.int64), extents.part(slice(None))
        here.offsets = extents.offsets - self._starts[found]
        for i, some in self._by_file(extents):
            descriptors[found == i], _ = self._files[i].located(some)
        return descriptors, here

    def _file_of(self, extents: Extents) -> Any:
        """The file of each range. None crosses the end of a file: a footer is behind its pages."""
        return np.searchsorted(self._starts, extents.offsets, side="right") - 1

    def _by_file(self, extents: Extents) -> Iterator[tuple[int, Extents]]:
        """Every file that has some of these ranges, and the ranges inside it."""
        found = self._file_of(extents)
        for i in np.unique(found).tolist():
            here = extents.part(found == i)
            here.offsets = here.offsets - self._starts[i]
            yield i, here

    def map(self, begin: int, length: int) -> tuple[mmap.mmap, int] | None:
        """As :meth:`LocalFile.map`; None for a range across the end of a file."""
        i, at = self._find(begin)
        return self._files[i].map(at, length) if at + length <= self._sizes[i] else None

    def extent(self, nbytes: int) -> list[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        for file, size, start in zip(self._files, self._sizes, self._starts.tolist(), strict=True):
            wanted = min(size, nbytes - start)
            ((descriptor, _, length),) = file.extent(wanted)
            found.append((descriptor, start, length))
            if length < wanted:
                break
        return found

    def _find(self, offset: int) -> tuple[int, int]:
        """The file of an offset, and the offset inside it."""
        i = int(np.searchsorted(self._starts, offset, side="right")) - 1
        return i, offset - int(self._starts[i])

    def reopen(self) -> None:
        for file in self._files:
            file.reopen()

    def close(self) -> None:
        for file in self._files:
            file.close()
