"""Tables, streams and machines for the tests of the cost models."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import semistream as ss
from engine.kit import STREAM, stream_shape, table_shape
from semistream.cost import Case, Machine, Traffic, zipf
from semistream.engine.shape import TableShape

ROW = 120
PAGE = 32 << 10


def table(rows: int, page_bytes: int = PAGE, **changes: Any) -> TableShape:
    """A table of rows of 120 bytes, as in the papers."""
    per_page = page_bytes // ROW
    pages = -(-rows // per_page)
    return table_shape(
        pages,
        page_bytes,
        num_rows=rows,
        row_bytes=float(ROW),
        max_row_bytes=ROW,
        can_copy_rows=True,
        **changes,
    )


def papers_machine(seek: float = 8e-3, bandwidth: float = 50e6) -> Machine:
    """One spinning disk, nothing cached: the machine of the papers."""
    sizes = [1 << bits for bits in range(12, 28, 2)]
    disk = tuple((size, 1, seek + size / bandwidth) for size in sizes)
    return Machine(disk=disk, is_cached=False, origin="a disk of 2011")


STREAM_SHAPE = stream_shape(pa.record_batch({"k": [1], "a": [2]}, schema=STREAM))


def case(
    name: str,
    memory: int | str,
    rows: int = 2_000_000,
    exponent: float = 1.0,
    *,
    clustered: bool = True,
    machine: Machine | None = None,
    absent: float = 0.0,
    push: int = 50_000,
    drained: bool = False,
    **options: Any,
) -> Case:
    """A join on a table of the papers' shape."""
    keys = zipf(rows, exponent)
    traffic = Traffic(keys, clustered, absent, push, drained)
    join = ss.join(name, memory=memory, **options)
    return Case(join, table(rows), STREAM_SHAPE, traffic, machine or Machine())
