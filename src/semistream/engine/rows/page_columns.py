"""Gathers rows from several pages at once.

Arrow's ``take`` works on one page, and a call per page and column costs more than copying the
rows. Here compiled code reads the buffers of all pages, whatever the types of the columns are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.rows.column_nodes import ColumnNodes, Node
from semistream.engine.rows.layout import validity
from semistream.engine.rows.node_buffers import NodeBuffers
from semistream.kernels import column_forms as forms

_FEW = 16  # rows for which making buffers costs more than copying the rows out of them
_MOST_KEPT = 64 << 10  # bytes of such buffers


class PageColumns:
    """Buffer addresses of some columns, for a fixed number of pages."""

    def __init__(self, types: Sequence[pa.DataType], places: int) -> None:
        self.nodes = ColumnNodes(types)
        self._pages: list[Any] = [None] * places  # they own the buffers
        self.addresses = np.zeros((forms.PAGE_ROWS, len(self.nodes), places), np.int64)
        self._few: NodeBuffers | None = None  # for calls that take a few rows

    def at_addresses(self, addresses: Any) -> PageColumns:
        """The same columns of other pages, whose buffers have these addresses."""
        other = PageColumns.__new__(PageColumns)
        other.nodes = self.nodes
        other.addresses = addresses
        other._few = None
        return other

    @property
    def has_columns(self) -> bool:
        return len(self.nodes) > 0

    def put(self, place: int, columns: Sequence[pa.Array]) -> None:
        """Set the columns of the page at this place."""
        self._pages[place] = columns
        for n, column in zip(self.nodes.columns, columns, strict=True):
            self._put(n, place, column)

    def _put(self, n: int, place: int, array: pa.Array) -> None:
        node, at = self.nodes[n], self.addresses
        while isinstance(array, pa.ExtensionArray):
            array = array.storage
        at[forms.VALIDITY, n, place] = validity(array)
        buffers = array.buffers()
        if node.form != forms.EMPTY:
            at[forms.VALUES, n, place] = _address(node, buffers[1], array.offset)
        if node.is_text:
            at[forms.CONTENT, n, place] = buffers[2].address if buffers[2] else 0
            at[forms.SIZE, n, place] = buffers[2].size if buffers[2] else 0
        for i, field in enumerate(node.fields):
            self._put(field, place, array.field(i))
        if node.is_list:
            at[forms.SIZE, n, place] = len(array.values)
            self._put(node.item, place, array.values)
        elif node.is_fixed_list:
            items = array.values.slice(array.offset * node.size, len(array) * node.size)
            self._put(node.item, place, items)

    def drop(self, place: int) -> None:
        self._pages[place] = None

    def take(self, pages: Any, rows: Any) -> list[pa.Array]:
        """All columns of row ``rows[i]`` of the page at place ``pages[i]``, for every i."""
        if len(rows) <= _FEW:
            return self._take_few(pages, rows)
        buffers = NodeBuffers(self.nodes, len(rows))
        buffers.allocate()
        buffers.append(self.addresses, pages, rows, 0)
        return buffers.arrays(len(rows))

    @property
    def kept_bytes(self) -> int:
        """Bytes of buffers that are kept for the next call."""
        return 0 if self._few is None else self._few.nbytes

    def _take_few(self, pages: Any, rows: Any) -> list[pa.Array]:
        """The same, with buffers that are kept for the next call."""
        buffers = self._few
        if buffers is None:
            buffers = self._few = NodeBuffers(self.nodes, _FEW)
            buffers.allocate()
        buffers.reset()
        buffers.append(self.addresses, pages, rows, 0)
        arrays = buffers.arrays(len(rows), copy=True)
        if buffers.nbytes > _MOST_KEPT:
            self._few = None
        return arrays


def _address(node: Node, values: pa.Buffer | None, offset: int) -> int:
    if not values:  # no rows: Arrow may have no buffer, or an empty one outside the page
        return 0
    if node.form == forms.BITS:
        return int(values.address * 8 + offset)
    return int(values.address + offset * (node.offset_bytes if node.has_offsets else node.form))
