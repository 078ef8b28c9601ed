"""Validates pages before compiled code reads them.

Compiled code follows a page's offsets without bounds checks. A checksum proves that a page is
unchanged, not that it was written correctly. So every page is validated once, when a process first
reads it: its metadata, buffers, offsets, rows, and that its codes are those of its keys. This is
compiled, too: a few microseconds for a page of 16 KiB.

Only the structure is checked. Invalid UTF-8 or impossible dates are passed on unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.kernels import page_nodes as code
from semistream.master.arrow_page_check import ArrowPageCheck
from semistream.master.codes import KeyCodes
from semistream.master.index import SegmentPages
from semistream.master.page_keys import PageKeys
from semistream.master.page_spec import PageSpec

_SENTENCES = {
    code.UNREADABLE: "its content cannot be read (it is not a record batch)",
    code.WRONG_ROWS: "it has {number} rows instead of {rows} as in its index",
    code.COMPRESSED: "its values are compressed",
    code.WRONG_COLUMNS: "its content cannot be read (it does not have the table's columns)",
    code.OUTSIDE: "the values of {column!r} are outside the page",
    code.WRONG_LENGTH: "its content cannot be read (the length of {column!r} is wrong)",
    code.WRONG_NULLS: "its content cannot be read (the null count of {column!r} is wrong)",
    code.TOO_SHORT: "its content cannot be read (a buffer of {column!r} is too short)",
    code.WRONG_OFFSETS: "its content cannot be read (offsets of {column!r} descend or are outside)",
    code.NULL_KEY: "a key is null",
    code.NULL_IN_MAP: "its content cannot be read (a key of the map {column!r} is null)",
    code.OUT_OF_ORDER: "its keys are out of order",
    code.WRONG_ENDS: "its first or last key is not the one in the page index",
    code.WRONG_CODES: "its codes are not those of its keys",
}


class PageProblem(NamedTuple):
    """``readable`` if only the order, the codes or the ends are wrong, not the structure."""

    what: str
    readable: bool


class PageCheck:
    """The check for pages that store their codes like this."""

    def __init__(self, codes: KeyCodes) -> None:
        self._names = codes.schema.names
        self._spec = PageSpec(codes.schema, {*codes.key, codes.column})
        self._compiled = self._spec.checkable
        if self._compiled:
            self._keys = PageKeys(codes, self._spec)
        else:
            self._arrow = ArrowPageCheck(codes)

    @property
    def addressable(self) -> bool:
        """Whether compiled code can find the columns of such pages."""
        return self._spec.addressable

    def problem(self, data: pa.Buffer, rows: int, first: int, last: int) -> PageProblem | None:
        """The problem of these bytes as a page of ``rows`` rows; None if it is valid.

        ``first`` and ``last`` are the page's first and last code in the page index.
        """
        numbers = (data.address, data.size, rows, first, last)
        return self.problems(*(np.array([number], np.int64) for number in numbers)).get(0)

    def problems(
        self, pages: Any, sizes: Any, rows: Any, firsts: Any, lasts: Any
    ) -> dict[int, PageProblem]:
        """The same for pages at these addresses: the problem of page ``pages[i]`` by ``i``."""
        if not self._compiled:
            return self._problems_by_arrow(pages, sizes, rows, firsts, lasts)
        found = np.empty((len(pages), 2), np.int64)
        nodes, buffers = self._spec.nodes, self._spec.buffers
        kernels.page_format.check_pages(pages, sizes, rows, nodes, buffers, found)
        if not found[:, 0].any():
            self._keys.check(pages, firsts, lasts, found)
        else:
            fine = np.flatnonzero(found[:, 0] == code.FINE)  # only these can be opened
            order = np.zeros((len(fine), 2), np.int64)
            self._keys.check(pages[fine], firsts[fine], lasts[fine], order)
            found[fine] = order
        return {
            int(i): self._sentence(int(found[i, 0]), int(found[i, 1]), int(rows[i]))
            for i in np.flatnonzero(found[:, 0])
        }

    def _sentence(self, problem: int, number: int, rows: int) -> PageProblem:
        column = self._names[number] if number in range(len(self._names)) else ""
        what = _SENTENCES[problem].format(number=number, rows=rows, column=column)
        return PageProblem(what, readable=problem >= code.OUT_OF_ORDER)

    def _problems_by_arrow(
        self, pages: Any, sizes: Any, rows: Any, firsts: Any, lasts: Any
    ) -> dict[int, PageProblem]:
        found = {}
        for i in range(len(pages)):
            data = pa.foreign_buffer(int(pages[i]), int(sizes[i]))
            malformed = self._arrow.malformed(data, int(rows[i]))
            what = malformed or self._arrow.out_of_order(data, int(firsts[i]), int(lasts[i]))
            if what is not None:
                found[i] = PageProblem(what, readable=malformed is None)
        return found


def index_problem(pages: SegmentPages, file_bytes: int) -> str | None:
    """The problem of a page index; None if its pages are inside the file, in order."""
    codes = (pages.first_codes, pages.last_codes)
    numbers = (pages.offsets, pages.lengths, pages.rows, pages.max_row_bytes, *codes)
    if any(column.dtype != np.int64 for column in numbers):
        return "a number is missing"
    if not len(pages):
        return None
    begins, sizes = pages.offsets, pages.lengths
    if min(begins.min(), sizes.min() - 1, pages.rows.min() - 1, pages.max_row_bytes.min()) < 0:
        return "a page has no position, no bytes or no rows"
    if sizes.max() > file_bytes or (begins > file_bytes - sizes).any():
        return "a page is beyond the end of the file"
    if (begins[1:] < (begins + sizes)[:-1]).any():
        return "pages overlap"
    if (codes[0] > codes[1]).any() or (codes[1][:-1] > codes[0][1:]).any():
        return "its pages are out of order"
    return None
