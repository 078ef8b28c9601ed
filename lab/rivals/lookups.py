"""Shared by the key-value adapters: rows as packed bytes, an LRU, joining rows with sales."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lab.engine_data import ROW_BYTES
from lab.lru_lmdb import allocated, capacity, row_type
from lab.rivals.contract import Rival
from semistream.workload.relations import FIXED_BYTES

Keys = npt.NDArray[np.int64]
WIDTH = ROW_BYTES - FIXED_BYTES
ROW = row_type(WIDTH)
NAMES = ("price", "supplier_id", "category", "description")
_MOST_OVERHEAD = 250  # bytes per entry of an OrderedDict, at its lowest load factor


def pack(batch: pa.RecordBatch) -> bytes:
    """The rows without their keys, one after the other, each of the same width."""
    rows = np.empty(batch.num_rows, ROW)
    for name in NAMES[:3]:
        rows[name] = batch[name].to_numpy()
    rows["description"] = np.frombuffer(batch["description"].buffers()[2], f"S{WIDTH}")
    return rows.tobytes()


def unpacked(rows: npt.NDArray[Any]) -> list[pa.Array]:
    """Arrow columns of packed rows."""
    text = np.ascontiguousarray(rows["description"])
    offsets = np.arange(0, (rows.size + 1) * WIDTH, WIDTH, dtype=np.int32)
    fixed = [pa.array(np.ascontiguousarray(rows[name])) for name in NAMES[:3]]
    strings = pa.StringArray.from_buffers(rows.size, pa.py_buffer(offsets), pa.py_buffer(text))
    return [*fixed, strings]


def joined(batch: pa.RecordBatch, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """The batch's columns followed by R's."""
    names = [*batch.schema.names, *NAMES]
    return pa.RecordBatch.from_arrays([*batch.columns, *columns], names=names)


def put_to_sales(batch: pa.RecordBatch, found: pa.Table) -> pa.RecordBatch:
    """Join a batch with the distinct rows of R that a query returned for its keys."""
    wanted, known = batch["product_id"].to_numpy(), found["product_id"].to_numpy()
    order = np.argsort(known)
    place = np.searchsorted(known, wanted, sorter=order)
    rows = found.select(list(NAMES)).combine_chunks().take(pa.array(order[place]))
    return joined(batch, [column.combine_chunks() for column in rows.columns])


class Lru:
    """A dictionary of packed rows in front of a store, as large as the budget allows.

    ``fetch_one`` looks up one miss; ``fetch_many`` looks up all misses of a batch.
    """

    def __init__(
        self,
        budget: int,
        rows: int,
        fetch_one: Callable[[bytes], bytes],
        fetch_many: Callable[[list[bytes]], list[bytes]],
    ) -> None:
        row_bytes = allocated(bytes(ROW.itemsize), 2**40)
        fits = budget >= rows * (row_bytes + _MOST_OVERHEAD)
        self.capacity = rows if fits else capacity(budget, row_bytes)
        self._held: OrderedDict[int, bytes] = OrderedDict()
        self._fetch_one = fetch_one
        self._fetch_many = fetch_many
        self.asked = self.hits = 0

    @property
    def full(self) -> bool:
        return len(self._held) >= self.capacity

    def one_by_one(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One look-up per tuple."""
        keys = batch["product_id"].to_numpy()
        raw = keys.astype(">i8").tobytes()
        held, most, fetch = self._held, self.capacity, self._fetch_one
        rows: list[bytes] = []
        misses = 0
        for i, key in enumerate(keys.tolist()):
            row = held.get(key)
            if row is None:
                row = held[key] = fetch(raw[8 * i : 8 * i + 8])
                misses += 1
                if len(held) > most:
                    held.popitem(last=False)
            else:
                held.move_to_end(key)
            rows.append(row)
        self.asked += len(rows)
        self.hits += len(rows) - misses
        return joined(batch, unpacked(np.frombuffer(b"".join(rows), ROW)))

    def in_batches(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One look-up per distinct key; all misses of a batch together, in key order."""
        keys = batch["product_id"].to_numpy()
        distinct, place = np.unique(keys, return_inverse=True)
        raw = distinct.astype(">i8").tobytes()
        held, most = self._held, self.capacity
        wanted = distinct.tolist()
        rows: list[Any] = [held.get(key) for key in wanted]
        missed = [i for i, row in enumerate(rows) if row is None]
        found = self._fetch_many([raw[8 * i : 8 * i + 8] for i in missed])
        for i, row in zip(missed, found, strict=True):
            rows[i] = row
        for key, row in zip(wanted, rows, strict=True):
            held[key] = row
            held.move_to_end(key)
        while len(held) > most:
            held.popitem(last=False)
        self.asked += len(wanted)
        self.hits += len(wanted) - len(missed)
        return joined(batch, unpacked(np.frombuffer(b"".join(rows), ROW)[place]))

    def facts(self) -> dict[str, Any]:
        return {
            "cached_rows": self.capacity,
            "hit_rate": round(self.hits / self.asked, 4) if self.asked else None,
        }


class BehindLru(Rival):
    """A key-value store behind an LRU, which ``open`` makes: look-ups one by one, or in batches."""

    variants = ("one by one", "in batches")
    lru: Lru

    def rows(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        one_by_one = self.variant == "one by one"
        yield self.lru.one_by_one(batch) if one_by_one else self.lru.in_batches(batch)

    @property
    def warm(self) -> bool:
        return self.lru.full

    def facts(self) -> dict[str, Any]:
        return self.lru.facts()
