"""Any join with a front stage works with either kind, and returns the same rows."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import build, cut, drive, takes

RNG = random.Random(1)
HOT = [RNG.choice([3, 5, 7, RNG.randrange(130)]) for _ in range(1_500)]
TABLES = {
    "unique numbers": (pa.table({"k": range(100), "v": [f"v{i}" for i in range(100)]}), HOT),
    "repeated texts": (
        pa.table({"k": [f"{i // 2:03}" for i in range(200)], "v": range(200)}),
        [f"{key:03}" for key in HOT],
    ),
}


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("caches")
    return {
        name: build(folder / name, table, ["k"], unique=name.startswith("unique"))
        for name, (table, _) in TABLES.items()
    }


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("cache", ["recorder", "counting"])
@pytest.mark.parametrize("algorithm", [a for a in ss.ALGORITHMS if takes(a, "cache")])
def test_the_same_rows_with_either_cache(
    algorithm: str, cache: str, table: str, masters: dict[str, Any]
) -> None:
    master, keys = TABLES[table]
    stream = pa.table({"k": keys, "a": range(len(keys))})
    join = ss.join(algorithm, memory=60_000, how="left", cache=cache, front_stage="6KB")
    with join.open(masters[table], on="k") as run:
        out = drive(run, cut(stream.slice(0, 700), 300))
        out += drive(run, cut(stream.slice(700), 300))
        assert run.stats.front_stage_hits > 0
    naive.same_rows(naive.rows_of(out), naive.join(stream, master, "k", "left", None))
