"""Reads pages of one segment into a reused buffer and returns them as record batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from semistream import kernels
from semistream.errors import ConfigError, MasterTableError
from semistream.master.arrow_page_check import UNREADABLE
from semistream.master.codes import KeyCodes
from semistream.master.direct_ranges import DirectRanges
from semistream.master.extents import Extents
from semistream.master.index import PagePlaces, SegmentPages
from semistream.master.local_file import ALIGNMENT, RangeFile
from semistream.master.manifest import Manifest, SegmentInfo
from semistream.master.page_buffer import PageBuffer, aligned
from semistream.master.page_check import PageCheck, index_problem
from semistream.master.page_claims import PageClaims, StoredClaims
from semistream.master.store import LocalStore
from semistream.master.whole_map import WholeMap


class OpenSegment:
    """State shared by all readers of a segment: the file, the page index, the checked pages.

    A page's checksum and structure are checked on its first read; later reads skip the check. A
    segment in several files has ``parts``: the first page and the path of each.
    """

    def __init__(
        self,
        file: RangeFile,
        path: str,
        codes: KeyCodes,
        pages: PagePlaces,
        claims: PageClaims,
        page_check: PageCheck | None = None,
    ) -> None:
        self.file = file
        self.parts = [(0, path)]
        self.codes = codes
        self.schema = codes.schema
        self.pages = pages
        self.claims = claims
        self.offsets = pages.offsets
        self.checked = np.zeros(len(pages), dtype=np.bool_)
        self.page_check = page_check or PageCheck(codes)
        self._whole: WholeMap | None = None
        self._windows: dict[tuple[int, int], int] = {}  # see window_bytes

    def name_of(self, page: int) -> str:
        """The page's number in its file, and the file."""
        first, path = [part for part in self.parts if part[0] <= page][-1]
        return f"page {page - first} of {path}"

    @property
    def nbytes(self) -> int:
        return self.pages.nbytes + self.checked.nbytes

    def by_file(self) -> dict[str, OpenSegment]:
        """The segment of each file, by path, for a later version that has the file, too."""
        return {self.parts[0][1]: self}

    def close(self) -> None:
        self.file.close()
        self.claims.close()

    def reopen(self) -> None:
        """Open the file again after a failed read: it may have been replaced."""
        self.file.reopen()
        self._whole = None

    def whole_map(self) -> WholeMap:
        """A map of all pages, which all readers share."""
        if self._whole is None:
            end = int(self.ends(len(self.pages) - 1)) if len(self.pages) else 0
            self._whole = WholeMap(self.file, end)
            if self._whole.end < end:
                raise_truncated(self, 0, self._whole.end)
        return self._whole

    def ends(self, pages: Any) -> Any:
        """Where these pages end in the file."""
        return self.offsets[pages] + self.pages.lengths[pages]

    def located(self, pages: Any) -> tuple[Any, Any, int]:
        """Where these pages begin in the file, their sizes, and the bytes of all."""
        starts, sizes = np.empty(len(pages), np.int64), np.empty(len(pages), np.int64)
        total = kernels.page_places.locate(pages, self.offsets, self.pages.lengths, starts, sizes)
        return starts, sizes, total

    def window_bytes(self, count: int, slack: int = 0) -> int:
        """The size of the largest ``count`` adjacent pages, and ``slack`` for each of their ranges.
        What is between the pages of two files is not read."""
        count = min(count, len(self.offsets))
        if count == 0:
            return 0
        if (count, slack) not in self._windows:
            self._windows[count, slack] = self._largest_window(count, slack)
        return self._windows[count, slack]

    def _largest_window(self, count: int, slack: int) -> int:
        return self._largest_between(0, len(self.offsets), count, slack)

    def _largest_between(self, first: int, end: int, count: int, slack: int) -> int:
        """The same of some of the pages; ``count`` at least."""
        offsets, ends = self.offsets[first:end], self.ends(slice(first, end))
        sums = np.cumsum(np.r_[0, ends - offsets])
        sizes = sums[count:] - sums[:-count]
        apart = np.cumsum(np.r_[True, offsets[1:] != ends[:-1]])
        ranges = 1 + apart[count - 1 :] - apart[: len(sizes)]
        return int((sizes + slack * ranges).max())


def open_segment(store: LocalStore, manifest: Manifest, info: SegmentInfo) -> OpenSegment:
    """Load and check the page index, and open the file of pages."""
    name, data = str(store.path(info.index_file)), store.read(info.index_file)
    try:
        pages = SegmentPages.from_bytes(data, info.index_checksum, name)
        problem = index_problem(pages, info.bytes)
        places = SegmentPages.claim_places(data)
    except UNREADABLE as error:
        problem = f"it cannot be read ({error})"
    if problem is not None:
        raise MasterTableError(
            f"the page index {name} does not belong to this table: {problem}; "
            "restore the file from a copy or build the table again"
        )
    path = str(store.path(info.file))
    claims = StoredClaims(store.open(info.index_file), places)
    return OpenSegment(store.open(info.file), path, manifest.key_codes(), pages.places(), claims)


def parse(segment: OpenSegment, pages: Any, memory: Any, starts: Any) -> list[pa.RecordBatch]:
    """The loaded pages as record batches."""
    batches = []
    for page, start in zip(pages.tolist(), starts.tolist(), strict=True):
        data = _page(segment, page, memory, start)
        try:
            batches.append(pa.ipc.read_record_batch(data, segment.schema))
        except (pa.ArrowException, OSError):
            # It was valid before: raise an error that names the page.
            check(segment, np.array([page]), memory, np.array([start]))
            raise
    return batches


def _page(segment: OpenSegment, page: int, memory: Any, start: int) -> Any:
    return memory.slice(int(start), int(segment.pages.lengths[page]))


def raise_truncated(segment: OpenSegment, first: int, end: int) -> None:
    """Raise for the first page that is truncated."""
    page = first + int(np.searchsorted(segment.ends(slice(first, None)), end, side="right"))
    segment.checked[first:] = False
    segment.reopen()
    raise MasterTableError(
        f"{segment.name_of(page)} is truncated: {int(segment.ends(page)) - end} bytes are missing; "
        "restore the file from a copy or build the table again"
    )


def check(segment: OpenSegment, numbers: Any, memory: Any, starts: Any) -> None:
    """Check pages against their checksums and their index, and mark the valid ones as checked.

    Page ``numbers[i]`` begins at ``starts[i]`` of ``memory``. Raises for the first invalid page.
    """
    pages, view = segment.pages, memoryview(memory)
    claims = segment.claims.of(numbers)
    sizes = pages.lengths[numbers].astype(np.int64)
    ranges = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    hashes = [xxhash.xxh3_64_intdigest(view[begin:end]) for begin, end in ranges]
    intact = np.array(hashes, np.uint64) == claims.checksums
    damaged = "is damaged: its checksum does not match"
    problems = dict.fromkeys(np.flatnonzero(~intact).tolist(), damaged)
    places = np.flatnonzero(intact)
    found = segment.page_check.problems(
        (starts + memory.address)[places],
        sizes[places],
        claims.rows[places],
        pages.first_codes[numbers[places]],
        claims.last_codes[places],
    )
    for i, problem in found.items():
        problems[int(places[i])] = f"is not a page of this table: {problem.what}"
    segment.checked[numbers] = True
    if not problems:
        return
    segment.checked[numbers[list(problems)]] = False
    first = min(problems)
    segment.reopen()
    raise MasterTableError(
        f"{segment.name_of(int(numbers[first]))} {problems[first]}; "
        "restore the file from a copy or build the table again"
    )


class PlannedRead(NamedTuple):
    """Pages to read together, and where they are."""

    pages: Any
    sizes: Any  # bytes of each page
    extents: Any  # an Extents, or what a reader that copies nothing has instead


class PlainReader:
    """Adjacent pages with one request, without copies."""

    def __init__(
        self,
        segment: OpenSegment,
        pages_at_once: int,
        direct: bool,
        buffer: PageBuffer | None = None,
    ) -> None:
        self._segment = segment
        self._pages = len(segment.pages)
        self._at_once = pages_at_once
        self._direct = direct
        self._buffer: PageBuffer | None = buffer or PageBuffer(
            self.bytes_for(segment, pages_at_once, direct)
        )
        self._arrow: Any = None  # the buffer of the last load
        self._ahead = DirectRanges()
        self._prefetched: PlannedRead | None = None
        self.bytes_read = 0

    @staticmethod
    def bytes_for(segment: OpenSegment, pages_at_once: int, direct: bool) -> int:
        """The bytes that a reader will hold."""
        slack = 2 * ALIGNMENT if direct else 0
        return aligned(segment.window_bytes(pages_at_once, slack))

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes if self._buffer else 0

    def more_readers(self, count: int) -> list[PlainReader]:
        """More readers like this one, for reads in flight. Invalidates this reader's pages."""
        self._buffer, *others = PageBuffer.side_by_side(self.nbytes, 1 + count)
        return [PlainReader(self._segment, self._at_once, self._direct, one) for one in others]

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        buffer = self._buffer
        if buffer is None or first < 0 or count > self._at_once or first + count > self._pages:
            raise_read_error(first, count, self._pages, self._at_once, buffer is None)
        if count < 1:
            return []
        self.load(self.plan(np.arange(first, first + count)))
        return self.parse()

    def plan(self, pages: Any) -> PlannedRead:
        """The read of the longest part of these ascending pages, from the first on, that fits into
        the buffer."""
        while True:
            segment = self._segment
            begins, ends = segment.offsets[pages], segment.ends(pages)
            extents = Extents(begins, ends, self._direct)
            if extents.nbytes <= self.nbytes or len(pages) == 1:
                return PlannedRead(pages, ends - begins, extents)
            pages = pages[: max(1, len(pages) * self.nbytes // extents.nbytes)]

    def prefetch(self, read: PlannedRead) -> None:
        """Start a read whose pages the next :meth:`load` will return.

        With ``direct`` they are read into the buffer, whose present content is overwritten.
        """
        assert self._buffer is not None
        self._prefetched = None
        if not self._direct:
            self._segment.file.prefetch(read.extents)
        elif self._ahead.begin(self._segment.file, self._buffer.view, read.extents):
            self._prefetched = read

    @property
    def in_flight(self) -> bool:
        """Whether a prefetch is in flight."""
        return self._ahead.in_flight

    def load(self, read: PlannedRead) -> Any:
        """Read pages; returns the address of each."""
        assert self._buffer is not None
        self._arrow = self._buffer.arrow
        extents, ahead = read.extents, self._ahead if self._direct else None
        self._buffer.used = max(self._buffer.used, extents.nbytes)
        arrived = self._ahead.finish()
        if not (arrived and self._prefetched is read):
            read_extents(self._segment, read.pages, extents, self._buffer.view, ahead)
        self._prefetched = None
        self._arrived(read.pages, extents.starts)
        self.bytes_read += extents.nbytes
        return extents.starts + self._arrow.address

    def _arrived(self, pages: Any, starts: Any) -> None:
        """Check the pages that have not been read before; keep them for :meth:`parse`."""
        check_loaded(self._segment, pages, self._arrow, starts)
        self._loaded, self._starts = pages, starts

    def parse(self) -> list[pa.RecordBatch]:
        """The pages of the last :meth:`load` as record batches."""
        return parse(self._segment, self._loaded, self._arrow, self._starts)

    def close(self) -> None:
        self._ahead.close()
        self._buffer = self._arrow = None

    def frames(self, count: int) -> Any:
        """A reader that keeps ``count`` pages, each in a frame of its own."""
        return FrameReader(self._segment, count, self._direct)

    def scattered_pages(self, most_mapped: int) -> Any:
        """The pages for compiled code that reads or maps them itself; never together with what this
        reader has loaded."""
        from semistream.master.scattered_pages import ScatteredPages

        assert self._buffer is not None
        return ScatteredPages(self._segment, self._buffer, most_mapped, self._forget)

    def _forget(self) -> None:
        self._arrow = None  # a map, perhaps


class FrameReader:
    """Reads single pages into the frames of one buffer."""

    def __init__(self, segment: OpenSegment, frames: int, direct: bool) -> None:
        self._segment = segment
        self._direct = direct
        self._ranges = DirectRanges() if direct else None
        self._frame = PlainReader.bytes_for(segment, 1, direct)
        self._buffer: PageBuffer | None = PageBuffer(self._frame * frames)
        self._address = self._buffer.arrow.address
        self.bytes_read = 0

    def load(self, frames: Any, pages: Any) -> Any:
        """Read pages into frames; returns the address and the bytes of each."""
        assert self._buffer is not None
        segment = self._segment
        offsets, sizes, nbytes = segment.located(pages)
        places = frames.astype(np.int64) * self._frame  # they may be beyond 32 bits
        extents = Extents.apart(offsets, sizes, nbytes, self._direct, places)
        read_extents(segment, pages, extents, self._buffer.view, self._ranges)
        check_loaded(segment, pages, self._buffer.arrow, extents.starts)
        self.bytes_read += extents.nbytes
        return extents.starts + self._address, sizes

    def close(self) -> None:
        if self._ranges is not None:
            self._ranges.close()
        self._buffer = None


def read_extents(
    segment: OpenSegment,
    pages: Any,
    extents: Extents,
    view: memoryview,
    direct: DirectRanges | None,
) -> None:
    """Read every range, all of them in one call or with direct reads in flight; where this fails,
    one by one, so that the error names the page."""
    file = segment.file
    if len(extents) > 1:
        done = direct.read(file, view, extents) if direct else file.read_ranges(view, extents)
        if done:
            return
    for i in range(len(extents)):
        place, size = int(extents.places[i]), int(extents.sizes[i])
        offset = int(extents.offsets[i])
        try:
            got = file.read_into(view[place : place + size], offset, direct is not None)
        except MasterTableError as error:
            inside = _pages_within(pages, extents, place, size)
            which = f"page {inside[0]}"
            if len(inside) > 1:
                which = f"pages {inside[0]} to {inside[-1]}"
            raise MasterTableError(f"{which}: {error}") from error
        if got < size:
            inside = _pages_within(pages, extents, place, size)
            if (segment.ends(inside) > offset + got).any():
                raise_truncated(segment, int(inside[0]), offset + got)


def _pages_within(pages: Any, extents: Extents, place: int, size: int) -> Any:
    """The pages of the range that is at this place of the buffer."""
    return pages[(extents.starts >= place) & (extents.starts < place + size)]


def check_loaded(segment: OpenSegment, pages: Any, memory: Any, starts: Any) -> None:
    """Check those of the loaded pages that have not been read before."""
    if kernels.page_places.unchecked(pages, segment.checked):
        new = np.flatnonzero(~segment.checked[pages])
        check(segment, pages[new], memory, starts[new])


def raise_read_error(first: int, count: int, pages: int, at_once: int, closed: bool) -> None:
    if closed:
        raise ConfigError("this reader is closed; create a new one with table.reader()")
    raise ConfigError(
        f"pages {first} .. {first + count - 1} were requested of a table of {pages} pages with a "
        f"reader for {at_once} at once; create the reader with a larger pages_at_once"
    )
