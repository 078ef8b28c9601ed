"""Small streams and tables for the tests of overload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import naive
import semistream as ss
from harness import build, check_books

STREAM = pa.schema([("n", pa.int64()), ("k", pa.int64())])
MASTER = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("text", pa.string())])


def master_rows(keys: Iterable[int], mark: int = 0) -> pa.Table:
    rows = [{"k": key, "v": mark + key, "text": f"row {key}" * (key % 3)} for key in keys]
    return pa.Table.from_pylist(rows, MASTER)


def table(folder: Path, keys: Iterable[int] = range(400), page_bytes: int = 512) -> Any:
    return build(folder / "table", master_rows(keys), ["k"], unique=True, page_bytes=page_bytes)


def batch(keys: Sequence[int | None], first: int = 0) -> pa.RecordBatch:
    rows = [{"n": first + i, "k": key} for i, key in enumerate(keys)]
    return pa.RecordBatch.from_pylist(rows, STREAM)


def joined(batches: Iterable[pa.RecordBatch], keys: Iterable[int], how: str) -> naive.Rows:
    stream = pa.Table.from_batches(list(batches), STREAM)
    return naive.join(stream, master_rows(keys), "k", how)


def all_of(run: Any, rows: Iterable[pa.RecordBatch]) -> naive.Rows:
    """The rows, with the books checked at every batch."""
    found: naive.Rows = []
    for part in rows:
        check_books(run)
        found += naive.rows_of([part])
    check_books(run)
    return found


def numbers(rows: naive.Rows) -> list[int]:
    return sorted(row[0] for row in rows)


def shedding_run(
    master: Any,
    store: Path,
    mode: str = "considering",
    algorithm: str = "sweepjoin",
    memory: int = 90_000,
    buffer: int = 20_000,
    how: str = "inner",
    **options: Any,
) -> Any:
    join = ss.join(algorithm, memory=memory, how=how)
    folder = None if mode == "off" else store
    shedding = ss.Shedding(mode, store=folder, **options)
    return join.open(master, on="k", shedding=shedding, buffer=buffer)


def crash(run: Any) -> None:
    """The process dies: locks are gone, nothing else is done."""
    while hasattr(run, "inner"):
        if run._store is not None:
            run._store.close()
        run = run.inner
    run.close()
