"""Output buffers of columns, one set per node, to which compiled code appends rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.rows.column_nodes import ColumnNodes, Node
from semistream.errors import MasterTableError, SchemaError
from semistream.kernels import column_forms as forms

if TYPE_CHECKING:
    from semistream.engine.rows.message import Message

_LEAST_GROWTH = 64
_ITEM_BYTES = 8  # assumed average of a text or list within a list
_MOST = 2**31 - 1  # of offsets with 4 bytes


class NodeBuffers:
    """Buffers for ``most`` rows with ``nbytes`` bytes in all, as long as this is enough.

    Texts and lists share what values, offsets and bitmaps of all rows leave.
    """

    def __init__(self, nodes: ColumnNodes, most: int, nbytes: float = 0.0) -> None:
        self._nodes = nodes
        self._most = most
        self._rows = 0  # with those that are being appended
        self._planned_values = [0] * len(nodes.groups)  # capacity of each group
        self._planned_content = [0] * len(nodes)
        if nodes.is_flat and not nbytes:
            self._planned_values[0] = most
        else:
            self._divide(0, most, max(0.0, nbytes - self._bytes_of_values(0, most)))
        self._capacity = self._planned_values.copy()
        self._content_bytes = self._planned_content.copy()
        self._nullable = [False] * len(nodes)  # a null was seen, now or in a batch before
        self._out = np.zeros((forms.OUT_ROWS, len(nodes)), np.int64)
        self._bitmaps: list[Any] = [None] * len(nodes)
        self._values: list[Any] = [None] * len(nodes)
        self._contents: list[Any] = [None] * len(nodes)

    def _bytes_of_values(self, number: int, count: int) -> int:
        """Bytes of ``count`` values of a group, without the content of texts and lists."""
        group = self._nodes.groups[number]
        total = 0
        for node in self._nodes.nodes[group.first : group.stop]:
            total += node.value_bytes(count) + node.has_bitmap * ((count + 7) // 8)
            if node.is_fixed_list:
                total += self._bytes_of_values(node.items, count * node.size)
        return total

    def _divide(self, number: int, capacity: int, variable: float) -> None:
        """Plan the buffers of a group for ``capacity`` values."""
        self._planned_values[number] = capacity
        group = self._nodes.groups[number]
        nodes = self._nodes.nodes[group.first : group.stop]
        share = variable / max(1, sum(node.has_offsets for node in nodes))
        for n, node in enumerate(nodes, group.first):
            if node.is_text:
                self._planned_content[n] = int(share)
            elif node.is_list:
                items = self._nodes.groups[node.items]
                inner = self._nodes.nodes[items.first : items.stop]
                texts = _ITEM_BYTES * sum(node.has_offsets for node in inner)
                item = self._bytes_of_values(node.items, 64) / 64 + texts
                count = int(share / max(1.0, item))
                self._divide(node.items, count, count * texts)
            elif node.is_fixed_list:
                self._divide(node.items, capacity * node.size, 0)

    @property
    def nbytes(self) -> int:
        total = sum(self._content_bytes)
        for n, node in enumerate(self._nodes.nodes):
            count = self._capacity[node.group]
            total += node.value_bytes(count) + self._nullable[n] * ((count + 7) // 8)
        return total

    def allocate(self) -> None:
        """Start with new, empty buffers of the planned sizes."""
        self._capacity[:] = self._planned_values
        self._content_bytes[:] = self._planned_content
        self._out[:] = 0
        self._resize(0, self._most)
        for n, node in enumerate(self._nodes.nodes):
            if node.is_text:
                self._resize_content(n, self._content_bytes[n])
            elif node.is_list:
                self._resize(node.items, self._capacity[node.items])

    def release(self) -> None:
        """Drop the buffers, or leave them to the arrays that use them."""
        for held in (self._bitmaps, self._values, self._contents):
            held[:] = [None] * len(held)
        self._capacity[:] = self._planned_values
        self._content_bytes[:] = self._planned_content

    def reset(self) -> None:
        """Start again with no rows in the same buffers."""
        if any(self._nullable):
            nulls = self._out[forms.OUT_NULLS]
            for n in np.flatnonzero(nulls):
                self._bitmaps[n][:] = 255
            nulls[:] = 0

    @property
    def out(self) -> Any:
        """The addresses of the buffers, for kernels that append rows themselves."""
        return self._out

    def extend(self, n: int, rows: int, limit: int) -> bool:
        """Give a node what it lacks after so many rows; False if that exceeds ``limit`` bytes."""
        bitmaps = sum(not is_nullable for is_nullable in self._nullable)  # that may be added
        spare = limit - self.nbytes - bitmaps * ((self._most + 7) // 8)
        needed = int(self._out[forms.OUT_END, n])
        if needed != forms.NO_BITMAP and needed - int(self._out[forms.OUT_ROOM, n]) > spare:
            return False
        self._rows = max(1, rows)
        self._extend(n, spare)
        return True

    def append(self, pages: Any, places: Any, rows: Any, at: int) -> None:
        """Append row ``rows[i]`` of the page at ``places[i]``, for every i, from row ``at`` on."""
        self._rows = at + len(rows)
        try:
            self._append_group(0, pages, places, rows, None, at)
            lists = self._nodes.groups[0].lists
            if lists:
                places, rows = places.astype(np.int64), rows.astype(np.int64)
                ones = np.ones(len(rows), np.int64)
            for n in lists:
                self._append_items(n, pages, places, rows, ones, at, self._rows)
        except BaseException:
            self._forget_nulls(at)
            raise

    def _append_items(
        self, n: int, pages: Any, places: Any, starts: Any, lengths: Any, at: int, end: int
    ) -> None:
        """Append the items of lists ``at`` to ``end - 1`` of a node, which came from ranges."""
        node = self._nodes[n]
        if node.is_fixed_list:
            starts, lengths = starts * node.size, lengths * node.size
            first, last = at * node.size, end * node.size
        else:
            first, last = int(self._values[n][at]), int(self._values[n][end])
            begins, counts = np.empty_like(starts), np.empty_like(lengths)
            done = kernels.page_ranges.items(
                pages, self._nodes.forms, n, places, starts, lengths, at, self._out, begins, counts
            )
            if done == forms.CORRUPT:
                raise corrupt_offsets()
            starts, lengths = begins, counts
        self._append_group(node.items, pages, places, starts, lengths, first)
        for inner in self._nodes.groups[node.items].lists:
            self._append_items(inner, pages, places, starts, lengths, first, last)

    def _append_group(
        self, number: int, pages: Any, places: Any, starts: Any, lengths: Any, at: int
    ) -> None:
        """Append to all nodes of a group, with more than one call if a buffer must grow."""
        group = self._nodes.groups[number]
        n, node_forms = group.first, self._nodes.forms
        while True:
            if lengths is None:
                lacking = kernels.pages.append(
                    pages, node_forms, n, group.stop, places, starts, at, self._out
                )
            else:
                lacking = kernels.page_ranges.append(
                    pages, node_forms, n, group.stop, places, starts, lengths, at, self._out
                )
            if lacking == forms.DONE:
                return
            if lacking == forms.CORRUPT:
                raise corrupt_offsets()
            n = lacking
            self._extend(n)

    def _extend(self, n: int, spare: int = _MOST) -> None:
        """Give a node what it lacks: a bitmap, or room for its content, of ``spare`` bytes if that
        is enough."""
        node, needed = self._nodes[n], int(self._out[forms.OUT_END, n])
        if needed == forms.NO_BITMAP:
            self._nullable[n] = True
            self._add_bitmap(n)
            return
        if node.offset_bytes == 4 and needed > _MOST:
            raise SchemaError(
                f"an output batch has more than {_MOST} bytes or items in a {node.kind} column; "
                "use a large type for it, or less memory for smaller batches"
            )
        # Extrapolated from the rows so far, but at most doubled.
        expected = needed * self._most // self._rows
        before = int(self._out[forms.OUT_ROOM, n])
        room = max(needed, min(expected, 2 * before + _LEAST_GROWTH, before + spare))
        if node.offset_bytes == 4:
            room = min(room, _MOST)
        if node.is_text:
            self._resize_content(n, room)
        else:
            self._resize(node.items, room)
            self._out[forms.OUT_ROOM, n] = room

    def _add_bitmap(self, n: int) -> None:
        count = self._capacity[self._nodes[n].group]
        self._bitmaps[n] = np.full((count + 7) // 8, 255, np.uint8)
        self._out[forms.OUT_BITMAP, n] = _address(self._bitmaps[n])

    def _resize(self, number: int, count: int) -> None:
        """Make the buffers of a group as large as ``count`` values need."""
        self._capacity[number] = count
        group = self._nodes.groups[number]
        for n in range(group.first, group.stop):
            node, before = self._nodes[n], self._values[n]
            self._values[n] = values = _new_values(node, count)
            if before is not None:
                values[: len(before)] = before
            self._out[forms.OUT_VALUES, n] = _address(values)
            if self._nullable[n]:
                before = self._bitmaps[n]
                self._add_bitmap(n)
                if before is not None:
                    self._bitmaps[n][: len(before)] = before
            if node.is_list:
                self._out[forms.OUT_ROOM, n] = self._capacity[node.items]
            elif node.is_fixed_list:
                self._resize(node.items, count * node.size)

    def _resize_content(self, n: int, nbytes: int) -> None:
        before, content = self._contents[n], np.empty(nbytes, np.uint8)
        if before is not None:
            content[: len(before)] = before
        self._contents[n] = content
        self._content_bytes[n] = nbytes
        self._out[forms.OUT_CONTENT, n] = _address(content)
        self._out[forms.OUT_ROOM, n] = nbytes

    def _forget_nulls(self, at: int) -> None:
        """Undo the validity bits of rows from ``at`` on, which were not appended after all."""
        ends = {0: at}
        for n, node in enumerate(self._nodes.nodes):
            end = ends[node.group]
            if self._bitmaps[n] is not None:
                bits = np.unpackbits(self._bitmaps[n], bitorder="little")
                bits[end:] = 1
                self._bitmaps[n][:] = np.packbits(bits, bitorder="little")
            if node.is_fixed_list:
                ends[node.items] = end * node.size
            elif node.is_list:
                ends[node.items] = int(self._values[n][end])

    def write(self, message: Message) -> None:
        """Write the first rows; the buffers stay."""
        message.add_buffers(self._out)

    def arrays(self, count: int, copy: bool = False) -> list[pa.Array]:
        """The first ``count`` rows of all columns; ``copy`` if the buffers are used again."""
        return [self._array(n, count, copy) for n in self._nodes.columns]

    def _array(self, n: int, count: int, copy: bool) -> pa.Array:
        node = self._nodes[n]
        kind, bitmap = node.storage, None
        if node.is_null:
            return _typed(node, pa.nulls(count))
        if self._out[forms.OUT_NULLS, n]:
            bitmap = _buffer(self._bitmaps[n][: (count + 7) // 8], copy)
        if node.form > 0:
            values = _buffer(self._values[n][: count * node.form], copy)
            return _typed(node, pa.Array.from_buffers(kind, count, [bitmap, values]))
        buffers: list[Any] = [bitmap]
        children: list[pa.Array] = []
        if node.form != forms.EMPTY:
            used = self._values[n][: count + 1 if node.has_offsets else node.value_bytes(count)]
            buffers.append(_buffer(used, copy))
        elif kind.num_buffers > 1:  # binary values of no bytes
            buffers.append(pa.py_buffer(b""))
        if node.has_offsets:
            end = int(self._values[n][count])
            if node.is_text:
                buffers.append(_buffer(self._contents[n][:end], copy))
            else:
                children = [self._array(node.item, end, copy)]
        elif node.is_fixed_list:
            children = [self._array(node.item, count * node.size, copy)]
        children += [self._array(field, count, copy) for field in node.fields]
        return _typed(node, pa.Array.from_buffers(kind, count, buffers, children=children or None))


def _typed(node: Node, array: pa.Array) -> pa.Array:
    if node.is_extension:
        return pa.ExtensionArray.from_storage(node.kind, array)
    return array


def _address(array: Any) -> int:
    """By Arrow, which is three times as fast as ``array.ctypes``."""
    return int(pa.py_buffer(array).address)


def _buffer(array: Any, copy: bool) -> pa.Buffer:
    return pa.py_buffer(array.copy() if copy else array)


def _new_values(node: Node, count: int) -> Any:
    if node.has_offsets:
        values = np.empty(count + 1, np.int64 if node.offset_bytes == 8 else np.int32)
        values[0] = 0
        return values
    return np.empty(node.value_bytes(count), np.uint8)


def corrupt_offsets() -> MasterTableError:
    """The error for offsets that point outside the page: the file was modified in use."""
    return MasterTableError(
        "offsets of texts or lists point outside their page, although the page was valid when "
        "first read; files of a master table must not be modified: restore them from a backup or "
        "rebuild the table"
    )
