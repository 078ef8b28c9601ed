"""Tables with history: the end of validity on disk, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.keys import codec
from semistream.master import replaced
from semistream.master.history import END_COLUMN
from semistream.master.page_spec import PageSpec


def ends(table: Any) -> list[tuple[Any, ...]]:
    """Key, begin and end of every row, in the order of the pages."""
    rows = [row for batch in table.coded_batches() for row in batch.to_pylist()]
    return [(row["k"], row["since"], row[END_COLUMN]) for row in rows]


def rows(*values: tuple[Any, int]) -> pa.Table:
    return pa.table({"k": [k for k, _ in values], "since": [since for _, since in values]})


def test_a_row_ends_where_the_next_begins(tmp_path: Path) -> None:
    data = rows((1, 30), (2, 5), (1, 10))
    table = ss.MasterTable.build(data, tmp_path / "t", key="k", history="since")
    assert ends(table) == [(1, 10, 30), (1, 30, None), (2, 5, None)]
    late = table.upsert(rows((1, 20)))  # between the two others
    assert ends(late) == [(1, 10, 20), (1, 20, 30), (1, 30, None), (2, 5, None)]
    newest = late.upsert(rows((2, 9), (1, 10)))
    assert ends(newest) == [(1, 10, 20), (1, 20, 30), (1, 30, None), (2, 5, 9), (2, 9, None)]
    assert newest.num_rows == 5
    compacted = newest.compact()
    assert ends(compacted) == ends(newest)
    assert newest.schema.names == ["k", "since"]
    assert newest.history == "since"
    assert ends(compacted.delete([1])) == [(2, 5, 9), (2, 9, None)]


def test_keys_with_the_same_hash_have_their_own_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strong = codec.hash_columns
    monkeypatch.setattr(codec, "hash_columns", lambda columns: strong(columns) & np.uint64(1))
    monkeypatch.setattr(PageSpec, "checkable", False)  # compiled checks compute the strong hash
    data = rows(*[(f"{key}", since) for key in range(6) for since in (10, 20)])
    table = ss.MasterTable.build(data, tmp_path / "t", key="k", history="since", page_bytes=200)
    table = table.upsert(rows(("3", 15), ("4", 20)))
    expected = [(f"{key}", 10, 15 if key == 3 else 20) for key in range(6)]
    expected += [(f"{key}", 20, None) for key in range(6)] + [("3", 15, 20)]
    assert sorted(ends(table), key=str) == sorted(expected, key=str)
    assert table.num_rows == 13


def test_a_key_with_many_rows_is_sorted_over_many_batches(tmp_path: Path) -> None:
    times = [(7 * i) % 5000 for i in range(5000)]
    batches = rows(*((1, t) for t in times)).to_batches(max_chunksize=100)
    table = ss.MasterTable.build(
        batches, tmp_path / "t", key="k", history="since", page_bytes=1024, memory="100kB"
    )
    assert ends(table) == [(1, t, t + 1 if t < 4999 else None) for t in range(5000)]


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (rows((1, 2), (1, 2)), {}, "two rows have the same key and since"),
        (rows((1, 2)), {"history": "begin"}, "history='begin': there is no such column"),
        (rows((1, 2)), {"history": "k"}, "is a key column"),
        (rows((1, 2)), {"unique": True}, "a key has several rows"),
        (rows((1, 2)), {"valid_to": "until"}, "valid_to='until': there is no such column"),
        (rows((1, 2)), {"history": None, "valid_to": "since"}, "needs history="),
        (pa.table({"k": [1], "since": [None]}), {}, "cast it to a timestamp"),
        (pa.table({"k": [1], "since": pa.array([None], pa.int64())}), {}, "has a null"),
        (pa.table({"k": [1], "since": ["now"]}), {}, "cast it to a timestamp, a date"),
        (
            pa.table({"k": [1], "since": [1], "until": [1.0]}),
            {"valid_to": "until"},
            "cast them to the same type",
        ),
        (pa.table({"k": [1], "since": [1], "__valid_to": [1]}), {}, "the name is reserved"),
    ],
)
def test_what_is_refused(tmp_path: Path, data: pa.Table, options: Any, words: str) -> None:
    with pytest.raises((ss.SchemaError, ss.ConfigError), match=words):
        ss.MasterTable.build(data, tmp_path / "t", key="k", **{"history": "since", **options})


def test_as_of_needs_a_table_with_history(tmp_path: Path) -> None:
    table = ss.MasterTable.build(rows((1, 2)), tmp_path / "t", key="k")
    with pytest.raises(ss.ConfigError, match="the master table has no history"):
        ss.join("sweepjoin", memory="1MB").open(table, on="k", as_of="t")


def test_a_time_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    table = ss.MasterTable.build(rows((1, 2)), tmp_path / "t", key="k", history="since")
    with ss.join("sweepjoin", memory="1MB").open(table, on="k", as_of="t") as run:
        with pytest.raises(ss.SchemaError, match="cannot be compared; cast one of them"):
            run.push(pa.RecordBatch.from_pydict({"k": [1], "t": [1.5]}))
        found = [*run.push(pa.RecordBatch.from_pydict({"k": [1], "t": [2]})), *run.flush()]
        assert sum(some.num_rows for some in found) == 1


def test_an_upsert_is_compared_with_the_rows_of_its_pages_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All changes against every page would be quadratic: 3,000 rows times hundreds of pages."""
    compared: list[int] = []
    identities = replaced._identities
    monkeypatch.setattr(
        replaced, "_identities", lambda *of: compared.append(len(of[0])) or identities(*of)
    )
    data = rows(*[(key, since) for key in range(3_000) for since in (10, 20)])
    table = ss.MasterTable.build(data, tmp_path / "t", key="k", history="since", page_bytes=512)
    assert table.num_pages > 100
    changed = table.upsert(rows(*[(key, 20 if key % 2 else 15) for key in range(3_000)]))
    assert changed.num_rows == 7_500
    assert sum(compared) < 12_000


def test_a_version_with_another_begin_of_validity_is_refused(tmp_path: Path) -> None:
    data = pa.table({"k": [1, 1], "a": [1, 10], "b": [5, 2]})
    table = ss.MasterTable.build(data, tmp_path / "t", key="k", history="a")
    tuples = pa.record_batch({"k": [1], "t": [3]})
    with ss.join("meshjoin", memory="1MB").open(table, on="k", as_of="t") as run:
        ss.MasterTable.build(data, tmp_path / "t", key="k", history="b", overwrite=True)
        with pytest.raises(ss.SchemaError, match="not valid from the column 'a'"):
            list(run.push(tuples))
        run.use(1)
        assert [batch["b"].to_pylist() for batch in run.flush()] == [[5]]
