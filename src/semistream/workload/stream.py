"""Streams of sales as Arrow batches: who bought what, 20 bytes a tuple.

The papers' stream tuple is small (20 bytes) and its key refers to the master relation. A *key
source*, a function of (offset, n), returns the keys at those positions. Zipf is the default;
:mod:`semistream.workload.locality` has others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream import kernels
from semistream.errors import ConfigError
from semistream.workload.checks import integer, number
from semistream.workload.seeds import stream_key
from semistream.workload.zipfian import MAX_DOMAIN, zipf_at

SCHEMA = pa.schema(
    [
        pa.field("sale_id", pa.int64(), nullable=False),
        pa.field("product_id", pa.int64()),
        pa.field("quantity", pa.int32(), nullable=False),
    ]
)
KeySource = Callable[[int, int], npt.NDArray[np.int64]]


def sales(
    n: int,
    products: int,
    exponent: float = 1.0,
    seed: int = 0,
    scattered: bool = False,
    batch_rows: int = 50_000,
    unmatched: float = 0.0,
    nulls: float = 0.0,
    *,
    stride: int = 1,
    offset: int = 0,
    keys: KeySource | None = None,
) -> Iterator[pa.RecordBatch]:
    """A stream of ``n`` sales over the keys of a catalogue of ``products`` products.

    Parameters
    ----------
    n
        Number of tuples.
    products
        Number of distinct keys of the master relation.
    exponent, seed, scattered
        As in :func:`semistream.workload.zipf`.
    batch_rows
        Tuples per batch; the last batch may be shorter.
    unmatched
        Fraction of tuples whose key is not in the master: below its smallest key, above its
        largest and, if ``stride`` leaves gaps, between its keys, in equal parts.
    nulls
        Fraction of tuples whose key is null.
    stride
        The stride that the relation was made with.
    offset
        Position of the first tuple. ``sale_id`` is the position, so a replay is exact.
    keys
        Another key source; it returns keys in 1..products before ``stride`` is applied.

    >>> batch = next(sales(100_000, products=1_000, seed=7, batch_rows=50_000))
    >>> batch.num_rows, batch.nbytes / batch.num_rows
    (50000, 20.0)
    """
    n = integer("n", n, 0)
    products = integer("products", products, 1, MAX_DOMAIN)
    exponent = number("exponent", exponent, 0.0)
    batch_rows = integer("batch_rows", batch_rows, 1)
    stride = integer("stride", stride, 1, 2**20)
    offset = integer("offset", offset, 0, 2**62)
    unmatched = number("unmatched", unmatched, 0.0, 1.0)
    nulls = number("nulls", nulls, 0.0, 1.0)
    if unmatched + nulls > 1.0:
        raise ConfigError(
            f"unmatched={unmatched} and nulls={nulls} add up to more than 1; "
            "their sum must be at most 1"
        )
    stream_key(seed, "check")

    def zipf_keys(start: int, count: int) -> npt.NDArray[np.int64]:
        return zipf_at(start, count, products, exponent, seed, scattered)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(offset, offset + n, batch_rows):
            count = min(batch_rows, offset + n - start)
            found = np.asarray((keys or zipf_keys)(start, count), np.int64)
            yield _batch(start, found, products, stride, seed, unmatched, nulls)

    return batches()


def _batch(
    start: int,
    keys: npt.NDArray[np.int64],
    products: int,
    stride: int,
    seed: int,
    unmatched: float,
    nulls: float,
) -> pa.RecordBatch:
    count, position = keys.size, np.int64(start)
    quantity = np.empty(count, np.int32)
    kernels.workload_rows.quantities(quantity, stream_key(seed, "quantity"), position)
    keys = keys * stride  # a copy: the key source may reuse its array
    mask = None
    if unmatched or nulls:
        valid = np.ones(count, np.uint8)
        spoil_key = stream_key(seed, "unmatched and nulls")
        kernels.workload_rows.add_misses_and_nulls(
            keys, valid, spoil_key, position, products, stride, unmatched, nulls
        )
        mask = valid == 0 if nulls else None
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(start, start + count, dtype=np.int64)),
            pa.array(keys, mask=mask),
            pa.array(quantity),
        ],
        schema=SCHEMA,
    )
