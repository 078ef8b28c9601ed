"""Reads pages of one segment into a reused buffer and returns them as record batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import ConfigError, MasterTableError
from semistream.master.disk_read import DiskRead
from semistream.master.index import SegmentPages
from semistream.master.manifest import Manifest, SegmentInfo
from semistream.master.page_buffer import PageBuffer, aligned
from semistream.master.page_check import UNREADABLE, PageCheck, index_problem
from semistream.master.store import ALIGNMENT, LocalStore, RangeFile


class OpenSegment:
    """State shared by all readers of a segment: the file, the page index, the checked pages.

    A page's checksum and structure are checked on its first read; later reads skip the check. A
    segment in several files has ``gaps`` between pages, of at most ``gap`` bytes.
    """

    gap = 0
    gaps = 0

    def __init__(self, file: RangeFile, path: str, schema: pa.Schema, pages: SegmentPages) -> None:
        self.file = file
        self.path = path
        self.schema = schema
        self.pages = pages
        self.offsets = pages.offsets
        self.ends = pages.offsets + pages.lengths
        self.checked = np.zeros(len(pages), dtype=np.bool_)
        self.page_check = PageCheck(schema, pages.firsts.schema)

    @property
    def nbytes(self) -> int:
        return self.pages.nbytes + self.ends.nbytes + self.checked.nbytes

    def window_bytes(self, count: int) -> int:
        """The size of the largest ``count`` adjacent pages."""
        count = min(count, len(self.offsets))
        if count == 0:
            return 0
        return int((self.ends[count - 1 :] - self.offsets[: len(self.offsets) - count + 1]).max())


def open_segment(store: LocalStore, manifest: Manifest, info: SegmentInfo) -> OpenSegment:
    """Load and check the page index, and open the file of pages."""
    name, data = str(store.path(info.index_file)), store.read(info.index_file)
    try:
        pages = SegmentPages.from_bytes(data, info.index_checksum, manifest.key_schema, name)
        problem = index_problem(pages, info.bytes)
    except UNREADABLE as error:
        problem = f"it cannot be read ({error})"
    if problem is not None:
        raise MasterTableError(
            f"the page index {name} does not belong to this table: {problem}; "
            "restore the file from a copy or build the table again"
        )
    path = str(store.path(info.file))
    return OpenSegment(store.open(info.file), path, manifest.segment_schema(info), pages)


def fetch(
    segment: OpenSegment, first: int, count: int, buffer: PageBuffer, at: int, direct: bool
) -> tuple[list[pa.RecordBatch], int]:
    """Read adjacent pages with one request into ``buffer[at:]``. Also returns the byte count."""
    starts, nbytes = load(segment, first, count, buffer, at, direct)
    return parse(segment, first, buffer.arrow, starts), nbytes


def load(
    segment: OpenSegment,
    first: int,
    count: int,
    buffer: PageBuffer,
    at: int,
    direct: bool,
    ahead: int = 0,
) -> tuple[Any, int]:
    """Read without parsing. Returns the offset of each page in the buffer, and the bytes read.

    With ``direct`` the range is rounded out to whole blocks, and ``at`` is a multiple of a block.
    Bytes that were read ``ahead`` are not read again; an incomplete read-ahead is ignored.
    """
    begin, end, want = extent(segment, first, count, direct)
    got = ahead
    if got < end - begin:
        try:
            got = segment.file.read_into(buffer.view[at : at + want], begin, direct)
        except MasterTableError as error:
            which = f"page {first}" if count == 1 else f"pages {first} to {first + count - 1}"
            raise MasterTableError(f"{which}: {error}") from error
    if got < end - begin:
        raise_truncated(segment, first, begin + got)
    starts = segment.offsets[first : first + count] + (at - begin)
    check_new(segment, first, count, buffer.arrow, starts)
    return starts, want


def extent(segment: OpenSegment, first: int, count: int, direct: bool) -> tuple[int, int, int]:
    """Begin and end of adjacent pages in the file, and the bytes to read for them."""
    begin, end = int(segment.offsets[first]), int(segment.ends[first + count - 1])
    if not direct:
        return begin, end, end - begin
    begin -= begin % ALIGNMENT
    return begin, end, -(-(end - begin) // ALIGNMENT) * ALIGNMENT


def check_new(segment: OpenSegment, first: int, count: int, memory: Any, starts: Any) -> None:
    """Check the pages that have not been read before."""
    if segment.checked[first : first + count].all():
        return
    for i in np.flatnonzero(~segment.checked[first : first + count]).tolist():
        check(segment, first + i, _page(segment, first + i, memory, starts[i]))


def parse(segment: OpenSegment, first: int, memory: Any, starts: Any) -> list[pa.RecordBatch]:
    """The loaded pages from ``first`` on as record batches."""
    batches = []
    for page, start in enumerate(starts.tolist(), first):
        data = _page(segment, page, memory, start)
        try:
            batches.append(pa.ipc.read_record_batch(data, segment.schema))
        except (pa.ArrowException, OSError):
            check(segment, page, data)  # it was valid before: raise an error that names the page
            raise
    return batches


def _page(segment: OpenSegment, page: int, memory: Any, start: int) -> Any:
    return memory.slice(int(start), int(segment.pages.lengths[page]))


def raise_truncated(segment: OpenSegment, first: int, end: int) -> None:
    """Raise for the first page that is truncated."""
    page = first + int(np.searchsorted(segment.ends[first:], end, side="right"))
    segment.checked[first:] = False
    segment.file.reopen()
    raise MasterTableError(
        f"page {page} of {segment.path} is truncated: the file ends at byte {end}, the page at "
        f"{int(segment.ends[page])}; restore the file from a copy or build the table again"
    )


def check(segment: OpenSegment, page: int, data: Any) -> None:
    """Check a page against its checksum and its index, and mark it as checked."""
    pages = segment.pages
    if xxhash.xxh3_64_intdigest(data) != int(pages.checksums[page]):
        problem = "is damaged: its checksum does not match"
    else:
        ends = pages.firsts.slice(page, 1), pages.lasts.slice(page, 1)
        found = segment.page_check.problem(data, int(pages.rows[page]), *ends)
        if found is None:
            segment.checked[page] = True
            return
        problem = f"is not a page of this table: {found}"
    segment.file.reopen()
    raise MasterTableError(
        f"page {page} of {segment.path} {problem}; "
        "restore the file from a copy or build the table again"
    )


class PlainReader:
    """Pages of a table without deltas: one request, no copies, no merging."""

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
        self._ahead: DiskRead | None = None
        self._prefetched = (0, 0)
        self.bytes_read = 0

    @staticmethod
    def bytes_for(segment: OpenSegment, pages_at_once: int, direct: bool) -> int:
        """The bytes that a reader will hold."""
        slack = 2 * ALIGNMENT if direct else 0
        return aligned(segment.window_bytes(pages_at_once) + slack)

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
        self.load(first, count)
        return self.parse()

    def prefetch(self, first: int, count: int) -> None:
        """Start reading ahead the pages of the next :meth:`load` or :meth:`read`.

        With ``direct`` they are read into the buffer, whose present content is overwritten.
        """
        assert self._buffer is not None
        self._finish_prefetch()
        if self._direct:
            self._ahead = self._ahead or DiskRead.make()
            if self._ahead is None:  # no asynchronous reads: load reads it later
                return
        begin, _, want = extent(self._segment, first, count, self._direct)
        self._prefetched = (first, count)
        self._segment.file.prefetch(self._ahead, self._buffer.view[:want], begin)

    @property
    def in_flight(self) -> bool:
        """Whether a prefetch is in flight."""
        return self._ahead is not None and self._ahead.in_flight

    def _finish_prefetch(self) -> int:
        """Wait for the prefetch. Returns the bytes read; 0 if they cannot be used."""
        return self._ahead.finish() if self._ahead is not None and self._ahead.pending else 0

    def load(self, first: int, count: int) -> Any:
        """Read pages as :meth:`read` does, but return only the address of each."""
        assert self._buffer is not None
        self._arrow = self._buffer.arrow
        prefetched = self._finish_prefetch()
        self._starts, nbytes = load(
            self._segment,
            first,
            count,
            self._buffer,
            0,
            self._direct,
            ahead=prefetched if self._prefetched == (first, count) else 0,
        )
        self._first = first
        self.bytes_read += nbytes
        return self._starts + self._arrow.address

    def parse(self) -> list[pa.RecordBatch]:
        """The pages of the last :meth:`load` as record batches."""
        return parse(self._segment, self._first, self._arrow, self._starts)

    def close(self) -> None:
        self._finish_prefetch()
        self._buffer = self._arrow = self._ahead = None


class MappedReader(PlainReader):
    """Maps the part of the file that has the pages, instead of copying it.

    Copying is most of the cost of a page in the page cache when few of its rows are used. The
    resident memory is the same as with a copy. Mapping ahead in threads would not help: every
    munmap would then interrupt the other cores. The risk: if the file is truncated or the disk
    fails while its pages are in use, the process dies (SIGBUS), where a read would raise.
    """

    def prefetch(self, first: int, count: int) -> None:
        """A no-op: read-ahead would fill the page cache with small pages, which map slowly."""

    def load(self, first: int, count: int) -> Any:
        self._arrow = None  # unmap before mapping again
        segment = self._segment
        begin, end = int(segment.offsets[first]), int(segment.ends[first + count - 1])
        mapped = segment.file.map(begin, end - begin)
        if mapped is None:
            return super().load(first, count)
        memory, at = mapped
        self._arrow = pa.py_buffer(memory)
        self._starts = segment.offsets[first : first + count] + (at - begin)
        check_new(segment, first, count, self._arrow, self._starts)
        self._first = first
        self.bytes_read += end - begin
        return self._starts + self._arrow.address


def raise_read_error(first: int, count: int, pages: int, at_once: int, closed: bool) -> None:
    if closed:
        raise ConfigError("this reader is closed; create a new one with table.reader()")
    raise ConfigError(
        f"pages {first} .. {first + count - 1} were requested of a table of {pages} pages with a "
        f"reader for {at_once} at once; create the reader with a larger pages_at_once"
    )
