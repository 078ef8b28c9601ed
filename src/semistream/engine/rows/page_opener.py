"""Finds columns in pages by the pages' addresses, in compiled code.

A page is an Arrow record batch in memory. Its metadata say where its buffers are; compiled code
reads them, so that a page costs some twenty nanoseconds and no Python object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.column_nodes import ColumnNodes
from semistream.engine.rows.page_columns import PageColumns
from semistream.errors import MasterTableError
from semistream.kernels import column_forms as forms
from semistream.kernels.page_nodes import CONTENT, PARENT, VALIDITY, VALUES
from semistream.master.page_spec import NODE_PARTS, PageSpec


@dataclass
class LoadedPages:
    """Pages in memory: their codes by address, their row counts, and some of their columns."""

    pages: Any  # numbers, ascending
    codes: Any
    sizes: Any
    columns: PageColumns
    keys: PageColumns | None = None  # the key columns, where codes are hashes
    conditions: PageColumns | None = None  # the columns that conditions read,
    further: PageColumns | None = None  # and those of them that nothing else reads
    owners: Any = field(default=None, repr=False)  # of the memory, if it is not a reader's buffer
    is_copied: bool = False  # one page, which has only the rows that tuples need,
    first_tuple: int = 0  # for tuples from this one on


class PageOpener:
    """Opens pages of one schema: the columns ``names``, and the codes in column ``code``."""

    def __init__(self, schema: pa.Schema, names: Sequence[str], code: str) -> None:
        self._spec = PageSpec(schema)
        self._columns = PageColumns([schema.field(name).type for name in names], 0)
        nodes = self._columns.nodes
        self._wanted = np.full((NODE_PARTS, len(nodes)), -1, np.int64)
        for n, name in zip(nodes.columns, names, strict=True):
            self._describe(nodes, n, self._spec.ranges[schema.get_field_index(name)][0], -1, 1)
        self._code = self._spec.buffers_of(schema.get_field_index(code))[1]

    def _describe(self, nodes: ColumnNodes, n: int, number: int, owner: int, times: int) -> None:
        """Node ``n`` of the columns is node ``number`` of the page, and part of node ``owner``: it
        has ``times`` as many values, or more."""
        node, spec = nodes[n], self._spec.nodes
        buffers = (spec[number, part] for part in (VALIDITY, VALUES, CONTENT))
        inside = np.flatnonzero(spec[:, PARENT] == number).tolist()
        items = inside[0] if node.is_list else -1
        self._wanted[:, n] = number, *buffers, items, node.form, owner, times
        if node.item >= 0:
            self._describe(nodes, node.item, inside[0], n, max(0, node.size))
        for part, child in zip(node.fields, inside, strict=False):
            self._describe(nodes, part, child, n, 1)

    @property
    def nodes(self) -> ColumnNodes:
        return self._columns.nodes

    @property
    def description(self) -> tuple[Any, int, Any, int]:
        """What kernels that open pages need to know: the nodes and buffers of a page, the wanted
        nodes, and the buffer of the codes."""
        return self._spec.nodes, self._spec.buffers, self._wanted, self._code

    def columns_at(self, addresses: Any) -> PageColumns:
        """The same columns of pages whose buffers have these addresses."""
        return self._columns.at_addresses(addresses)

    def columns_for(self, places: int) -> PageColumns:
        """The same columns of ``places`` pages, whose addresses are written later."""
        shape = forms.PAGE_ROWS, self._wanted.shape[1], places
        return self._columns.at_addresses(np.zeros(shape, np.int64))

    def open(self, numbers: Any, addresses: Any, sizes: Any) -> LoadedPages:
        """Pages ``numbers``, which were checked, at these addresses, with these bytes."""
        pages = len(addresses)
        columns = np.empty((forms.PAGE_ROWS, self._wanted.shape[1], pages), np.int64)
        codes, rows = np.empty(pages, np.int64), np.empty(pages, np.int64)
        bad = kernels.page_columns.open_columns(
            addresses, sizes, *self.description, columns, codes, rows
        )
        if bad >= 0:
            raise MasterTableError(
                f"page {numbers[bad]} is damaged, although it was valid when it was first read; "
                "files of a master table must not be modified: restore them from a backup or "
                "rebuild the table"
            )
        return LoadedPages(numbers, codes, rows, self._columns.at_addresses(columns))
