"""The nodes and IPC buffers of a schema's pages, as small arrays for the kernels.

An IPC record batch lists the nodes (columns and their children) depth first, and the buffers of
each in a fixed order, so their numbers follow from the schema alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from semistream.kernels.page_nodes import (
    ANY_NULLS,
    BOOLEAN,
    CONTENT,
    FIXED,
    FIXED_LIST,
    KIND,
    LIST,
    NO_KEY_NULLS,
    NO_MAP_NULLS,
    NULL,
    NULLS,
    STRUCT,
    TEXT,
    UNION,
    UNKNOWN,
    VALIDITY,
    VALUES,
)

Nodes: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

NODE_PARTS = 8  # numbers that describe a wanted column's node to kernels/page_columns.py


class PageSpec:
    """The nodes of one schema.

    ``nodes`` has one row per node (see kernels/page_nodes.py), ``ranges[c]`` are the first node of
    column ``c`` and the one after its last, ``buffers`` counts the IPC buffers. ``key`` names
    columns that must not have nulls.
    """

    def __init__(self, schema: pa.Schema, key: Collection[str] = ()) -> None:
        self.names: list[str] = schema.names
        self.buffers = 0
        self.ranges: list[tuple[int, int]] = []
        self._rows: list[list[int]] = []
        for column, field in enumerate(schema):
            first = len(self._rows)
            nulls = NO_KEY_NULLS if field.name in key else ANY_NULLS
            self._add(field.type, -1, column, nulls)
            self.ranges.append((first, len(self._rows)))
        self.nodes: Nodes = np.array(self._rows, np.int64).reshape(-1, NULLS + 1)

    @property
    def addressable(self) -> bool:
        """Whether the numbers of all buffers are known."""
        return not bool((self.nodes[:, KIND] == UNKNOWN).any())

    @property
    def checkable(self) -> bool:
        """Whether compiled code can check such pages."""
        return self.addressable and not bool((self.nodes[:, KIND] == UNION).any())

    def buffers_of(self, column: int) -> tuple[int, int, int]:
        """The numbers of a top-level column's buffers (validity, values, content), or -1."""
        node = self.nodes[self.ranges[column][0]]
        return int(node[VALIDITY]), int(node[VALUES]), int(node[CONTENT])

    def _buffer(self) -> int:
        self.buffers += 1
        return self.buffers - 1

    def _add(self, kind: pa.DataType, parent: int, column: int, nulls: int = ANY_NULLS) -> None:
        """Append the node of this type and those of its children."""
        types = pa.types
        if isinstance(kind, pa.BaseExtensionType):
            return self._add(kind.storage_type, parent, column, nulls)
        shape, size = _shape(kind)
        here = len(self._rows)
        validity = values = content = -1
        if shape not in (NULL, UNION, UNKNOWN):
            validity = self._buffer()
        if shape in (FIXED, BOOLEAN, TEXT, LIST, UNION):
            values = self._buffer()
        if shape == TEXT or (shape == UNION and kind.mode == "dense"):
            content = self._buffer()
        self._rows.append([shape, size, parent, validity, values, content, column, nulls])
        if types.is_map(kind):
            entries = len(self._rows)
            struct = [STRUCT, 0, here, self._buffer(), -1, -1, column, NO_MAP_NULLS]
            self._rows.append(struct)
            self._add(kind.key_type, entries, column, NO_MAP_NULLS)
            self._add(kind.item_type, entries, column)
        elif shape in (LIST, FIXED_LIST):
            self._add(kind.value_type, here, column)
        elif shape in (STRUCT, UNION):
            for i in range(kind.num_fields):
                self._add(kind.field(i).type, here, column)
        return None


def _shape(kind: pa.DataType) -> tuple[int, int]:
    """The kind of node, and its size as in kernels/page_nodes.py."""
    types = pa.types
    if types.is_null(kind):
        return NULL, 0
    if types.is_boolean(kind):
        return BOOLEAN, 0
    if types.is_string(kind) or types.is_binary(kind):
        return TEXT, 4
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return TEXT, 8
    if types.is_struct(kind):
        return STRUCT, 0
    if types.is_fixed_size_list(kind):
        return FIXED_LIST, int(kind.list_size)
    if types.is_list(kind) or types.is_map(kind):
        return LIST, 4
    if types.is_large_list(kind):
        return LIST, 8
    if types.is_union(kind):
        return UNION, 1
    fixed = types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind)
    if fixed or types.is_interval(kind):
        return FIXED, int(kind.bit_width) // 8
    return UNKNOWN, 0
