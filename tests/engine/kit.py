"""Building blocks for unit tests of the engine: tiny in-memory tables, hand-made shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

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
from semistream.master.codes import KeyCodes
from semistream.master.index import PageIndex
from semistream.testing import FakeClock

STREAM = pa.schema([("k", pa.int64()), ("a", pa.int64())])
MASTER = pa.schema([("k", pa.int64()), ("v", pa.string())])


class MemoryRead(NamedTuple):
    """A planned read."""

    pages: Any
    sizes: Any  # bytes


class MemoryReader:
    """Pages of a list. ``fail`` makes the next reads of these pages raise."""

    def __init__(self, source: MemoryPages, pages: int) -> None:
        self._source = source
        self._most = pages
        self.bytes_read = 0
        self.is_closed = False
        self.in_flight = False
        self.prefetched: list[list[int]] = []

    @property
    def nbytes(self) -> int:
        return self._source.buffer_bytes(self._most, False)

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        assert count <= self._most
        self._arrive(range(first, first + count))
        pages = self._source.pages[first : first + count]
        self.bytes_read += sum(page.nbytes for page in pages)
        return pages

    def _arrive(self, pages: Iterable[int]) -> None:
        self.in_flight = False
        for page in pages:
            if page in self._source.fail:
                self._source.fail.remove(page)
                raise OSError(f"page {page} cannot be read")

    def plan(self, pages: Any) -> MemoryRead:
        some = pages[: self._most]
        return MemoryRead(some, np.array([self._source.bytes_of(page) for page in some]))

    def prefetch(self, read: MemoryRead) -> None:
        self.prefetched.append(read.pages.tolist())
        self.in_flight = True

    def load(self, read: MemoryRead) -> Any:
        """The address of each page, if the source can address them."""
        self._arrive(read.pages.tolist())
        self.bytes_read += int(read.sizes.sum())
        self._source.loaded.append(read.pages.tolist())
        return np.array([self._source.messages[page].address for page in read.pages])

    def frames(self, count: int) -> MemoryFrames:
        self._source.readers.append(MemoryFrames(self._source, count))
        return self._source.readers[-1]

    def more_readers(self, count: int) -> list[MemoryReader]:
        return [MemoryReader(self._source, self._most) for _ in range(count)]

    def close(self) -> None:
        self.is_closed = True


class MemoryFrames(MemoryReader):
    """As a table's reader with frames, without the frames."""

    def load(self, frames: Any, pages: Any) -> Any:
        assert len(set(frames.tolist())) == len(pages) <= self._most
        read = MemoryReader.plan(self, pages)
        return MemoryReader.load(self, read), read.sizes


@dataclass
class MemoryPages:
    """A page source in memory: sorted record batches.

    With ``can_address`` their rows are in the order of codes, and readers return the addresses
    of serialized pages.
    """

    pages: list[pa.RecordBatch]
    key: tuple[str, ...] = ("k",)
    unique: bool = True
    fail: list[int] = field(default_factory=list)
    version: int = 1
    ordered: bool = True
    mapped: bool = False
    can_address: bool = False
    can_copy_rows: bool = False
    column_bytes: dict[str, float] | None = None
    pinned: bool = False
    versions: dict[int, MemoryPages] = field(default_factory=dict, repr=False)  # shared by all
    changed: list[Any] | None = None  # codes, since any version before
    page_bytes: int = 0  # if more than those of the largest page

    def __post_init__(self) -> None:
        self.versions[self.version] = self
        self.schema = self.page_schema = self.pages[0].schema
        self.num_pages = len(self.pages)
        self.num_rows = sum(page.num_rows for page in self.pages)
        self.max_page_bytes = max(self.page_bytes, *(page.nbytes for page in self.pages))
        self.max_row_bytes = 64
        self.row_bytes = 16.0
        self.readers: list[MemoryReader] = []
        self.loaded: list[list[int]] = []  # page numbers of every read by address
        self.code_column: str | None = None
        codec = KeyCodec.for_types([self.schema.field(name).type for name in self.key], self.key)
        keys = [codec.sortable([page.column(name) for name in self.key]) for page in self.pages]
        if self.can_address:
            codes = KeyCodes(self.schema, self.key)
            self.page_schema, self.code_column = codes.schema, codes.column
            self.messages = [codes.add(page).serialize() for page in self.pages]
            keys = [codes.compute(page) for page in self.pages]
            assert all((np.diff(page) >= 0).all() for page in keys)
        firsts = np.array([page[0] for page in keys], dtype=keys[0].dtype)
        shared = [a[-1] == b[0] for a, b in pairwise(keys)]
        continues = np.array([*shared, False])
        by_code = self.can_address or codec.exact
        self.index = PageIndex(codec, firsts, continues, by_code=by_code)

    def bytes_of(self, page: int) -> int:
        return int(self.messages[page].size if self.can_address else self.pages[page].nbytes)

    def can_prefetch(self, direct: bool) -> bool:
        return True

    def buffer_bytes(self, pages: int, direct: bool) -> int:
        return pages * self.max_page_bytes

    def reader(self, pages: int = 1, direct: bool = False) -> MemoryReader:
        self.readers.append(MemoryReader(self, pages))
        return self.readers[-1]

    def newest_version(self) -> int:
        return max(self.versions)

    def at_version(self, version: int, awaited: int = 0) -> MemoryPages:
        return self.versions[version]

    @property
    def distinct(self) -> bool:
        return self.unique

    def changed_codes(self, since: int) -> Iterator[Any] | None:
        return None if self.changed is None else iter(self.changed)

    def changed_since(self, other: Any) -> Iterator[Any] | None:
        return self.changed_codes(other.version)

    def pages_shared_with(self, other: Any) -> int:
        return 0

    def publish(self, pages: list[pa.RecordBatch], **changes: Any) -> MemoryPages:
        """The next version, with these pages."""
        return replace(self, pages=pages, version=self.newest_version() + 1, **changes)


def pages_of(
    keys: Sequence[Sequence[Any]], kind: pa.DataType | None = None, **options: Any
) -> MemoryPages:
    """Pages with these keys; the value of a row consists of its key and its position."""
    if options.get("can_address"):
        keys = in_order_of_codes(keys, kind)
    pages = [
        pa.record_batch(
            {"k": pa.array(page, kind), "v": [f"{key}/{row}" for row, key in enumerate(page)]}
        )
        for page in keys
    ]
    flat = [key for page in keys for key in page]
    return MemoryPages(pages, unique=len(set(flat)) == len(flat), **options)


def in_order_of_codes(keys: Sequence[Sequence[Any]], kind: pa.DataType | None) -> list[list[Any]]:
    """The same keys in pages of the same sizes, in the order of their codes."""
    flat = pa.array([key for page in keys for key in page], kind)
    codes, _ = KeyCodec.for_types([flat.type], ("k",)).codes([flat])
    ordered = flat.take(pa.array(np.argsort(codes, kind="stable"))).to_pylist()
    bounds = np.cumsum([0, *map(len, keys)]).tolist()
    return [ordered[a:b] for a, b in pairwise(bounds)]


@dataclass(frozen=True)
class Side:
    """The master's side of a binding, without pages."""

    schema: pa.Schema = MASTER
    key: tuple[str, ...] = ("k",)
    code_column: str | None = None


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
        by_code=True,
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
