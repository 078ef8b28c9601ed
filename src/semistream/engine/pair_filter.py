"""Conditions on pairs, at work: which pairs of a tuple and a master row pass.

A pair whose keys are equal is verified a second time. Comparisons of numbers and times run in
compiled code, over the memory where tuples and rows are; the others in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.engine.binding import Binding
from semistream.engine.compared_types import ACCEPTED, FUNCTIONS, alike, compared, kind_of
from semistream.engine.conditions import (
    Comparison,
    Predicate,
    comparisons_of,
    visible,
    visible_of_stream,
)
from semistream.engine.intake import Slice
from semistream.engine.rows.layout import fixed_buffer, form_of, validity, width_of
from semistream.engine.rows.page_columns import PageColumns
from semistream.engine.rows.row_store import RowStore
from semistream.errors import ConfigError
from semistream.kernels import column_forms as forms
from semistream.kernels import value_kinds as kinds
from semistream.keys import Mask

_NO_PLACES = np.zeros(0, np.int64)


class Side(NamedTuple):
    """One side of pairs: where compiled code finds its columns, and a way to have Arrow arrays."""

    at: Any
    columns: Any  # see kernels/value_kinds.py
    places: Any
    rows: Any
    take: Callable[[Any, Sequence[str]], list[pa.Array]]  # of a choice of the pairs


class PairFilter:
    """The conditions of one run, bound to the schemas of stream and master."""

    def __init__(self, binding: Binding, master: pa.Schema) -> None:
        assert binding.stream_schema is not None
        self._stream, self._master = binding.stream_schema, master
        self._names = binding.condition_columns
        self._cached = [binding.cached_columns.index(name) for name in self._names]
        found = [pair for one in binding.conditions for pair in comparisons_of(one)]
        self._compiled: list[Comparison] = []
        self._others: list[Comparison] = []
        described = []
        for comparison in found:
            one = self._stream.field(comparison.stream).type
            other = master.field(comparison.master).type
            scales = compared(one, other)
            if scales is None:
                self._others.append(comparison)
            else:
                self._compiled.append(comparison)
                described.append((kind_of(one), kind_of(other), *scales, comparison.is_open))
        self._predicates = [one for one in binding.conditions if isinstance(one, Predicate)]
        self._accepted = np.array([ACCEPTED[c.operator] for c in self._compiled], np.int64)
        self._stream_columns = np.zeros((kinds.COLUMN_ROWS, len(described)), np.int64)
        self._master_columns = self._stream_columns.copy()
        for c, (one_kind, other_kind, one_scale, other_scale, is_open) in enumerate(described):
            self._stream_columns[[kinds.KIND, kinds.SCALE], c] = one_kind, one_scale
            self._master_columns[[kinds.KIND, kinds.SCALE], c] = other_kind, other_scale
            self._master_columns[kinds.OPEN, c] = is_open

    # -- pairs of a waiting tuple, or of a tuple of a batch, with rows of pages or of a cache ----

    def waiting(
        self, window: Any, slots: Any, columns: PageColumns, places: Any, rows: Any
    ) -> Mask | None:
        """Whether the tuples in these slots and these rows of pages pass; None if all do."""
        return self._evaluate(self._of_window(window, slots), self._of_pages(columns, places, rows))

    def arriving(
        self, part: Slice, tuples: Any, columns: PageColumns, places: Any, rows: Any
    ) -> Mask | None:
        """The same for these tuples of a batch."""
        return self._evaluate(self._of_slice(part, tuples), self._of_pages(columns, places, rows))

    def cached(self, part: Slice, tuples: Any, store: RowStore, slots: Any) -> Mask | None:
        """The same for these tuples of a batch and these slots of a front stage."""
        return self._evaluate(self._of_slice(part, tuples), self._of_cache(store, slots))

    def _of_window(self, window: Any, slots: Any) -> Side:
        layout, store, codes = window.layout, window.rows, window.codes
        names = [comparison.stream for comparison in self._compiled]
        stored = [layout.stored(name) for name in names]
        at, columns = _of_store(self._stream_columns, store, stored)
        for c, place in enumerate(stored):
            if place is None:  # a key that is not stored, as its code is the same number
                at[:, c, 0] = 0
                at[forms.VALUES, c, 0] = codes.ctypes.data
                columns[kinds.KIND, c], columns[kinds.STEP, c] = kinds.INT64, codes.strides[0]

        def take(chosen: Any, names: Sequence[str]) -> list[pa.Array]:
            some = slots[chosen]
            return layout.some(names, store, some, codes[some])  # type: ignore[no-any-return]

        return Side(at, columns, _NO_PLACES, slots, take)

    def _of_slice(self, part: Slice, tuples: Any) -> Side:
        if part.compared is None:
            part.compared = self._describe(part.batch)
        at, columns, _ = part.compared

        def take(chosen: Any, names: Sequence[str]) -> list[pa.Array]:
            rows = pa.array(tuples[chosen])
            return [part.batch.column(name).take(rows) for name in names]

        return Side(at, columns, _NO_PLACES, tuples, take)

    def _describe(self, batch: pa.RecordBatch) -> tuple[Any, Any, Any]:
        """Addresses, description and owners of a batch's columns."""
        at = np.zeros((forms.PAGE_ROWS, len(self._compiled), 1), np.int64)
        columns, owners = self._stream_columns.copy(), []
        for c, comparison in enumerate(self._compiled):
            values = batch.column(comparison.stream)
            owner, at[forms.VALUES, c, 0] = fixed_buffer(values, form_of(values.type))
            owners.append(owner)
            at[forms.VALIDITY, c, 0] = validity(values)
            columns[kinds.NODE, c], columns[kinds.VALID_STEP, c] = c, 1
            columns[kinds.STEP, c] = width_of(values.type) or 0
        return at, columns, owners

    def _of_pages(self, pages: PageColumns, places: Any, rows: Any) -> Side:
        columns = self._master_columns.copy()
        for c, comparison in enumerate(self._compiled):
            node = pages.nodes.columns[self._names.index(comparison.master)]
            columns[kinds.NODE, c], columns[kinds.VALID_STEP, c] = node, 1
            columns[kinds.STEP, c] = pages.nodes[node].form

        def take(chosen: Any, names: Sequence[str]) -> list[pa.Array]:
            arrays = dict(zip(self._names, pages.take(places[chosen], rows[chosen]), strict=True))
            return [arrays[name] for name in names]

        return Side(pages.addresses, columns, places, rows, take)

    def _of_cache(self, store: RowStore, slots: Any) -> Side:
        stored = [self._cached[self._names.index(c.master)] for c in self._compiled]
        at, columns = _of_store(self._master_columns, store, stored)

        def take(chosen: Any, names: Sequence[str]) -> list[pa.Array]:
            wanted = [self._cached[self._names.index(name)] for name in names]
            return store.take(slots[chosen], wanted)

        return Side(at, columns, _NO_PLACES, slots, take)

    # -- evaluation ------------------------------------------------------------------------

    def _evaluate(self, stream: Side, master: Side) -> Mask | None:
        count = len(stream.rows)
        passed = np.ones(count, np.bool_)
        fine = count
        if self._compiled and count:
            fine = kernels.compare.passes(
                stream.at, stream.columns, _wide(stream.places), _wide(stream.rows),
                master.at, master.columns, _wide(master.places), _wide(master.rows),
                self._accepted, passed,
            )  # fmt: skip
        if fine and (self._others or self._predicates):
            chosen = np.flatnonzero(passed)
            passed[chosen] = self._by_arrow(stream, master, chosen)
            fine = int(np.count_nonzero(passed))
        return None if fine == count else passed

    def _by_arrow(self, stream: Side, master: Side, chosen: Any) -> Any:
        passed = np.ones(len(chosen), np.bool_)
        for comparison in self._others:
            (one,), (other,) = (
                stream.take(chosen, [comparison.stream]), master.take(chosen, [comparison.master])
            )  # fmt: skip
            passed &= _as_mask(FUNCTIONS[comparison.operator](*alike(one, other)))
        for predicate in self._predicates:
            sides = []
            for side, schema, given, known in (
                (stream, self._stream, predicate.stream, visible_of_stream),
                (master, self._master, predicate.master, visible),
            ):
                names = known(schema) if given is None else given
                fields = pa.schema([schema.field(name) for name in names])
                sides.append(_batch(side.take(chosen, names), fields, len(chosen)))
            passed &= _result(predicate, predicate.function(*sides), len(chosen))
        return passed


def _of_store(described: Any, store: RowStore, wanted: Sequence[int | None]) -> tuple[Any, Any]:
    """Addresses and description of stored columns; None: not stored."""
    columns = described.copy()
    at = np.zeros((forms.PAGE_ROWS, len(wanted), 1), np.int64)
    for c, place in enumerate(wanted):
        columns[kinds.NODE, c] = c
        if place is not None:
            values, bits, size = store.column_at(place)
            at[forms.VALUES, c, 0], at[forms.VALIDITY, c, 0] = values, bits
            columns[kinds.STEP, c], columns[kinds.VALID_STEP, c] = size, 8 * size
    return at, columns


def _wide(numbers: Any) -> Any:
    return np.ascontiguousarray(numbers, np.int64)


def _batch(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _as_mask(values: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        values = values.fill_null(False).to_numpy(zero_copy_only=False)
    return np.asarray(values)


def _result(predicate: Predicate, values: Any, count: int) -> Any:
    """The mask that a predicate has returned."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)) and not pa.types.is_boolean(values.type):
        kind: Any = values.type
    else:
        mask = _as_mask(values)
        if mask.dtype == np.bool_ and mask.shape == (count,):
            return mask
        kind = f"{mask.dtype} with shape {mask.shape}"
    raise ConfigError(
        f"{predicate.function!r} returned {kind} for {count} pairs; return a Boolean array with "
        "one value per pair"
    )
