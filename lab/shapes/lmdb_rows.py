"""An LRU dictionary in front of LMDB for tables of any shape: the alternative, with packed rows.

As in :mod:`lab.lru_lmdb`: the dictionary holds the bytes that LMDB returned, and the rows of a
batch are cut into columns by NumPy. Keys are integers where one integer is the key, otherwise
bytes. The rows of a key are one value, one after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from lab.lru_lmdb import allocated, capacity
from lab.shapes.catalogue import Shape
from lab.shapes.keys import Numbers

LMDB_OVERHEAD = 64  # bytes per entry, generously: the map's size is only a limit


def build(shape: Shape, chunks: Iterable[Numbers], path: Path, nbytes: int) -> None:
    """Write the newest rows of the numbers, which come in key order, into a new LMDB."""
    import lmdb

    width, size = shape.key.width, shape.payload.packed.itemsize * shape.copies
    row_bytes = shape.row_bytes() * shape.copies
    map_size = int(2 * nbytes * (1 + (LMDB_OVERHEAD + width) / row_bytes)) + 2**28
    env = lmdb.open(str(path), map_size=map_size, sync=False, metasync=False, writemap=True)
    with env:
        for numbers in chunks:
            keys = shape.key.to_store(shape.key.to_arrow(numbers))
            copy = np.tile(np.arange(shape.copies, dtype=np.int64), numbers.size)
            revisions = np.repeat(shape.revisions(numbers), shape.copies)
            repeated = np.repeat(numbers, shape.copies)
            values = shape.payload.pack(shape.row_numbers(repeated, copy, revisions))
            items = (
                (keys[width * i : width * i + width], values[size * i : size * i + size])
                for i in range(numbers.size)
            )
            with env.begin(write=True) as txn, txn.cursor() as cursor:
                consumed, added = cursor.putmulti(items, append=True)
            if added != numbers.size:
                raise RuntimeError(f"LMDB took {added} of {consumed} keys: they are not in order")
        env.sync(True)


class LruLmdbRows:
    """The alternative as a user would write it for this shape."""

    def __init__(self, shape: Shape, path: Path, budget: int) -> None:
        import lmdb

        self._shape = shape
        self._env = lmdb.open(str(path), readonly=True, lock=False, readahead=False)
        self._txn = self._env.begin()
        sample = self._txn.cursor()
        sample.first()
        key = 2**40 if shape.key.as_integers else bytes(sample.key())
        self.row_bytes = allocated(bytes(sample.value()), key)
        self.capacity = capacity(budget, self.row_bytes)
        self._cache: OrderedDict[int | bytes, bytes] = OrderedDict()
        self.hits = 0

    @property
    def full(self) -> bool:
        return len(self._cache) >= self.capacity

    def close(self) -> None:
        self._txn.abort()
        self._env.close()

    def push(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Join one batch; every key is assumed to match, as in this benchmark."""
        codec, copies = self._shape.key, self._shape.copies
        columns = [batch[name] for name in codec.names]
        stored, width = codec.to_store(columns), codec.width
        if codec.as_integers is not None:
            rows = self._integers(codec.as_integers(columns[0]).tolist(), stored)
        else:
            rows = self._bytes([stored[i : i + width] for i in range(0, len(stored), width)])
        found = self._shape.payload.unpack(b"".join(rows))
        if copies > 1:
            batch = batch.take(pa.array(np.repeat(np.arange(batch.num_rows), copies)))
        names = [*batch.schema.names, *self._shape.payload.schema.names]
        return pa.RecordBatch.from_arrays([*batch.columns, *found], names=names)

    def _integers(self, keys: list[int], stored: bytes) -> list[bytes]:
        """Look-ups by integer. The loop is written twice: a call per tuple would slow it down."""
        cache, most, get = self._cache, self.capacity, self._txn.get
        rows: list[bytes] = []
        hits = 0
        for i, key in enumerate(keys):
            row = cache.get(key)
            if row is None:
                row = get(stored[8 * i : 8 * i + 8])
                cache[key] = row
                if len(cache) > most:
                    cache.popitem(last=False)
            else:
                hits += 1
                cache.move_to_end(key)
            rows.append(row)
        self.hits += hits
        return rows

    def _bytes(self, keys: list[bytes]) -> list[bytes]:
        cache, most, get = self._cache, self.capacity, self._txn.get
        rows: list[bytes] = []
        hits = 0
        for key in keys:
            row = cache.get(key)
            if row is None:
                row = get(key)
                cache[key] = row
                if len(cache) > most:
                    cache.popitem(last=False)
            else:
                hits += 1
                cache.move_to_end(key)
            rows.append(row)
        self.hits += hits
        return rows
