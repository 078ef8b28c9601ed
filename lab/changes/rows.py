"""Rows with changed prices, and the check of a join that runs meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.engine_data import ROW_BYTES
from semistream import workload

RAISE = 1_000_000.0  # added to a changed product's price, which is lower: shows what changed
_DESCRIPTION = ("a changed description of the usual length, " * 2)[: ROW_BYTES - 28]


def changed_rows(table: ss.MasterTable, keys: np.ndarray) -> pa.Table:
    """The rows of these products with other prices; everything else may be anything."""
    count = len(keys)
    columns = {
        "product_id": keys,
        "price": workload.price_of(keys) + RAISE,
        "supplier_id": np.full(count, 1, np.int32),
        "category": np.full(count, 1, np.int32),
        "description": pa.array([_DESCRIPTION] * count),
    }
    # A table that was built from a database also has the version of its rows.
    schema = pa.schema([table.schema.field(name) for name in columns])
    return pa.table(columns, schema=schema)


def random_keys(rows: int, count: int, seed: int) -> np.ndarray:
    return np.unique(np.random.default_rng(seed).integers(1, rows + 1, count))


def wrong(out: pa.RecordBatch) -> str | None:
    """The error in joined rows: a price must be the product's, from before or after its change."""
    products = out["product_id"].to_numpy()
    surplus = out["price"].to_numpy() - workload.price_of(products)
    right = (np.abs(surplus) < 1e-6) | (np.abs(surplus - RAISE) < 1e-6)
    return None if right.all() else f"{int((~right).sum())} rows with another product's price"


def compile_kernels(folder: Path) -> None:
    """Let a join follow two changes of a small table: kernels are compiled off the clock."""
    path = folder / "compiled"
    shutil.rmtree(path, ignore_errors=True)
    products = workload.products(1_000, ROW_BYTES)
    table = ss.MasterTable.build(products, path, key="product_id", unique=True)
    sales = list(workload.sales(3_000, 1_000, 1.0, batch_rows=1_000))
    with ss.join("sweepjoin", memory="1MB").open(table, on="product_id") as run:
        for number, batch in enumerate(sales):
            list(run.push(batch))
            table = table.upsert(changed_rows(table, np.arange(1, 50 // (1 + 4 * number))))
    shutil.rmtree(path)


def linked_copy(table: Path, target: Path) -> Path:
    """A copy that can be changed. Its files are links: a table never changes a file."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(table, target, copy_function=os.link)
    return target
