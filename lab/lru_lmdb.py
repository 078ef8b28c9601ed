"""The usual alternative: an LRU dictionary in front of LMDB, one look-up per tuple.

LMDB is the fastest embedded key-value store for point reads that PyPI offers; an
``OrderedDict`` is the LRU that the standard library offers. The value is the row without its
key: price, supplier, category, then the description.

Two forms are measured:

- ``decoded``: the dictionary holds rows as Python tuples; the output columns are lists.
- ``packed``: the dictionary holds the bytes that LMDB returned; a batch of them is joined and
  cut into columns by NumPy. It relies on the description's fixed width in this data set.

Equal memory: the dictionary may hold as many rows as fit the budget, counting the objects of a
row as CPython allocates them and the dictionary's own table and list nodes as they are after
heavy replacement (:func:`capacity`). LMDB's own memory is the page cache, which is not counted.
:meth:`LruLmdb.drop_rows` takes it away, for a comparison with direct I/O.
"""

from __future__ import annotations

import os
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab import page_cache

HEADER = struct.Struct("<dii")
_PAGE = 4096  # bytes of a page of LMDB; its flags are the sixth 16-bit number
_FLAGS, _BRANCH, _META = 5, 0x01, 0x08


def build(batches: Iterator[pa.RecordBatch], path: Path, nbytes: int) -> None:
    """Write products, which come in key order, into a new LMDB at ``path``."""
    import lmdb

    env = lmdb.open(
        str(path), map_size=2 * nbytes + 2**28, sync=False, metasync=False, writemap=True
    )
    with env:
        for batch in batches:
            width = len(batch.column(4)[0].as_py())
            rows = np.empty(batch.num_rows, row_type(width))
            for name in ("price", "supplier_id", "category"):
                rows[name] = batch[name].to_numpy()
            rows["description"] = np.frombuffer(batch["description"].buffers()[2], f"S{width}")
            values, keys = rows.tobytes(), key_bytes(batch["product_id"].to_numpy())
            size = rows.itemsize
            items = (
                (keys[8 * i : 8 * i + 8], values[size * i : size * i + size])
                for i in range(batch.num_rows)
            )
            with env.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti(items, append=True)
        env.sync(True)


def row_type(width: int) -> np.dtype[Any]:
    """NumPy's view of one stored value."""
    return np.dtype(
        [
            ("price", "<f8"),
            ("supplier_id", "<i4"),
            ("category", "<i4"),
            ("description", f"S{width}"),
        ]
    )


def key_bytes(keys: npt.NDArray[np.int64]) -> bytes:
    """Big-endian, so that LMDB's byte order is key order."""
    return keys.astype(">i8").tobytes()


def allocated(*objects: object) -> int:
    """Bytes that CPython takes for these objects: with their GC headers, rounded up to 16."""
    total = 0
    for item in objects:
        size = sys.getsizeof(item)  # includes the GC header
        total += -(-size // 16) * 16
    return total


def capacity(budget: int, row_bytes: int) -> int:
    """How many rows of ``row_bytes`` (objects and key) an LRU may hold within the budget.

    The dictionary's table grows in doublings, so its share is measured on a
    dictionary of that many entries, all of them replaced once, as in a running cache.
    """
    rows = budget // (row_bytes + 200)
    for _ in range(8):
        rows = max(1, rows)
        fits = (budget - _table_bytes(rows)) // row_bytes
        if fits >= rows and fits - rows < max(1, rows // 100):
            break
        rows = (rows + fits) // 2 if fits > 0 else rows // 2
    while rows > 1 and _table_bytes(rows) + rows * row_bytes > budget:
        rows = int(rows * 0.97)
    return max(1, rows)


def _table_bytes(rows: int) -> int:
    table: OrderedDict[int, None] = OrderedDict()
    for key in range(2 * rows):
        table[key] = None
        if len(table) > rows:
            table.popitem(last=False)
    return sys.getsizeof(table)


def inner_pages(file: Path) -> npt.NDArray[np.int64]:
    """The offsets of an LMDB's pages that have no rows: its meta pages and branches."""
    numbers = np.memmap(file, "<u2", "r")
    whole = len(numbers) // (_PAGE // 2)
    flags = numbers[: whole * (_PAGE // 2)].reshape(whole, _PAGE // 2)[:, _FLAGS]
    return np.flatnonzero(flags & (_BRANCH | _META)) * _PAGE


class LruLmdb:
    """The alternative as a user would write it; without a budget, LMDB is asked for every tuple."""

    def __init__(self, path: Path, budget: int | None, form: str, width: int) -> None:
        self._path = path
        self._open()
        self._inner: Any = None  # offsets of pages without rows; None: not known yet
        self._form = form
        self._type = row_type(width)
        sample = self._txn.cursor()
        sample.first()
        row = self._decode(sample.value()) if form == "decoded" else sample.value()
        parts = (row, *row) if isinstance(row, tuple) else (row,)
        self.row_bytes = allocated(*parts, 2**40)
        self.capacity = 0 if budget is None else capacity(budget, self.row_bytes)
        self._cache: OrderedDict[int, Any] = OrderedDict()
        self.hits = 0

    @property
    def full(self) -> bool:
        """Whether the cache has reached its capacity: it is fully warm."""
        return len(self._cache) >= self.capacity

    def _open(self) -> None:
        import lmdb

        self._env = lmdb.open(str(self._path), readonly=True, lock=False, readahead=False)
        self._txn = self._env.begin()

    def close(self) -> None:
        self._txn.abort()
        self._env.close()

    def drop_rows(self) -> int:
        """Drop all pages with rows from the page cache; returns the bytes of them that are left.

        The inner pages of the tree are read back: they are LMDB's index, and joins that read with
        direct I/O have theirs in memory, too. LMDB is closed meanwhile, as mapped pages stay.
        """
        self.close()
        file = self._path / "data.mdb"
        if self._inner is None:
            self._inner = inner_pages(file)
        page_cache.drop(self._path)
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # none of their neighbours
            for offset in self._inner.tolist():
                os.posix_fadvise(descriptor, offset, _PAGE, os.POSIX_FADV_WILLNEED)
            for offset in self._inner.tolist():
                os.pread(descriptor, _PAGE, offset)
        finally:
            os.close(descriptor)
        left = page_cache.cached(file) - _PAGE * len(self._inner)
        self._open()
        return left

    def push(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Join one batch; every key is assumed to match, as in this benchmark."""
        keys = batch["product_id"].to_numpy()
        rows = self._look_up(keys.tolist(), key_bytes(keys))
        columns = self._decoded(rows) if self._form == "decoded" else self._packed(rows)
        names = [*batch.schema.names, "price", "supplier_id", "category", "description"]
        return pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)

    def _look_up(self, keys: list[int], raw: bytes) -> list[Any]:
        cache, most = self._cache, self.capacity
        get: Callable[[bytes], Any] = self._txn.get
        decode = self._decode if self._form == "decoded" else None
        if not most:
            found = [get(raw[i : i + 8]) for i in range(0, len(raw), 8)]
            return found if decode is None else [decode(row) for row in found]
        rows: list[Any] = []
        hits = 0
        for i, key in enumerate(keys):
            row = cache.get(key)
            if row is None:
                row = get(raw[8 * i : 8 * i + 8])  # never None: every key matches here
                if decode is not None:
                    row = decode(row)
                cache[key] = row
                if len(cache) > most:
                    cache.popitem(last=False)
            else:
                hits += 1
                cache.move_to_end(key)
            rows.append(row)
        self.hits += hits
        return rows

    @staticmethod
    def _decode(value: bytes) -> tuple[Any, ...]:
        return (*HEADER.unpack_from(value), value[HEADER.size :].decode())

    def _decoded(self, rows: list[Any]) -> list[pa.Array]:
        prices, suppliers, categories, texts = zip(*rows, strict=True)
        return [
            pa.array(prices, pa.float64()),
            pa.array(suppliers, pa.int32()),
            pa.array(categories, pa.int32()),
            pa.array(texts, pa.string()),
        ]

    def _packed(self, rows: list[Any]) -> list[pa.Array]:
        table = np.frombuffer(b"".join(rows), self._type)
        width = self._type["description"].itemsize
        text = np.ascontiguousarray(table["description"])
        offsets = np.arange(0, (len(rows) + 1) * width, width, dtype=np.int32)
        fixed = [
            pa.array(np.ascontiguousarray(table[name]))
            for name in ("price", "supplier_id", "category")
        ]
        strings = pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(text))
        return [*fixed, strings]
