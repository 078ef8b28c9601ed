"""Rows in slots: values round-trip, within the planned bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rows.arrow_columns import paged_columns, rows_of
from semistream.engine.rows.layout import RecordLayout
from semistream.engine.rows.message import BatchAddresses, flat_forms
from semistream.engine.rows.row_store import PlainColumns, RowStore
from semistream.errors import InternalError, SchemaError

LIST = pa.list_(pa.int64())
COLUMNS: dict[str, pa.Array] = {
    "int64": pa.array([1, None, 3, -(2**63)]),
    "int8": pa.array([1, 2, None, -128], pa.int8()),
    "bool": pa.array([True, None, False, True]),
    "decimal": pa.array([1, None, 2, 3], pa.decimal128(20, 0)),
    "bytes": pa.array([b"abc", b"\0\0\0", None, b"xyz"], pa.binary(3)),
    "text": pa.array(["", None, "long " * 10, "ü"]),
    "large": pa.array([b"x", b"", None, b"y" * 9], pa.large_binary()),
    "list": pa.array([[1, 2], None, [], [3]], LIST),
    "struct": pa.array([{"x": "a"}, None, {"x": None}, {"x": "b"}]),
    "null": pa.nulls(4),
}
FEW = ["text", "int64", "list", "bool", "null", "large"]


def rows(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def slots(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


def store_for(columns: list[pa.Array], capacity: int, heap: int = 0) -> RowStore:
    return RowStore(RecordLayout([column.type for column in columns]), capacity, heap)


@pytest.mark.parametrize("names", [[name] for name in COLUMNS] + [FEW, list(COLUMNS)], ids=str)
def test_values_round_trip_and_slots_are_reused(names: list[str]) -> None:
    columns = [COLUMNS[name] for name in names]
    store = store_for(columns, 3, 100_000)
    store.put(columns, rows(3, 0, 1), slots(2, 0, 1))
    assert [c.to_pylist() for c in store.take(slots(0, 1, 2, 0))] == [
        c.take(pa.array([0, 1, 3, 0])).to_pylist() for c in columns
    ]
    store.free(slots(2))
    store.put(columns, rows(2), slots(2))
    taken = store.take(slots(2, 1))
    assert [c.to_pylist() for c in taken] == [c.take(pa.array([2, 1])).to_pylist() for c in columns]
    assert [c.type for c in taken] == [c.type for c in columns]
    assert [len(c) for c in store.take(slots())] == [0] * len(columns)


def test_only_some_columns_in_any_order() -> None:
    columns = [COLUMNS[name] for name in FEW]
    store = store_for(columns, 4, 100_000)
    store.put(columns, rows(0, 1, 2, 3), slots(0, 1, 2, 3))
    taken = store.take(slots(3, 1), [5, 1, 0])
    assert [c.to_pylist() for c in taken] == [[b"y" * 9, b""], [-(2**63), None], ["ü", None]]


@settings(max_examples=40)
@given(st.data())
def test_columns_of_any_type(data: Any) -> None:
    pages = data.draw(paged_columns(most_columns=9))
    capacity, heap = 12, 10**6
    store = store_for(pages[0], capacity, heap)
    held: dict[int, list[Any]] = {}
    for page in pages:
        chosen = data.draw(rows_of([page], most=capacity - len(held)))
        numbers = rows(*(row for _, row in chosen))
        free = slots(*[slot for slot in range(capacity) if slot not in held][: len(chosen)])
        assert store.room(page, numbers) == len(chosen)
        store.put(page, numbers, free)
        for slot, row in zip(free.tolist(), numbers.tolist(), strict=True):
            held[slot] = [column[row].as_py() for column in page]
        if held:
            asked = data.draw(st.lists(st.sampled_from(sorted(held)), max_size=20))
            columns = store.take(slots(*asked))
            assert [c.to_pylist() for c in columns] == [
                [held[slot][i] for slot in asked] for i in range(len(page))
            ]
            gone = data.draw(st.lists(st.sampled_from(sorted(held)), unique=True))
            store.free(slots(*gone))
            for slot in gone:
                del held[slot]


@pytest.mark.parametrize("names", [["text"], ["list"], ["struct"], FEW], ids=str)
def test_as_many_rows_as_fit(names: list[str]) -> None:
    columns = [COLUMNS[name].take(pa.array(rows(0, 1, 2, 3).repeat(25))) for name in names]
    numbers = np.arange(100)
    store = store_for(columns, 100, 1000)
    count = store.room(columns, numbers)
    assert 0 < count < 100
    assert store.room(columns, numbers[:count]) == count
    store.put(columns, numbers[:count], numbers[:count].astype(np.int32))
    assert store.room(columns, numbers[count:]) < 100 - count


def test_rows_before_the_first_null_are_unchanged() -> None:
    store = RowStore(RecordLayout([pa.int64(), pa.bool_()]), 2)
    store.put([pa.array([7]), pa.array([True])], rows(0), slots(0))
    store.put([pa.array([None], pa.int64()), pa.array([False])], rows(0), slots(1))
    store.put([pa.array([8]), pa.array([None], pa.bool_())], rows(0), slots(0))
    assert [c.to_pylist() for c in store.take(slots(0, 1))] == [[8, None], [None, False]]


def test_slices_are_copied_from_their_offset() -> None:
    columns = [COLUMNS[name].slice(2) for name in FEW]
    store = store_for(columns, 2, 10_000)
    store.put(columns, rows(1, 0), slots(0, 1))
    assert [c.to_pylist() for c in store.take(slots(1, 0))] == [c.to_pylist() for c in columns]


@pytest.mark.parametrize("names", [[name] for name in COLUMNS] + [FEW, []], ids=str)
@pytest.mark.parametrize(("capacity", "heap"), [(0, 0), (1, 0), (1, 100), (50, 12_345)])
def test_allocated_bytes_match_the_plan(names: list[str], capacity: int, heap: int) -> None:
    layout = RecordLayout([COLUMNS[name].type for name in names])
    store = RowStore(layout, capacity, heap)
    assert store.nbytes == RowStore.bytes_of(layout, capacity, heap)
    assert store.nbytes <= capacity * layout.slot_bytes + heap
    arrays = [store._matrix, store._heap, store._positions]
    held = sum(a.nbytes for a in arrays) + sum(a.where.nbytes for a in store._arenas.values())
    assert held <= store.nbytes


def test_a_full_heap_reports_how_many_rows_fit() -> None:
    column = pa.array(["x" * 8] * 20)  # two units each: a header and the text
    store = store_for([column], 20, 10 * 16)  # of twenty units eighteen may be live
    assert store.room([column], np.arange(9)) == 9
    assert store.room([column], np.arange(20)) == 9
    store.put([column], np.arange(9), np.arange(9, dtype=np.int32))
    assert store.room([column], rows(0)) == 0
    for turn in range(30):
        store.free(slots(turn % 9))
        assert store.room([column], rows(0)) == 1
        store.put([pa.array([f"round {turn:2}"])], rows(0), slots(turn % 9))
    assert store.take(np.arange(9, dtype=np.int32))[0].to_pylist() == [
        f"round {turn:2}" for turn in (27, 28, 29, 21, 22, 23, 24, 25, 26)
    ]


def test_the_heap_is_compacted_for_a_text_of_another_size() -> None:
    store = store_for([pa.array(["x"])], 20, 10 * 16)
    store.put([pa.array(["one", "two", "three", "four"])], np.arange(4), slots(0, 1, 2, 3))
    for turn in range(12):
        wide = [f"{turn:>{8 * (1 + turn % 3)}}", "y" * (turn % 9)]
        store.put([pa.array(wide)], np.arange(2), slots(4, 5))
        found = store.take(slots(3, 4, 0, 5))[0].to_pylist()
        assert found == ["four", wide[0], "one", wide[1]]
        store.free(slots(4, 5))


def test_too_much_text_raises_instead_of_crashing() -> None:
    column = pa.array(["x" * 100])
    store = store_for([column], 1, 64)
    assert store.room([column], rows(0)) == 0
    with pytest.raises(InternalError, match="more text"):
        store.put([column], rows(0), slots(0))


@pytest.mark.parametrize("kind", ["text", "list"])
def test_a_row_that_can_never_fit_is_detected(kind: str) -> None:
    values: list[Any] = ["a", "b" * 900, "c"] if kind == "text" else [[1], [2] * 900, [3]]
    column = pa.array(values)
    small, large = store_for([column], 3, 600), store_for([column], 3, 60_000)
    assert small.first_too_large([column]) == 1
    assert small.first_too_large([column.slice(2)]) is None
    assert large.first_too_large([column]) is None


@pytest.mark.parametrize("names", [["text"], ["list"], FEW, list(COLUMNS)], ids=str)
def test_bytes_for_a_row_are_enough_for_it(names: list[str]) -> None:
    columns = [COLUMNS[name] for name in names]
    for row in range(4):
        heap = store_for(columns, 1).bytes_for(columns, rows(row))
        store = store_for(columns, 1, heap)
        assert store.room(columns, rows(row)) == 1
        store.put(columns, rows(row), slots(0))
        assert [c[0].as_py() for c in store.take(slots(0))] == [c[row].as_py() for c in columns]


def test_offsets_outside_their_content_are_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 99, 3], np.int32)), pa.py_buffer(b"abc")]
    )
    store = store_for([bad], 1, 1000)
    with pytest.raises(SchemaError, match="offsets outside"):
        store.room([bad], rows(0))


def test_a_few_rows_of_a_page_by_their_addresses() -> None:
    """The same slots as with ``put``, of columns that are some of the page's."""
    names = ["int64", "int8", "bool", "decimal", "bytes"]
    batch = pa.RecordBatch.from_arrays([COLUMNS[name] for name in ["text", *names]], list("tabcde"))
    page = BatchAddresses(flat_forms(batch.schema.types)).of(batch)
    store = store_for(batch.columns[1:], 6)
    some = rows(3, 1, 2)
    store.put_page(page, np.arange(1, 6), some, slots(5, 0, 2))
    taken = store.take(slots(5, 0, 2))
    assert taken == [column.take(pa.array(some)) for column in batch.columns[1:]]


def test_a_column_that_has_nulls_for_the_first_time() -> None:
    """Also after another column had some: its nulls are not lost, nor those before it changed."""
    kinds = [pa.int64(), pa.int32()]
    store, addresses = store_for([pa.array([], kind) for kind in kinds], 6), []
    batches = [
        pa.RecordBatch.from_arrays([pa.array(a, kinds[0]), pa.array(b, kinds[1])], list("ab"))
        for a, b in (([1, 2], [3, 4]), ([None, 6], [7, 8]), ([9, 10], [11, None]))
    ]
    for n, batch in enumerate(batches):
        addresses.append(BatchAddresses(flat_forms(kinds)).of(batch))
        store.put_page(addresses[-1], np.arange(2), rows(0, 1), slots(2 * n, 2 * n + 1))
    taken = [column.to_pylist() for column in store.take(slots(*range(6)))]
    assert taken == [[1, 2, None, 6, 9, 10], [3, 4, 7, 8, 11, None]]


def test_plain_columns() -> None:
    fixed = [pa.array([1, 2, 3]), pa.array([b"ab", b"cd", b"ef"], pa.binary(2))]
    plain = plain_columns(fixed)
    assert plain.fit(fixed)
    assert not plain.fit([pa.array([1, None, 3]), fixed[1]])
    for name in ("int64", "text", "list"):
        columns = [*fixed, COLUMNS[name]]
        assert not plain_columns(columns).fit(columns)
    for kind in (pa.string(), pa.large_binary()):
        texts = [pa.array(["no", "one", "", "three"], kind).slice(1), *fixed]
        plain_texts = plain_columns(texts)
        assert plain_texts.fit(texts)
        for wanted in (rows(2, 0, 1, 2), rows()):
            taken = plain_texts.take(texts, wanted)
            assert taken == [column.take(pa.array(wanted)) for column in texts]
    flags = [pa.array([True])]
    assert not plain_columns(flags).fit(flags)
    taken = plain.take([c.slice(1) for c in fixed], rows(1, 0, 1))
    assert [c.to_pylist() for c in taken] == [[3, 2, 3], [b"ef", b"cd", b"ef"]]
    assert [len(c) for c in plain.take(fixed, rows())] == [0, 0]


def test_texts_outside_their_content_are_not_gathered() -> None:
    offsets = pa.py_buffer(np.array([0, 2, 99, 3], np.int32))
    column = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abc")])
    plain = plain_columns([column])
    assert plain.take([column], rows(0))[0].to_pylist() == ["ab"]
    with pytest.raises(SchemaError, match="outside its content"):
        plain.take([column], rows(0, 1))


def plain_columns(columns: list[pa.Array]) -> PlainColumns:
    return PlainColumns([column.type for column in columns])
