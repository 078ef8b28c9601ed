"""What the page index says of a page's content: its rows, its checksum and its last code.

Only the first read of a page needs this, to check it. So it stays on disk: 20 bytes a page that a
join can use for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from semistream.errors import MasterTableError
from semistream.master.extents import Extents
from semistream.master.local_file import RangeFile

if TYPE_CHECKING:
    from semistream.keys import Codes

_WIDTH = 8  # bytes of a number in the page index


class Claims(NamedTuple):
    """Of some pages, in their order."""

    rows: Any
    checksums: Any
    last_codes: Codes


class PageClaims(Protocol):
    def of(self, pages: Any) -> Claims:
        """The claims of these pages. Raises if they cannot be read."""

    def close(self) -> None: ...


class StoredClaims:
    """The claims of a segment, in the file of its page index.

    ``places`` are the positions of the columns of rows, checksums and last codes, ascending. The
    file was checked as a whole when the table was opened; it stays open, as a vacuum may unlink it.
    """

    def __init__(self, file: RangeFile, places: Sequence[int]) -> None:
        self._file = file
        self._places = places

    def of(self, pages: Any) -> Claims:
        order = np.argsort(pages)
        # Page numbers may be 32 bits wide, positions are not.
        offsets = _WIDTH * np.asarray(pages, np.int64)[order]
        begins = np.concatenate([place + offsets for place in self._places])
        found = self._read(Extents(begins, begins + _WIDTH, direct=False))
        columns = np.empty((len(self._places), len(pages)), np.int64)
        columns[:, order] = found.reshape(columns.shape)
        rows, checksums, last_codes = columns
        return Claims(rows, checksums.view(np.uint64), last_codes)

    def _read(self, extents: Extents) -> Any:
        """All ranges with one call, repeated once: a fault may be transient, and the page that is
        to be checked has been read already."""
        content = bytearray(extents.nbytes)
        view, file = memoryview(content), self._file
        if not (file.read_ranges(view, extents) or file.read_ranges(view, extents)):
            for place, offset, size in zip(
                extents.places.tolist(),
                extents.offsets.tolist(),
                extents.sizes.tolist(),
                strict=True,
            ):
                if file.read_into(view[place : place + size], offset) < size:
                    file.reopen()
                    raise MasterTableError(
                        f"the page index {file.name} is truncated; "
                        "restore the file from a copy or build the table again"
                    )
        return np.frombuffer(content, np.int64)

    def close(self) -> None:
        self._file.close()


class StitchedClaims:
    """The claims of several segments, whose first pages are ``firsts``."""

    def __init__(self, parts: Sequence[PageClaims], firsts: Sequence[int]) -> None:
        self._parts = parts
        self._firsts = np.asarray(firsts, np.int64)

    def of(self, pages: Any) -> Claims:
        found = Claims(
            np.empty(len(pages), np.int64),
            np.empty(len(pages), np.uint64),
            np.empty(len(pages), np.int64),
        )
        part_of = np.searchsorted(self._firsts, pages, side="right") - 1
        for part in np.unique(part_of).tolist():
            inside = part_of == part
            claims = self._parts[part].of(pages[inside] - self._firsts[part])
            for column, values in zip(found, claims, strict=True):
                column[inside] = values
        return found

    def close(self) -> None:
        for part in self._parts:
            part.close()
