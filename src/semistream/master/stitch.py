"""A base in several files: sorted segments, concatenated logically and read as one.

A parallel build writes one segment per key range. Copying them into one file would send the whole
table through one process; instead the files are mapped, in key order, into one offset space. Each
starts at a block boundary, so that direct reads stay aligned. Bytes between the pages of adjacent
files (a footer, padding, a header) are read and ignored.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from semistream.errors import MasterTableError
from semistream.keys import KeyCodec
from semistream.master.disk_read import DiskRead
from semistream.master.index import SegmentPages
from semistream.master.manifest import Manifest, SegmentInfo
from semistream.master.reader import OpenSegment, open_segment
from semistream.master.sort import joined
from semistream.master.store import ALIGNMENT, LocalStore, RangeFile


def open_segments(
    store: LocalStore, manifest: Manifest
) -> tuple[list[OpenSegment], list[SegmentInfo]]:
    """Open the base and its deltas. Also returns the info of each segment."""
    infos = list(manifest.segments)
    bases = 1
    while bases < len(infos) and infos[bases].kind == "base":
        bases += 1
    opened = [open_segment(store, manifest, info) for info in infos]
    if bases == 1:
        return opened, infos
    base = stitched(opened[:bases], infos[:bases], manifest)
    return [base, *opened[bases:]], [infos[0], *infos[bases:]]


def stitched(
    parts: Sequence[OpenSegment], infos: Sequence[SegmentInfo], manifest: Manifest
) -> OpenSegment:
    """Segments in key order as one."""
    starts = _starts([info.bytes for info in infos])
    pages = [part.pages for part in parts]
    shift = np.repeat(np.array(starts, np.int64), [len(p) for p in pages])
    whole = SegmentPages(
        offsets=np.concatenate([p.offsets for p in pages]) + shift,
        lengths=np.concatenate([p.lengths for p in pages]),
        rows=np.concatenate([p.rows for p in pages]),
        checksums=np.concatenate([p.checksums for p in pages]),
        max_row_bytes=np.concatenate([p.max_row_bytes for p in pages]),
        firsts=joined([p.firsts for p in pages]),
        lasts=joined([p.lasts for p in pages]),
    )
    _check_order(whole, parts[0].path, manifest.key_schema)
    file = StitchedFile([part.file for part in parts], [info.bytes for info in infos], starts)
    path = f"{parts[0].path} and the {len(parts) - 1} segments after it"
    segment = OpenSegment(file, path, parts[0].schema, whole)
    between = whole.offsets[1:] - (whole.offsets + whole.lengths)[:-1]
    segment.gap = int(between.max(initial=0))
    segment.gaps = int(np.count_nonzero(between))
    return segment


def _check_order(pages: SegmentPages, path: str, key: pa.Schema) -> None:
    codec = KeyCodec.for_types(key.types)
    firsts, lasts = codec.sortable(pages.firsts.columns), codec.sortable(pages.lasts.columns)
    if bool(np.any(lasts[:-1] > firsts[1:])):
        raise MasterTableError(
            f"{path}: the segments of the base overlap or are out of order; build the table again"
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

    def prefetch(self, ahead: DiskRead | None, target: memoryview, offset: int) -> None:
        """As :meth:`LocalFile.prefetch`; does not read ahead across the end of a file."""
        i, at = self._find(offset)
        if i + 1 == len(self._files) or offset + len(target) <= self._starts[i + 1]:
            self._files[i].prefetch(ahead, target, at)

    def map(self, begin: int, length: int) -> tuple[mmap.mmap, int] | None:
        """As :meth:`LocalFile.map`; None for a range across the end of a file."""
        i, at = self._find(begin)
        return self._files[i].map(at, length) if at + length <= self._sizes[i] else None

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
