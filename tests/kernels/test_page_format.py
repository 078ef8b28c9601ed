"""Pages that compiled code reads and checks, compared with Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings

from kernels.page_cases import batches
from semistream.kernels import page_format as kernel
from semistream.kernels import page_nodes as problems
from semistream.master.page_spec import PageSpec


def bare_buffers(array: pa.Array) -> list[pa.Buffer | None]:
    """The buffers as the IPC format lists them: none for a null column or child."""
    kind = array.type
    types = pa.types
    if isinstance(array, pa.ExtensionArray):
        return bare_buffers(array.storage)
    if types.is_null(kind):
        return []
    if not types.is_nested(kind):
        return list(array.buffers())
    if types.is_union(kind):
        own = array.buffers()[1 : 3 if kind.mode == "dense" else 2]
        children = [array.field(i) for i in range(kind.num_fields)]
    elif types.is_struct(kind):
        own = array.buffers()[:1]
        children = [array.field(i) for i in range(kind.num_fields)]
    elif types.is_fixed_size_list(kind):
        own, children = array.buffers()[:1], [array.values]
    else:
        own = array.buffers()[:2]
        children = [array.values]
    return [*own, *(buffer for child in children for buffer in bare_buffers(child))]


def open_pages(pages: list[pa.Buffer], buffers: list[int]) -> tuple[Any, Any, Any]:
    addresses = np.empty((len(buffers), len(pages)), np.int64)
    lengths, rows = np.empty_like(addresses), np.empty(len(pages), np.int64)
    places = np.array([page.address for page in pages], np.int64)
    kernel.open_pages(places, np.array(buffers, np.int64), addresses, lengths, rows)
    return addresses, lengths, rows


def check(
    page: pa.Buffer, rows: int, schema: pa.Schema, key: tuple[str, ...] = ()
) -> tuple[int, int]:
    spec = PageSpec(schema, key)
    problem = np.full((1, 2), -1, np.int64)
    kernel.check_pages(
        np.array([page.address]), np.array([page.size]), np.array([rows]), spec.nodes,
        spec.buffers, problem,
    )  # fmt: skip
    return int(problem[0, 0]), int(problem[0, 1])


UNION = pa.record_batch(
    {
        "sparse": pa.UnionArray.from_sparse(
            pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, None]), pa.array(["a", "b", "c"])]
        ),
        "dense": pa.UnionArray.from_dense(
            pa.array([0, 1, 1], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array([1]), pa.array(["a", "b"])],
        ),
        "after": pa.array(["x", None, "zz"]),
    }
)


@given(batches)
@example(UNION)
@settings(max_examples=150, deadline=None)
def test_buffers_have_the_addresses_and_sizes_that_arrow_finds(batch: pa.RecordBatch) -> None:
    page = batch.serialize()
    spec = PageSpec(batch.schema)
    addresses, lengths, rows = open_pages([page], list(range(spec.buffers)))
    assert rows.tolist() == [batch.num_rows]
    read = pa.ipc.read_record_batch(page, batch.schema)
    expected = [buffer for column in read.columns for buffer in bare_buffers(column)]
    assert len(expected) == spec.buffers
    for number, buffer in enumerate(expected):
        assert lengths[number, 0] == (buffer.size if buffer is not None else 0)
        if buffer is not None and buffer.size:
            assert addresses[number, 0] == buffer.address


@given(batches)
@settings(max_examples=150, deadline=None)
def test_pages_that_arrow_writes_are_fine(batch: pa.RecordBatch) -> None:
    assert check(batch.serialize(), batch.num_rows, batch.schema) == (problems.FINE, 0)


def test_buffers_of_a_column_are_found_in_several_pages() -> None:
    many = [
        pa.record_batch(
            {
                "n": pa.nulls(n),
                "a": pa.array(range(n), pa.int64()),
                "t": pa.array(["xy"] * (n - 1) + [None], pa.string()),
            }
        )
        for n in (1, 5, 30)
    ]
    pages = [batch.serialize() for batch in many]
    spec = PageSpec(many[0].schema)
    assert spec.buffers_of(0) == (-1, -1, -1)
    assert spec.buffers_of(1) == (0, 1, -1)
    assert spec.buffers_of(2) == (2, 3, 4)
    addresses, lengths, rows = open_pages(pages, [4, 1, 0])
    assert rows.tolist() == [1, 5, 30]
    assert lengths.tolist() == [[0, 8, 58], [8, 40, 240], [0, 0, 0]]
    for p, page in enumerate(pages):
        columns = pa.ipc.read_record_batch(page, many[0].schema).columns
        assert addresses[1, p] == columns[1].buffers()[1].address


def test_unions_are_left_to_arrow_and_views_are_not_addressed() -> None:
    union = PageSpec(UNION.schema)
    assert union.addressable
    assert not union.checkable
    view = PageSpec(pa.schema([("v", pa.string_view())]))
    assert not view.addressable
    assert not view.checkable
    plain = PageSpec(pa.schema([("v", pa.map_(pa.string(), pa.list_(pa.bool_())))]))
    assert plain.addressable
    assert plain.checkable


PAGE = pa.record_batch(
    {
        "k": pa.array([1, 2, 3], pa.int64()),
        "flag": pa.array([True, None, False]),
        "text": pa.array(["a", "bcd", None]),
        "list": pa.array([[1], [], [2, 3]], pa.large_list(pa.int16())),
        "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
        "struct": pa.array([{"x": 1.5}, None, {"x": 2.5}]),
        "map": pa.array([[("a", 1)], [], [("b", None)]], pa.map_(pa.string(), pa.int8())),
    }
)
NAMES = PAGE.schema.names


class Forged:
    """The bytes of a page, with the positions of its nodes and buffers."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.schema, self.rows = batch.schema, batch.num_rows
        self.bytes = bytearray(batch.serialize())
        self.spec = PageSpec(batch.schema)
        self.body = 8 + int.from_bytes(self.bytes[4:8], "little")
        self.heads = self._vector(1, len(self.spec.nodes))
        self.entries = self._vector(2, self.spec.buffers)

    def int(self, at: int, width: int, signed: bool = False) -> int:
        return int.from_bytes(self.bytes[at : at + width], "little", signed=signed)

    def field(self, table: int, number: int) -> int:
        vtable = table - self.int(table, 4, signed=True)
        return table + self.int(vtable + 4 + 2 * number, 2)

    def target(self, at: int) -> int:
        return at + self.int(at, 4)

    @property
    def batch(self) -> int:
        return self.target(self.field(self.target(8), 2))

    def _vector(self, number: int, count: int) -> int:
        vector = self.target(self.field(self.batch, number))
        assert self.int(vector, 4) == count
        return vector + 4

    def put(self, at: int, value: int, width: int = 8) -> None:
        self.bytes[at : at + width] = value.to_bytes(width, "little", signed=value < 0)

    def node(self, column: str, child: int = 0) -> int:
        """The position of a column's length; its null count is 8 bytes behind."""
        return self.heads + 16 * (self.spec.ranges[NAMES.index(column)][0] + child)

    def entry(self, column: str, which: int, child: int = 0) -> int:
        """The position of a buffer's offset; its length is 8 bytes behind."""
        node = self.spec.nodes[self.spec.ranges[NAMES.index(column)][0] + child]
        number = int(node[problems.VALIDITY + which])
        assert number >= 0
        return self.entries + 16 * number

    def values(self, column: str, which: int, child: int = 0) -> int:
        """The position of a buffer's content."""
        return self.body + self.int(self.entry(column, which, child), 8)

    def check(self, key: tuple[str, ...] = ()) -> tuple[int, str | int]:
        found, where = check(pa.py_buffer(bytes(self.bytes)), self.rows, self.schema, key)
        return found, where if found < problems.OUTSIDE else NAMES[where]


@pytest.fixture
def page() -> Forged:
    return Forged(PAGE)


def test_the_frame(page: Forged) -> None:
    assert page.check()[0] == problems.FINE
    data = pa.py_buffer(bytes(page.bytes))
    for size in range(page.body):
        assert check(data.slice(0, size), 3, PAGE.schema)[0] == problems.UNREADABLE
    for at, value in ((0, 0), (4, 0), (4, -8), (4, 2**31 - 8), (4, page.body - 12), (8, 0), (8, 2)):
        forged = Forged(PAGE)
        forged.put(at, value, 4)
        assert forged.check()[0] == problems.UNREADABLE, (at, value)
    for size in range(page.body, len(page.bytes) - 8, 8):
        assert check(data.slice(0, size), 3, PAGE.schema)[0] != problems.FINE


def test_rows_and_columns(page: Forged) -> None:
    data = pa.py_buffer(bytes(page.bytes))
    assert check(data, 4, PAGE.schema) == (problems.WRONG_ROWS, 3)
    assert check(data, 3, PAGE.schema.remove(6))[0] == problems.WRONG_COLUMNS
    assert check(data, 3, PAGE.schema.append(pa.field("n", pa.null())))[0] == problems.WRONG_COLUMNS
    added = PAGE.schema.append(pa.field("n", pa.int8()))
    assert check(data, 3, added)[0] == problems.WRONG_COLUMNS


@pytest.mark.parametrize("value", [-8, 4, 1 << 20, 2**63 - 8])
@pytest.mark.parametrize("column", NAMES)
def test_buffers_outside_the_body(page: Forged, column: str, value: int) -> None:
    page.put(page.entry(column, 0), value)
    assert page.check() == (problems.OUTSIDE, column)


@pytest.mark.parametrize("value", [-1, 1 << 20, 2**63 - 1])
def test_lengths_of_buffers_outside_the_body(page: Forged, value: int) -> None:
    page.put(page.entry("text", 2) + 8, value)
    assert page.check() == (problems.OUTSIDE, "text")


@pytest.mark.parametrize("value", [-1, 0, 2, 4, 2**62])
def test_lengths_of_nodes(value: int) -> None:
    for column, child in [(name, 0) for name in NAMES] + [("struct", 1), ("pair", 1), ("map", 2)]:
        page = Forged(PAGE)
        page.put(page.node(column, child), value)
        found, where = page.check()
        if column == "map" and child and value == 2:  # it has two
            assert found == problems.FINE
        else:
            assert (found, where) == (problems.WRONG_LENGTH, column), (column, value)


def test_items_of_a_list_are_not_fewer_than_its_offsets_say(page: Forged) -> None:
    page.put(page.node("list", 1), 2)
    assert page.check() == (problems.WRONG_OFFSETS, "list")
    page.put(page.node("list", 1), 4)  # the values of a fourth item would be in the padding
    assert page.check() == (problems.TOO_SHORT, "list")
    page.put(page.node("list", 1), -1)
    assert page.check()[0] == problems.WRONG_OFFSETS


@pytest.mark.parametrize("column", ["flag", "text", "struct"])
def test_null_counts(column: str) -> None:
    for value in (-1, 0, 2, 3, 4, 2**62):
        page = Forged(PAGE)
        page.put(page.node(column) + 8, value)
        assert page.check() == (problems.WRONG_NULLS, column), value
    page = Forged(PAGE)
    page.put(page.entry(column, 0) + 8, 0)
    assert page.check() == (problems.TOO_SHORT, column)
    page = Forged(PAGE)
    page.put(page.values(column, 0), 0b010, 1)
    assert page.check() == (problems.WRONG_NULLS, column)


def test_keys_and_maps_have_no_nulls(page: Forged) -> None:
    assert page.check(key=("k",))[0] == problems.FINE
    assert page.check(key=("k", "text")) == (problems.NULL_KEY, "text")
    page.put(page.node("map", 1) + 8, 1)
    assert page.check() == (problems.NULL_IN_MAP, "map")
    page = Forged(PAGE)
    page.put(page.node("map", 2) + 8, 1)
    assert page.check() == (problems.NULL_IN_MAP, "map")


@pytest.mark.parametrize(
    ("column", "child", "bytes_needed"),
    [("k", 0, 24), ("flag", 0, 1), ("text", 0, 16), ("list", 0, 32), ("pair", 1, 24)],
)
def test_values_that_are_too_short(column: str, child: int, bytes_needed: int) -> None:
    page = Forged(PAGE)
    page.put(page.entry(column, 1, child) + 8, bytes_needed)
    assert page.check()[0] == problems.FINE
    page.put(page.entry(column, 1, child) + 8, bytes_needed - 1)
    assert page.check() == (problems.TOO_SHORT, column)


@pytest.mark.parametrize(
    "offsets", [[-1, 1, 4, 4], [0, 5, 4, 4], [0, 1, 4, 5], [0, 1, 4, 2**31 - 1], [4, 3, 2, 1]]
)
def test_offsets_of_texts(page: Forged, offsets: list[int]) -> None:
    at = page.values("text", 1)
    page.bytes[at : at + 16] = np.array(offsets, np.int32).tobytes()
    assert page.check() == (problems.WRONG_OFFSETS, "text")


@pytest.mark.parametrize("offsets", [[-1, 1, 1, 3], [0, 2, 1, 3], [0, 1, 1, 4], [0, 0, 0, 2**62]])
def test_offsets_of_lists(page: Forged, offsets: list[int]) -> None:
    at = page.values("list", 1)
    page.bytes[at : at + 32] = np.array(offsets, np.int64).tobytes()
    assert page.check() == (problems.WRONG_OFFSETS, "list")


def test_compressed_pages() -> None:
    for codec in ("lz4", "zstd"):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(sink, PAGE.schema, options=options) as writer:
            writer.write_batch(PAGE)
        reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
        reader.read_next_message()
        packed = reader.read_next_message().serialize()
        assert check(packed, 3, PAGE.schema)[0] == problems.COMPRESSED


def test_messages_that_are_no_record_batch() -> None:
    assert check(PAGE.schema.serialize(), 3, PAGE.schema)[0] == problems.UNREADABLE
    dictionary = pa.record_batch({"d": pa.array(["a"]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, dictionary.schema) as writer:
        writer.write_batch(dictionary)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    values = reader.read_next_message()
    assert values.type == "dictionary"
    schema = pa.schema([("d", pa.string())])
    assert check(values.serialize(), 1, schema)[0] == problems.UNREADABLE
