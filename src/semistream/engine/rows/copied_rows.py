"""Rows that waiting tuples need, copied out of scattered pages: to a join, one page of them.

A page that few tuples wait for is not worth a place in a disk buffer: compiled code looks the rows
up in it, copies them, and goes on to the next page (``kernels/row_copies.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.column_nodes import ColumnNodes
from semistream.engine.rows.node_buffers import NodeBuffers, corrupt_offsets
from semistream.engine.rows.page_opener import LoadedPages, PageOpener
from semistream.kernels import column_forms as forms
from semistream.master.scattered_pages import Places

GROUP = 16  # pages that are opened together: as many as the CPU cache has room for
MANY = 8  # tuples for a page: reading it costs little beside what they cost
_SCRATCH = 16  # bytes per row: its code, its page, its row


def bytes_of(types: Sequence[pa.DataType], most: int, max_row_bytes: int) -> int:
    """Memory for ``most`` rows of these columns."""
    nodes = ColumnNodes(types)
    addresses = 8 * forms.PAGE_ROWS * len(nodes) * GROUP
    return most * _SCRATCH + addresses + _most_bytes(nodes, most, max_row_bytes)


def _most_bytes(nodes: ColumnNodes, most: int, max_row_bytes: int) -> int:
    """Of the buffers. One text may need all that is there for texts, beside what others have; a
    column is there twice if it is returned and conditions read it."""
    rows, texts = most * max_row_bytes, sum(node.is_text for node in nodes.nodes)
    values = sum(node.value_bytes(most) + (most + 7) // 8 for node in nodes.nodes)
    return max(rows * (2 if texts > 1 else 1), values + (rows if texts else 0))


class CopiedRows:
    """Buffers for ``most`` rows of the columns of some openers, of ``max_row_bytes`` at most and
    usually of ``row_bytes``.

    ``parts`` open the columns that a :class:`LoadedPages` has, in its order; None: it has not.
    ``opener`` opens all of them, behind one another.
    """

    def __init__(
        self,
        opener: PageOpener,
        parts: Sequence[PageOpener | None],
        most: int,
        row_bytes: float,
        max_row_bytes: int,
    ) -> None:
        self._opener = opener
        self._nodes = opener.nodes
        self._buffers = NodeBuffers(self._nodes, most, most * min(row_bytes, max_row_bytes))
        self._buffers.allocate()
        self._limit = _most_bytes(self._nodes, most, max_row_bytes)
        self._codes = np.empty(most, np.int64)
        self._pairs = np.empty((2, most), np.int32)
        self._columns = np.zeros((forms.PAGE_ROWS, len(self._nodes), GROUP), np.int64)
        self.count = 0
        self.nbytes_read = 0
        self._address = np.array([self._codes.ctypes.data], np.int64)
        self._page = np.zeros((forms.PAGE_ROWS, len(self._nodes), 1), np.int64)
        self._parts: list[Any] = []  # with a part of the addresses each, in an array of their own
        at = 0
        for part in parts:
            end = at + (0 if part is None else len(part.nodes))
            self._parts.append(
                None if part is None else part.columns_at(self._page[:, at:end].copy())
            )
            at = end

    @property
    def nbytes(self) -> int:
        scratch = self._codes.nbytes + self._pairs.nbytes + self._columns.nbytes
        return self._buffers.nbytes + scratch

    def copy(self, codes: Any, places: Any, first: int, numbers: Any, file: Places) -> int:
        """Copy the rows of tuples ``first`` on, which have these codes and whose pages are
        ``numbers[places]``, as far as there is room; returns the next tuple.

        That is ``first`` if its rows do not fit, or if a page cannot be read.
        """
        self._buffers.reset()
        following, self.count, self.nbytes_read, is_new = first, 0, 0, False
        while True:
            status, following, self.count, nbytes = kernels.row_copies.copy(
                codes, places, following, numbers, *file, *self._opener.description, self._columns,
                self._nodes.forms, self.count, self._buffers.out, self._codes, *self._pairs,
            )  # fmt: skip
            self.nbytes_read += nbytes
            if status == forms.CORRUPT:
                raise corrupt_offsets()
            if status < 0:
                return int(following)
            if not self._buffers.extend(status, self.count, self._limit):
                if self.count or is_new:
                    return int(following)
                self._buffers.release()  # rows before have needed room for another text
                self._buffers.allocate()
                is_new = True

    def loaded(self, first: int) -> LoadedPages:
        """The copied rows as a page, for tuples from ``first`` on; valid until the next copy."""
        kernels.row_copies.as_page(self._buffers.out, self._nodes.forms, self._page)
        at = 0
        for part in self._parts:
            if part is not None:
                end = at + len(part.nodes)
                part.addresses[:] = self._page[:, at:end]
                at = end
        sizes = np.array([self.count], np.int64)
        loaded = LoadedPages(_ONE_PAGE, self._address, sizes, *self._parts)
        loaded.is_copied, loaded.first_tuple = True, first
        return loaded


_ONE_PAGE = np.zeros(1, np.int64)
