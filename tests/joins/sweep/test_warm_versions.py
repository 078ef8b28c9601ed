"""A run that moves to a new version keeps the warm part of its front stage, and its budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss

ROWS = 60_000


def products(keys: np.ndarray, price: float) -> pa.Table:
    return pa.table({"k": keys, "price": np.full(len(keys), price), "text": ["x" * 60] * len(keys)})


@pytest.mark.parametrize(
    ("join", "change"),
    [
        (ss.SweepJoin(memory="1500KB"), 50),
        (ss.SweepJoin(memory="1500KB"), 3000),  # the index outgrows the front stage's part
        (ss.SweepJoin(memory="1500KB", front_stage=0.6), 50),
        (ss.join("chybridjoin", memory="1500KB"), 50),
        pytest.param(ss.join("cmeshjoin", memory="1500KB"), 50, marks=pytest.mark.slow),
        pytest.param(ss.join("cinlj", memory="1500KB"), 50, marks=pytest.mark.slow),
    ],
    ids=["sweepjoin", "sweepjoin-large", "sweepjoin-fixed", "chybridjoin", "cmeshjoin", "cinlj"],
)
def test_hits_survive_changes_of_the_table(join: ss.Join, change: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    table = ss.MasterTable.build(
        products(np.arange(ROWS), 0.0), tmp_path / "t", "k", unique=True, page_bytes=4096
    )
    prices = np.zeros(ROWS)
    hot = chance.permutation(ROWS)

    with join.open(table, on="k") as run:

        def pushed() -> float:
            """The hit rate of one more batch, whose rows are checked."""
            keys = hot[np.minimum(chance.zipf(1.4, 4000) - 1, ROWS - 1)]
            before = run.stats.front_stage_hits
            out = pa.Table.from_batches([*run.push(pa.record_batch({"k": keys})), *run.flush()])
            assert sorted(out["k"].to_pylist()) == sorted(keys.tolist())
            assert np.array_equal(out["price"].to_numpy(), prices[out["k"].to_numpy()])
            assert sum(run.memory.values()) <= run.memory.budget
            return (run.stats.front_stage_hits - before) / len(keys)

        for _ in range(12):
            warm = pushed()
        assert warm > 0.4, "the front stage was never warm"
        after = []
        for number in range(1, 7):
            changed = np.unique(chance.choice(hot[300:], change))  # not the very hottest
            table = table.upsert(products(changed, float(number)))
            prices[changed] = number
            after.append(pushed())
            assert run.version == table.version
    # Only changed keys are dropped: a share of the table, and of the hits about the same share.
    assert min(after) > 0.85 * warm - change / ROWS, (warm, after)
