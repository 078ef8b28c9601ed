"""Synthetic master relations of any size and row width, as Arrow batches.

The papers' R has rows of 120 bytes with an integer key. Ours is a product catalogue, which makes
examples readable. Generation is fast (millions of rows per second): a relation of 20 million rows
takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream import kernels
from semistream.errors import ConfigError
from semistream.workload.checks import integer
from semistream.workload.seeds import stream_key

SCHEMA = pa.schema(
    [
        pa.field("product_id", pa.int64(), nullable=False),
        pa.field("price", pa.float64(), nullable=False),
        pa.field("supplier_id", pa.int32(), nullable=False),
        pa.field("category", pa.int32(), nullable=False),
        pa.field("description", pa.string(), nullable=False),
    ]
)
FIXED_BYTES = 8 + 8 + 4 + 4 + 4  # the columns above, with one offset per description
SUPPLIERS = 10_000
CATEGORIES = 100
_WORDS = (
    "amber basic classic compact cotton daily double extra fine fresh gentle golden grand green "
    "heavy large light linen long matte mild modern natural neat new oak organic pale plain pure "
    "quick quiet rapid red round royal sharp short silver simple slim small smooth soft solid "
    "spare steel strong sturdy sweet swift tall thick thin tiny vivid warm white wide wild "
)


def products(
    rows: int,
    row_bytes: int = 113,
    seed: int = 0,
    *,
    shuffled: bool = False,
    stride: int = 1,
    copies: int = 1,
    batch_rows: int = 65_536,
) -> pa.RecordBatchReader:
    """A product catalogue as a reader of record batches.

    Parameters
    ----------
    rows
        Total number of rows.
    row_bytes
        Bytes of one row in Arrow memory; the description is padded to reach it.
    seed
        The same seed gives the same bytes.
    shuffled
        Rows in seeded random order instead of key order.
    stride
        The keys are stride, 2 * stride, 3 * stride, ...; above 1 the key range has gaps.
    copies
        Rows per key (the N of Naeem et al., *Skewed Distributions in Semi-Stream Joins*,
        section 5.2, temporal locality). The copies share the price and differ in the rest.
    batch_rows
        Rows per record batch.

    >>> batch = next(iter(products(1000, batch_rows=1000)))
    >>> batch.num_rows, round(batch.nbytes / batch.num_rows)
    (1000, 113)
    """
    rows = integer("rows", rows, 0, 2**40)
    row_bytes = integer("row_bytes", row_bytes, FIXED_BYTES, 65_536)
    stride = integer("stride", stride, 1, 2**20)
    copies = integer("copies", copies, 1)
    batch_rows = integer("batch_rows", batch_rows, 1)
    if batch_rows * row_bytes >= 2**31:
        raise ConfigError(
            f"batch_rows={batch_rows} of {row_bytes} bytes exceed 2 GB; "
            f"use batch_rows={2**31 // row_bytes - 1} at most"
        )
    stream_key(seed, "check")  # raise for a bad seed now, not at the first batch
    batches = _batches(rows, row_bytes, seed, shuffled, stride, copies, batch_rows)
    return pa.RecordBatchReader.from_batches(SCHEMA, batches)


def price_of(product_ids: npt.ArrayLike, seed: int = 0) -> npt.NDArray[np.float64]:
    """The prices that :func:`products` generates for these keys, to check a join.

    >>> first = next(iter(products(3)))
    >>> price_of([1, 2, 3]).tolist() == first["price"].to_pylist()
    True
    """
    keys = np.ascontiguousarray(product_ids, np.int64)
    out = np.empty(keys.size, np.float64)
    kernels.workload_rows.prices(keys.reshape(-1), out, stream_key(seed, "price"))
    return out.reshape(keys.shape)


def product_rows(product_ids: npt.ArrayLike, row_bytes: int = 113, seed: int = 0) -> pa.RecordBatch:
    """The rows that :func:`products` generates for these keys, to check every column of a join.

    Only for the default catalogue: one row per key, no gaps between the keys.

    >>> first = next(iter(products(3)))
    >>> product_rows([3, 1]).equals(first.take(pa.array([2, 0])))
    True
    """
    row_bytes = integer("row_bytes", row_bytes, FIXED_BYTES, 65_536)
    ids = np.ascontiguousarray(product_ids, np.int64)
    return _rows(ids, ids, row_bytes, seed)


def _batches(
    rows: int, row_bytes: int, seed: int, shuffled: bool, stride: int, copies: int, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    from semistream.kernels import workload as keys_kernels

    order_key = stream_key(seed, "row order")
    for start in range(0, rows, batch_rows):
        count = min(batch_rows, rows - start)
        numbers = np.arange(start + 1, start + count + 1, dtype=np.int64)
        if shuffled:
            keys_kernels.scatter_ranks(numbers, numbers, order_key, np.int64(rows))
        ids = ((numbers - 1) // copies + 1) * stride if copies > 1 else numbers * stride
        yield _rows(ids, numbers, row_bytes, seed)


def _rows(
    ids: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], row_bytes: int, seed: int
) -> pa.RecordBatch:
    width, count = row_bytes - FIXED_BYTES, ids.size
    text = np.frombuffer(_WORDS.encode() * (2 + width // len(_WORDS)), np.uint8)
    word_starts = np.flatnonzero(text[: len(_WORDS)] == ord(" ")) + 1
    prefix = np.frombuffer(b"product ", np.uint8)
    suppliers, categories = np.empty(count, np.int32), np.empty(count, np.int32)
    kernels.workload_rows.product_attributes(
        numbers, suppliers, SUPPLIERS, categories, CATEGORIES, stream_key(seed, "attributes")
    )
    lines = np.empty((count, width), np.uint8)
    text_key = stream_key(seed, "description")
    kernels.workload_rows.descriptions(ids, numbers, lines, prefix, text, word_starts, text_key)
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32) if width else None
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids),
            pa.array(price_of(ids, seed)),
            pa.array(suppliers),
            pa.array(categories),
            _strings(offsets, lines, count),
        ],
        schema=SCHEMA,
    )


def _strings(
    offsets: npt.NDArray[np.int32] | None, lines: npt.NDArray[np.uint8], count: int
) -> pa.Array:
    if offsets is None:
        offsets = np.zeros(count + 1, np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(lines))
