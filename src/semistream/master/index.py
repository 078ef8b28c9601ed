"""The page index: the position of every page, and the pages that can contain a key.

On disk each segment has an Arrow file with one row per page. In memory an open table keeps the
places of its pages, and one :class:`PageIndex` over them, which is all that a join uses: 22 bytes
a page. The rest is read again when a page is checked (``master/page_claims.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import InternalError, MasterTableError
from semistream.keys import Codes, KeyCodec, Mask
from semistream.master.changed import contains
from semistream.master.delta_codes import Delta, deleted_by, table_of
from semistream.master.format_version import check_format_version

Positions = np.ndarray[Any, np.dtype[np.int64]]
Keys = np.ndarray[Any, Any]

FORMAT_VERSION = 2
_FORMAT = b"semistream-page-index"  # metadata key of the format version


@dataclass(frozen=True)
class SegmentPages:
    """Every page of one segment: position, size, checksum, first and last code."""

    offsets: Positions
    lengths: Positions
    rows: Positions
    checksums: np.ndarray[Any, np.dtype[np.uint64]]
    max_row_bytes: Positions
    first_codes: Codes
    last_codes: Codes

    def __len__(self) -> int:
        return len(self.offsets)

    def places(self) -> PagePlaces:
        """What an open table keeps of it; there may be many pages."""
        fit = int(self.lengths.max(initial=0)) < 2**31
        continues = np.zeros(len(self), np.bool_)
        continues[:-1] = self.last_codes[:-1] == self.first_codes[1:]
        return PagePlaces(
            self.offsets.copy(),
            self.lengths.astype(np.int32) if fit else self.lengths.copy(),
            self.first_codes.copy(),
            continues,
            int(self.last_codes[-1]) if len(self) else 0,
            int(self.rows.sum()),
            int(self.max_row_bytes.max(initial=0)),
        )

    @staticmethod
    def claim_places(data: bytes) -> list[int]:
        """Where the columns of rows, checksums and last codes begin in the file."""
        whole = pa.py_buffer(data)
        batch = pa.ipc.open_file(whole).get_batch(0)
        if not len(batch):
            return [0, 0, 0]
        columns = (batch.column(name).buffers()[1] for name in ("rows", "checksum", "last_code"))
        places = [column.address - whole.address for column in columns]
        if not all(0 <= place <= len(data) - 8 * len(batch) for place in places):
            raise pa.ArrowInvalid("its columns are compressed")
        if places != sorted(places):
            raise pa.ArrowInvalid("its columns are in another order")
        return places

    def to_bytes(self) -> bytes:
        batch = pa.record_batch(
            {name: pa.array(getattr(self, field)) for name, field in _COLUMNS.items()}
        )
        batch = batch.replace_schema_metadata({_FORMAT: str(FORMAT_VERSION)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes, checksum: str, name: str) -> SegmentPages:
        if xxhash.xxh3_64_hexdigest(data) != checksum:
            raise MasterTableError(
                f"the page index {name} is damaged: its checksum does not match; "
                "restore the file from a copy or build the table again"
            )
        batch = pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)
        # Files without a version were written before the format had one.
        version = (batch.schema.metadata or {}).get(_FORMAT, b"1").decode(errors="replace")
        check_format_version(
            f"the page index {name}", int(version) if version.isdigit() else version, FORMAT_VERSION
        )
        batch.validate(full=True)
        return cls(**{field: _numbers(batch.column(name)) for name, field in _COLUMNS.items()})


def _numbers(array: pa.Array) -> Any:
    """Not ``to_numpy``, which imports pandas if that is installed: a quarter of a second."""
    return np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype(), len(array))


_COLUMNS = {
    "offset": "offsets",
    "length": "lengths",
    "rows": "rows",
    "checksum": "checksums",
    "max_row_bytes": "max_row_bytes",
    "first_code": "first_codes",
    "last_code": "last_codes",
}


@dataclass(frozen=True)
class PagePlaces:
    """The position, size and first code of every page: what finding and reading a page needs.

    ``continues[j]`` is true if the last code of page ``j`` is the first of page ``j + 1``.
    """

    offsets: Positions
    lengths: Positions
    first_codes: Codes
    continues: np.ndarray[Any, np.dtype[np.bool_]]
    last_code: int
    rows: int
    max_row_bytes: int

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        arrays = (self.offsets, self.lengths, self.first_codes, self.continues)
        return sum(array.nbytes for array in arrays)


class PageIndex:
    """The first key of every logical page, in memory.

    Pages are in key order. ``continues[j]`` is true if a key of page ``j`` may also be in
    page ``j + 1``. With ``by_code`` the order is that of the codes, and ``firsts`` has codes;
    otherwise ``firsts`` has keys as :meth:`KeyCodec.sortable` prepares them.

    A table with deltas has the pages of the base first, then those of each delta: only the pages
    between two ``boundaries`` are in order. All rows of a code are in the newest of ``deltas``
    that has changed it, or in the base if none has. Pages from ``own_pages`` on are those of older
    deltas that tuples still wait for: no code is located there.
    """

    def __init__(
        self,
        codec: KeyCodec,
        firsts: Keys,
        continues: np.ndarray[Any, np.dtype[np.bool_]],
        beside: int = 0,
        by_code: bool = True,
        boundaries: Sequence[int] = (),
        deltas: Sequence[Delta] = (),
        own_pages: int | None = None,
    ) -> None:
        self.codec = codec
        self.firsts = firsts
        self.continues = continues
        self.by_code = by_code
        self.has_spanning_keys = bool(continues.any())  # over several pages
        self.boundaries = list(boundaries)
        self.own_pages = len(firsts) if own_pages is None else own_pages
        self.base_pages = self.boundaries[0] if self.boundaries else len(firsts)
        self.deltas = [delta for delta in deltas if len(delta.codes)]  # oldest first
        self.deleted = deleted_by(delta.codes for delta in self.deltas)
        self._delta_bytes = sum(delta.codes.nbytes for delta in self.deltas)
        self._beside = beside + self.deleted.nbytes + self._delta_bytes

    @property
    def has_deleted(self) -> bool:
        """Whether codes are known that have no row any more."""
        return len(self.deleted) > 0

    @property
    def has_changes(self) -> bool:
        """Whether deltas hide rows of other pages."""
        return len(self.deltas) > 0

    def locate(self, columns: Sequence[pa.Array]) -> tuple[Positions, Positions]:
        """For each key the first and last page that can contain it, both inclusive.

        The columns must not have nulls and have the key's types. A key below the first page's
        belongs to page 0. A range with ``low > high`` is empty: there are no pages, or the key is
        deleted.
        """
        if self.by_code:
            return self.locate_codes(self.codec.codes(columns)[0])
        return page_ranges(self.firsts, self.continues, self.codec.sortable(columns))

    def locate_codes(self, codes: Codes) -> tuple[Positions, Positions]:
        """The same for codes; only where the index is ``by_code``."""
        if not self.by_code:
            raise InternalError("this page index is not in the order of codes")
        base = self.base_pages
        continues = self.continues[:base] if self.has_spanning_keys else None
        low, high = page_ranges(self.firsts[:base], continues, codes)
        if self.has_changes:
            low, high = np.array(low), np.array(high)
        for delta in self.deltas:
            changed = np.flatnonzero(delta.codes.contains(codes))
            own = slice(delta.first, delta.end)
            first, last = page_ranges(self.firsts[own], self.continues[own], codes[changed])
            low[changed], high[changed] = first + delta.first, last + delta.first
        if self.has_deleted:
            deleted = contains(self.deleted, codes)
            low[deleted], high[deleted] = 0, -1
        return low, high

    def is_deleted(self, codes: Codes) -> Mask | None:
        """Which codes have no row any more; None: none is known to."""
        return contains(self.deleted, codes) if self.has_deleted else None

    def deltas_of(self, codes: Codes) -> Positions:
        """The number in ``deltas`` of the newest one that has changed each code; -1: none has."""
        from semistream.kernels import changed_codes

        rows = [d.codes.rows(number, number + 1) for number, d in enumerate(self.deltas)]
        table = table_of(rows)
        found = np.empty(len(codes), np.int64)
        changed_codes.find_all(codes, table, found)
        return np.where(found >= 0, table[found, changed_codes.FIRST_PLACE], -1)

    def visible(self, first_page: int, codes: Codes, ends: Positions) -> Mask | None:
        """Which rows of adjacent pages are not replaced or deleted; None: all are.

        ``codes`` are those of all rows, ``ends`` where each page's rows end among them.
        """
        if not self.has_changes:
            return None
        from semistream.kernels import pages

        shown = np.ones(len(codes), np.bool_)
        for delta in self.deltas:
            older = ends[: max(0, delta.first - first_page)]
            for changed in delta.codes.lists:
                pages.hide(codes, older, changed.codes, shown)
        own = self.own_pages - first_page
        if own < len(ends):
            shown[ends[own - 1] if own > 0 else 0 :] = False
        return shown

    @property
    def nbytes(self) -> int:
        """Bytes of first keys, flags and changed codes, and of the open table's data on each
        physical page."""
        held = self.firsts.nbytes + self.continues.nbytes + self._beside
        if self.firsts.dtype == object:
            held += sum(key.__sizeof__() for key in self.firsts)
        return held

    @property
    def merging_bytes(self) -> int:
        """Bytes beyond :attr:`nbytes`, while lists of changed codes are merged."""
        return max(0, sum(delta.codes.nbytes for delta in self.deltas) - self._delta_bytes)

    @property
    def bytes_to_merge(self) -> int:
        """What merging all lists of a delta takes, for a while; 0: none is to be merged."""
        return max((delta.codes.bytes_to_merge_all for delta in self.deltas), default=0)

    def extend_filters(self) -> bool:
        """Make a part of a filter of changed codes, in about a millisecond; returns whether there
        was something to do."""
        codes = next((d.codes for d in self.deltas if not d.codes.is_filtered), None)
        if codes is not None:
            codes.extend_filter()
        return codes is not None

    def merge_lists(self, room: int) -> bool:
        """The same for lists of changed codes, which may take ``room`` bytes until all of two are
        merged."""
        several = (delta.codes for delta in self.deltas if len(delta.codes.lists) > 1)
        codes = next((codes for codes in several if codes.bytes_to_merge <= room), None)
        if codes is not None:
            codes.merge()
        return codes is not None


def page_ranges(firsts: Keys, continues: Any, keys: Keys) -> tuple[Positions, Positions]:
    """For each key the first and last page that can contain it, of pages in key order.

    Both are the same array if no key continues in another page (``continues`` may be None).
    """
    high = firsts.searchsorted(keys, side="right").astype(np.int64, copy=False) - 1
    if len(firsts) == 0:
        return np.zeros(len(keys), dtype=np.int64), high
    np.maximum(high, 0, out=high)
    if continues is None or not continues.any():
        return high, high
    low = np.searchsorted(firsts, keys, side="left").astype(np.int64)
    starts_page = low <= high
    before = np.maximum(low - 1, 0)
    low = np.where(starts_page, low - (continues[before] & (low > 0)), high)
    return low, high


def page_requests(low: Positions, high: Positions) -> tuple[Positions, Positions]:
    """Page ranges as single requests: the number of each range, and a page of it. A range with
    ``low > high`` has none."""
    counts = np.maximum(high - low + 1, 0)
    asking = np.repeat(np.arange(len(low)), counts)
    nth = np.arange(len(asking)) - np.repeat(np.cumsum(counts) - counts, counts)
    return asking, low[asking] + nth
