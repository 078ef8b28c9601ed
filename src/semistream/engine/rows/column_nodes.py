"""Flattens the types of columns into nodes: one for each array that has buffers of its own.

A struct has a node per field, a list one for its items. Nodes that have a value for each item of
one sequence are a *group*: the columns and the fields of their structs are the first group, the
items of each list are another. A group's nodes have consecutive numbers, so that one compiled
call appends to all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from semistream.engine.rows.layout import form_of, is_large, is_text, width_of
from semistream.errors import SchemaError
from semistream.kernels import column_forms as forms


@dataclass(frozen=True)
class Group:
    """Nodes ``first`` to ``stop - 1``."""

    first: int
    stop: int
    lists: Sequence[int]  # those with items


@dataclass
class Node:
    """One array of a column, without the arrays in it."""

    kind: pa.DataType
    form: int  # bytes of a value, or one of kernels.column_forms
    group: int
    fields: Sequence[int] = ()  # nodes of a struct's fields
    items: int = -1  # group of a list's items
    item: int = -1  # node of a list's items
    size: int = -1  # of a list of fixed size

    @cached_property
    def storage(self) -> pa.DataType:
        return storage_of(self.kind)

    @cached_property
    def is_extension(self) -> bool:
        return isinstance(self.kind, pa.BaseExtensionType)

    @cached_property
    def has_offsets(self) -> bool:
        return self.form <= forms.TEXT

    @cached_property
    def is_text(self) -> bool:
        return self.form in (forms.TEXT, forms.LARGE_TEXT)

    @cached_property
    def is_list(self) -> bool:
        return self.form in (forms.LIST, forms.LARGE_LIST)

    @property
    def is_fixed_list(self) -> bool:
        return self.size >= 0

    @cached_property
    def offset_bytes(self) -> int:
        return 8 if self.form in (forms.LARGE_TEXT, forms.LARGE_LIST) else 4

    @cached_property
    def is_null(self) -> bool:
        """Whether all values are null by their type."""
        return bool(pa.types.is_null(self.storage))

    @cached_property
    def has_bitmap(self) -> bool:
        """Whether its type allows a bitmap."""
        return not self.is_null

    def value_bytes(self, count: int) -> int:
        """Bytes of ``count`` values, or of their offsets."""
        if self.form == forms.BITS:
            return (count + 7) // 8
        return (count + 1) * self.offset_bytes if self.has_offsets else count * self.form


class ColumnNodes:
    """The nodes of some columns."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self.nodes: list[Node] = []
        self.groups: list[Group] = []
        self.columns = self._add_group(list(types))
        for group in self.groups:  # it grows
            for n in group.lists:
                node = self.nodes[n]
                node.items = len(self.groups)
                (node.item,) = self._add_group([_item_type(node.storage)])
        self.forms = np.array([node.form for node in self.nodes], np.int64)
        self.is_flat = not any(group.lists for group in self.groups)
        self.bits = [n for n, node in enumerate(self.nodes) if node.form == forms.BITS]

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, n: int) -> Node:
        return self.nodes[n]

    def _add_group(self, types: list[pa.DataType]) -> list[int]:
        """Add the nodes of these types as a group; returns the node of each type."""
        first = len(self.nodes)
        tops = [self._add(kind) for kind in types]
        stop = len(self.nodes)
        lists = [n for n in range(first, stop) if self[n].is_list or self[n].is_fixed_list]
        self.groups.append(Group(first, stop, lists))
        return tops

    def _add(self, kind: pa.DataType) -> int:
        n, storage = len(self.nodes), storage_of(kind)
        node = Node(kind, _form_of(storage), len(self.groups))
        self.nodes.append(node)
        if pa.types.is_struct(storage):
            node.fields = [self._add(field.type) for field in storage]
        elif pa.types.is_fixed_size_list(storage):
            node.size = storage.list_size
        return n


def storage_of(kind: pa.DataType) -> pa.DataType:
    """The type of the buffers: an extension type has those of its storage."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def _form_of(kind: pa.DataType) -> int:
    types = pa.types
    if width_of(kind) is not None:
        return form_of(kind)
    if is_text(kind):
        return forms.LARGE_TEXT if is_large(kind) else forms.TEXT
    if types.is_list(kind) or types.is_map(kind):
        return forms.LIST
    if types.is_large_list(kind):
        return forms.LARGE_LIST
    if types.is_struct(kind) or types.is_fixed_size_list(kind) or types.is_null(kind):
        return forms.EMPTY
    raise SchemaError(f"columns of type {kind} cannot be joined; cast them to another type")


def _item_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.struct([kind.key_field, kind.item_field])
    return kind.value_type
