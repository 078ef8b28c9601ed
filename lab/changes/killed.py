"""A sync that is killed several times, and goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import semistream as ss
from lab.changes.processes import answer, start_sync
from lab.changes.rows import RAISE, random_keys
from semistream import workload

PARTS = 0.25, 0.5, 0.75, 0.95  # of the seconds of a whole sync, after which one is killed


def killed_syncs(path: Path, world: Any, rows: int, changed: int) -> dict[str, Any]:
    """A whole sync, for its seconds; then others of as many rows, each killed at another point;
    then one that ends. Raises if the table is not in step with its source at the end."""
    keys = [random_keys(rows, changed, seed) for seed in (11, 12)]
    world.change(ss.MasterTable.open(path), keys[0])
    whole = answer(start_sync(path, world))
    world.change(ss.MasterTable.open(path), keys[1])
    before, published = ss.MasterTable.open(path).version, 0
    for part in PARTS:
        syncer = start_sync(path, world)
        assert syncer.stdout is not None
        syncer.stdout.readline()  # it begins
        time.sleep(part * whole["seconds"])
        syncer.kill()
        syncer.communicate()
        published += ss.MasterTable.open(path).version > before + published
    last = answer(start_sync(path, world))
    check(ss.MasterTable.open(path), keys, rows)
    return {"changed": len(keys[1]), "whole": whole, "kills": len(PARTS), "published": published,
            "last": last}  # fmt: skip


def check(table: ss.MasterTable, changed: list[np.ndarray], rows: int) -> None:
    """Changed products must have their new prices, and others their old ones."""
    every = np.unique(np.concatenate(changed))
    others = np.setdiff1d(random_keys(rows, 10_000, 13), every)
    for keys, surplus in ((every, RAISE), (others, 0.0)):
        found = table.lookup(keys, columns=["product_id", "price"])
        missing = np.setdiff1d(keys, found["product_id"].to_numpy())
        if len(np.setdiff1d(missing, [7])):  # PostgreSQL's table has deleted this one
            raise RuntimeError(f"{len(missing)} rows are missing")
        prices = workload.price_of(found["product_id"].to_numpy()) + surplus
        wrong = np.abs(found["price"].to_numpy() - prices) > 1e-6
        if wrong.any():
            raise RuntimeError(f"{int(wrong.sum())} of {len(keys)} rows have another price")
