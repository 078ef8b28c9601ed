"""Building blocks for unit tests of the engine: tiny in-memory tables, hand-made shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.binding import Binding
from semistream.engine.context import Context
from semistream.engine.intake import Intake, Slice
from semistream.engine.observer import Observer
from semistream.engine.output import Output
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.keys import KeyCodec
from semistream.master.index import PageIndex
from semistream.testing import FakeClock

STREAM = pa.schema([("k", pa.int64()), ("a", pa.int64())])
MASTER = pa.schema([("k", pa.int64()), ("v", pa.string())])


class MemoryReader:
    """Pages of a list. ``fail`` makes the next reads of these pages raise."""

    def __init__(self, source: MemoryPages, pages: int) -> None:
        self._source = source
        self._most = pages
        self.bytes_read = 0
        self.is_closed = False
        self.in_flight = False
        self.prefetched: list[tuple[int, int]] = []

    @property
    def nbytes(self) -> int:
        return self._source.buffer_bytes(self._most, False)

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        assert count <= self._most
        self.in_flight = False
        for page in range(first, first + count):
            if page in self._source.fail:
                self._source.fail.remove(page)
                raise OSError(f"page {page} cannot be read")
        pages = self._source.pages[first : first + count]
        self.bytes_read += sum(page.nbytes for page in pages)
        return pages

    def prefetch(self, first: int, count: int) -> None:
        self.prefetched.append((first, count))
        self.in_flight = True

    def more_readers(self, count: int) -> list[MemoryReader]:
        return [MemoryReader(self._source, self._most) for _ in range(count)]

    def close(self) -> None:
        self.is_closed = True


@dataclass
class MemoryPages:
    """A page source in memory: sorted record batches."""

    pages: list[pa.RecordBatch]
    key: tuple[str, ...] = ("k",)
    unique: bool = True
    fail: list[int] = field(default_factory=list)
    version: int = 1
    ordered: bool = True
    mapped: bool = False
    can_address: bool = False
    pinned: bool = False
    versions: dict[int, MemoryPages] = field(default_factory=dict, repr=False)  # shared by all
    changed: list[pa.RecordBatch] | None = None  # keys, since any version before

    def __post_init__(self) -> None:
        self.versions[self.version] = self
        self.schema = self.pages[0].schema
        self.num_pages = len(self.pages)
        self.num_rows = sum(page.num_rows for page in self.pages)
        self.max_page_bytes = max(page.nbytes for page in self.pages)
        self.max_row_bytes = 64
        self.row_bytes = 16.0
        self.readers: list[MemoryReader] = []
        codec = KeyCodec.for_types([self.schema.field(name).type for name in self.key], self.key)
        keys = [codec.sortable([page.column(name) for name in self.key]) for page in self.pages]
        firsts = np.array([page[0] for page in keys], dtype=keys[0].dtype)
        shared = [a[-1] == b[0] for a, b in pairwise(keys)]
        self.index = PageIndex(codec, firsts, np.array([*shared, False]))

    def can_prefetch(self, direct: bool) -> bool:
        return True

    def buffer_bytes(self, pages: int, direct: bool) -> int:
        return pages * self.max_page_bytes

    def reader(self, pages: int = 1, direct: bool = False) -> MemoryReader:
        self.readers.append(MemoryReader(self, pages))
        return self.readers[-1]

    def newest_version(self) -> int:
        return max(self.versions)

    def at_version(self, version: int) -> MemoryPages:
        return self.versions[version]

    def changed_keys(self, since: int) -> Iterator[pa.RecordBatch] | None:
        return None if self.changed is None else iter(self.changed)

    def publish(self, pages: list[pa.RecordBatch], **changes: Any) -> MemoryPages:
        """The next version, with these pages."""
        return replace(self, pages=pages, version=self.newest_version() + 1, **changes)


def pages_of(keys: Sequence[Sequence[Any]], kind: pa.DataType | None = None) -> MemoryPages:
    """Pages with these keys; the value of a row consists of its key and its position."""
    pages = [
        pa.record_batch(
            {"k": pa.array(page, kind), "v": [f"{key}/{row}" for row, key in enumerate(page)]}
        )
        for page in keys
    ]
    flat = [key for page in keys for key in page]
    return MemoryPages(pages, unique=len(set(flat)) == len(flat))


@dataclass(frozen=True)
class Side:
    """The master's side of a binding, without pages."""

    schema: pa.Schema = MASTER
    key: tuple[str, ...] = ("k",)


def binding(master: Any = None, stream: pa.Schema = STREAM, how: str = "inner") -> Binding:
    side = master or Side()
    bound = Binding(side, list(side.key), None, how)
    bound.bind(stream)
    return bound


def context(bound: Binding | None = None, observer: Observer | None = None) -> Context:
    return Context(bound or binding(), observer or Observer(), FakeClock(tick=1.0))


def layout(stream: pa.Schema = STREAM, master: Any = None) -> TupleLayout:
    return TupleLayout(binding(master, stream), stream)


def slice_of(batch: pa.RecordBatch, shared: Context) -> Slice:
    return Slice(batch, shared, TupleLayout(shared.binding, batch.schema))


def intake_and_output(shared: Context, rows: int = 100) -> tuple[Intake, Output]:
    """Room for ``rows`` output rows of 50 bytes."""
    intake, output = Intake(shared), Output(shared)
    intake.layout = TupleLayout(shared.binding, shared.binding.stream_schema)
    output.allocate(2 * 50 * rows, rows, 50)
    return intake, output


def emitted(output: Output) -> list[dict[str, Any]]:
    """All rows that are ready, in order."""
    rows: list[dict[str, Any]] = []
    while output:
        rows += output.pop().to_pylist()
    return rows


def table_shape(pages: int = 100, page_bytes: int = 4096, **changes: Any) -> TableShape:
    """A table of int64 keys and texts of about 40 bytes."""
    shape = TableShape(
        num_pages=pages,
        num_rows=80 * pages,
        unique=True,
        ordered=True,
        exact=True,
        int64_key=True,
        index_bytes=9 * pages,
        max_page_bytes=page_bytes,
        max_row_bytes=90,
        row_bytes=50.0,
        output_types=(pa.string(),),
        cached_types=(pa.string(),),
        continues=np.zeros(pages, np.bool_),
        buffer_bytes=lambda n: n * page_bytes,
        can_prefetch=True,
        can_address=True,
    )
    return replace(shape, **changes)


def stream_shape(batch: pa.RecordBatch, master: Any = None) -> StreamShape:
    """The shape of a stream as derived from this first batch."""
    bound = TupleLayout(binding(master, batch.schema), batch.schema)
    widest = sum(32 for _ in batch.schema) + max(map(len, map(str, batch.to_pylist())), default=0)
    return StreamShape.of(batch, bound).with_widest(widest)
