"""Equal codes may be hashes of different keys: compares the keys themselves, in compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.binding import Binding
from semistream.engine.rows.column_nodes import storage_of
from semistream.engine.rows.layout import Slots, is_text, width_of
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_store import RowStore
from semistream.keys import Mask


class KeyMatch:
    """Compares keys of stored rows with keys of pages or batches."""

    def __init__(self, binding: Binding) -> None:
        self._codec = binding.codec
        assert binding.stream_schema is not None
        stream = [binding.stream_schema.field(name).type for name in binding.stream_key]
        pairs = zip(stream, binding.codec.types, strict=True)
        self.compiled = all(_same_bytes_if_equal(one, other) for one, other in pairs)

    def same(
        self, store: RowStore, wanted: Sequence[int], slots: Slots, columns: PageColumns,
        places: Any, rows: Any,
    ) -> Mask | None:  # fmt: skip
        """For every i, whether the columns ``wanted`` of slot ``slots[i]`` equal row ``rows[i]`` of
        the page or batch at ``places[i]``; None if all do."""
        if not self.compiled:
            equal = self._codec.same(store.take(slots, wanted), columns.take(places, rows))
            return None if equal.all() else equal
        equal = np.empty(len(slots), np.bool_)
        count = kernels.keys_equal.same_keys(
            slots, places, rows, columns.addresses, columns.nodes.forms,
            *store.addresses(tuple(wanted)), equal,
        )  # fmt: skip
        return None if count == len(slots) else equal

    def same_rows(
        self, batch: PageColumns, tuples: Any, columns: PageColumns, places: Any, rows: Any
    ) -> Mask | None:
        """The same for rows ``tuples`` of a batch."""
        first = np.zeros(len(tuples), np.int64)
        if not self.compiled:
            equal = self._codec.same(batch.take(first, tuples), columns.take(places, rows))
            return None if equal.all() else equal
        equal = np.empty(len(tuples), np.bool_)
        count = kernels.keys_equal.same_rows(
            batch.addresses, batch.nodes.forms, tuples,
            columns.addresses, columns.nodes.forms, places, rows, equal,
        )  # fmt: skip
        return None if count == len(tuples) else equal


def _same_bytes_if_equal(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of these types are equal just if their bytes are."""
    one, other = storage_of(one), storage_of(other)
    if is_text(one) and is_text(other):
        return True
    if pa.types.is_decimal(one) and pa.types.is_decimal(other):
        return bool(one.scale == other.scale and one.bit_width == other.bit_width)
    return bool(one == other and width_of(one) is not None)
