"""Different keys with the same code: a hash of 3 bits makes them common, and nothing changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from semistream.errors import ConfigError
from semistream.keys import codec
from semistream.master import MasterTable, verify
from semistream.master.codes import KeyCodes
from semistream.master.duplicates import RepeatedKeys
from semistream.master.page_spec import PageSpec

STRONG = codec.hash_columns
KEYS = [f"key {i}" for i in range(60)]


@pytest.fixture(autouse=True)
def _weak_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "hash_columns", lambda columns: STRONG(columns) & np.uint64(7))
    # Compiled checks compute the strong hash; Arrow's compare the codes with those of the codec.
    monkeypatch.setattr(PageSpec, "checkable", False)


def rows(*pairs: tuple[str, int]) -> pa.Table:
    keys, numbers = [key for key, _ in pairs], [number for _, number in pairs]
    return pa.table({"k": pa.array(keys, pa.string()), "n": pa.array(numbers, pa.int64())})


def contents(table: MasterTable) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in table.to_table().to_pylist():
        found.setdefault(row["k"], []).append(row["n"])
    return {key: sorted(numbers) for key, numbers in found.items()}


def check(table: MasterTable, model: dict[str, list[int]]) -> None:
    assert contents(table) == {key: sorted(numbers) for key, numbers in model.items()}
    assert table.num_rows == sum(map(len, model.values()))
    assert verify(table) == []
    shown = [set(table.index.codec.codes([b.column("k")])[0].tolist()) for b in table.batches()]
    assert set().union(*shown, set()) <= set(range(8))
    asked = [*KEYS[::3], "absent"]
    found = table.lookup(asked)
    expected = [(key, n) for key in asked for n in sorted(model.get(key, []))]
    assert sorted(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == sorted(
        expected
    )


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("page_bytes", [400, 4096])
def test_upserts_and_deletes_follow_a_dictionary(
    unique: bool, page_bytes: int, tmp_path: Path
) -> None:
    rng = random.Random(page_bytes + unique)
    number = iter(range(10**6))

    def drawn(count: int) -> list[tuple[str, int]]:
        keys = rng.sample(KEYS, count) if unique else rng.choices(KEYS, k=count)
        return [(key, next(number)) for key in keys]

    model: dict[str, list[int]] = {}
    first = drawn(40)
    for key, n in first:
        model.setdefault(key, []).append(n)
    table = MasterTable.build(
        rows(*first), tmp_path / "t", key="k", unique=unique, page_bytes=page_bytes
    )
    check(table, model)
    for _ in range(12):
        change = rng.choice(["upsert", "delete", "upsert", "delete", "compact"])
        if change == "upsert":
            some = drawn(rng.randint(0, 6))
            model = {key: ns for key, ns in model.items() if key not in dict(some)}
            for key, n in some:
                model.setdefault(key, []).append(n)
            table = table.upsert(rows(*some))
        elif change == "delete":
            gone = rng.choices(KEYS, k=rng.randint(0, 5))
            model = {key: ns for key, ns in model.items() if key not in gone}
            table = table.delete(gone)
        else:
            table = table.compact()
        check(table, model)
        assert table.distinct or not unique


def test_a_unique_table_refuses_equal_keys_but_not_equal_codes(tmp_path: Path) -> None:
    shuffled = random.Random(3).sample(KEYS, len(KEYS))
    table = MasterTable.build(
        rows(*((key, i) for i, key in enumerate(shuffled))),
        tmp_path / "t", key="k", unique=True, page_bytes=400,
    )  # fmt: skip
    assert table.num_rows == len(KEYS)
    with pytest.raises(ConfigError, match="key 7' occurs more than once"):
        MasterTable.build(
            rows(*((key, i) for i, key in enumerate([*shuffled, "key 7"]))),
            tmp_path / "u", key="k", unique=True, page_bytes=400,
        )  # fmt: skip
    with pytest.raises(ConfigError, match="key 7' occurs more than once"):
        table.upsert(rows(("key 7", 1), ("key 8", 1), ("key 7", 2)))


def test_distinct_is_measured_by_key(tmp_path: Path) -> None:
    once = rows(*((key, i) for i, key in enumerate(KEYS)))
    assert MasterTable.build(once, tmp_path / "a", key="k", page_bytes=400).distinct
    twice = pa.concat_tables([once, rows(("key 5", 1))])
    table = MasterTable.build(twice, tmp_path / "b", key="k", page_bytes=400)
    assert not table.distinct
    table = table.upsert(rows(("key 5", 2)))
    assert not table.distinct, "the base is not read again"
    assert table.compact().distinct


def test_verify_compares_keys_across_pages(tmp_path: Path) -> None:
    """Two rows of one key in different pages, with other keys of the same code between them."""
    codes = KeyCodes(rows().schema, ["k"])
    same = [key for key in KEYS if codes.codec.codes([pa.array([key])])[0][0] == 3]
    assert len(same) > 3
    repeated = RepeatedKeys(codes)

    def batches(*groups: list[str]) -> Iterator[Any]:
        for group in groups:
            (batch,) = rows(*((key, 0) for key in group)).to_batches()
            yield repeated.find(codes.add(batch))

    found = list(batches(same[:2], same[2:3], [same[3], same[0]], [same[2]]))
    assert found[:2] == [None, None]
    assert [mask.tolist() for mask in found[2:]] == [[False, True], [True]]


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
@pytest.mark.parametrize("how", ["left", "left_semi"])
def test_joins_compare_keys(algorithm: str, how: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    data = rows(*((rng.choice(KEYS[:40]), i) for i in range(60)))
    table = MasterTable.build(data, tmp_path / "t", key="k", page_bytes=400)
    table = table.upsert(rows(("key 1", 100), ("key 50", 101))).delete(["key 2", "key 3"])
    stream = pa.table({"k": rng.choices(KEYS, k=300), "at": range(300)})
    join = ss.join(algorithm, memory="2MB", how=how)
    with join.open(table, on="k") as run:
        found = [out for b in stream.to_batches(max_chunksize=70) for out in run.push(b)]
        found += list(run.flush())
    naive.same_rows(naive.rows_of(found), naive.join(stream, table.to_table(), "k", how))
