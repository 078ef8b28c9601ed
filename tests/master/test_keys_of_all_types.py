"""Build, locate, upsert, delete, compact: for every key type, against a plain model."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from master.cases import KEYS, contents, names, order, plain, rows_table
from semistream.master import MasterTable, verify

quick = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
# Thousands of small files that are synced one by one: faster in memory.
every_key = pytest.mark.parametrize("kind", list(KEYS))


def key_columns(kinds: list[pa.DataType], keys: list[Any]) -> list[pa.Array]:
    table = rows_table(kinds, [(key, 0) for key in keys])
    return [table.column(name).combine_chunks() for name in names(kinds)]


def spelled(columns: Any) -> list[tuple[Any, ...]]:
    return list(zip(*([plain(value) for value in column] for column in columns), strict=True))


def codes_of(table: MasterTable, kinds: list[pa.DataType], keys: list[Any]) -> list[int]:
    codes, valid = table.codec.codes(key_columns(kinds, keys))
    assert valid is None
    return codes.tolist()


def assert_in_code_order(table: MasterTable, kinds: list[pa.DataType], shown: list[Any]) -> None:
    """For codecs whose codes are keys, this is key order."""
    keys = [key for key, _ in shown]
    codes = codes_of(table, kinds, keys)
    assert codes == sorted(codes)
    if table.codec.exact:
        assert [order(key) for key in keys] == sorted(map(order, keys))


def visible(table: MasterTable, page: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    shown = table.index.visible(page, table.codes.stored(batch), np.array([batch.num_rows]))
    assert (shown is None) == (not table.index.has_changes)
    return batch if shown is None else batch.filter(pa.array(shown))


def check_locate(table: MasterTable, kinds: list[pa.DataType], keys: list[Any]) -> None:
    """Every page that shows a key is in the range that the index returns for it."""
    reader = table.reader()
    low, high = table.index.locate(key_columns(kinds, keys))
    places: dict[Any, list[int]] = {}
    for page in range(table.num_pages):
        (batch,) = reader.read(page)
        for row in spelled(visible(table, page, batch).select(names(kinds)).columns):
            places.setdefault(row, []).append(page)
    for i, row in enumerate(spelled(key_columns(kinds, keys))):
        found = places.get(row, [])
        assert all(low[i] <= page <= high[i] for page in found), (keys[i], found)
        assert low[i] >= 0
        assert high[i] < table.num_pages
        if not table.manifest.deltas and table.num_pages:
            assert low[i] <= high[i]
        for page in range(low[i], high[i]):
            assert table.index.continues[page]


@every_key
@quick
@given(data=st.data())
def test_a_build_holds_all_rows_in_code_order(kind: str, data: Any) -> None:
    kinds, values = KEYS[kind]
    keys = data.draw(st.lists(values, max_size=60))
    rows = [(key, n) for n, key in enumerate(keys)]
    with tempfile.TemporaryDirectory() as folder:
        table = MasterTable.build(
            rows_table(kinds, rows), folder, key=names(kinds), page_bytes=600, memory=1
        )
        assert table.num_rows == len(rows)
        shown = contents(table, len(kinds))
        assert sorted(shown, key=str) == sorted(rows, key=str)
        assert_in_code_order(table, kinds, shown)
        check_locate(table, kinds, keys + data.draw(st.lists(values, max_size=5)))
        assert verify(table) == []


@every_key
@quick
@given(data=st.data())
def test_changes_follow_a_dictionary(kind: str, data: Any) -> None:
    """A non-unique table: an upsert replaces all rows of each key that it names."""
    kinds, values = KEYS[kind]
    pool = data.draw(st.lists(values, min_size=1, max_size=12))
    some = st.lists(st.sampled_from(pool), max_size=20)
    number = iter(range(10**6))
    with tempfile.TemporaryDirectory() as folder:
        rows = [(key, next(number)) for key in data.draw(some)]
        model: dict[Any, list[int]] = {}
        for key, n in rows:
            model.setdefault(key, []).append(n)
        table = MasterTable.build(rows_table(kinds, rows), folder, key=names(kinds), page_bytes=450)
        history = [(table.version, dict(model))]
        for change in data.draw(
            st.lists(st.sampled_from(["upsert", "delete", "compact"]), max_size=5)
        ):
            before = table
            touched: set[Any] = set()
            if change == "upsert":
                rows = [(key, next(number)) for key in data.draw(some)]
                touched = {key for key, _ in rows}
                model = {key: ns for key, ns in model.items() if key not in touched}
                for key, n in rows:
                    model.setdefault(key, []).append(n)
                table = table.upsert(rows_table(kinds, rows))
            elif change == "delete":
                gone = data.draw(some)
                touched = set(gone)
                model = {key: ns for key, ns in model.items() if key not in touched}
                table = table.delete(
                    pa.table(dict(zip(names(kinds), key_columns(kinds, gone), strict=True)))
                )
            else:
                table = table.compact()
            check(table, kinds, model)
            changed = table.changed_codes(before.version)
            assert changed is not None
            listed = {code for codes in changed for code in codes.tolist()}
            assert listed == set(codes_of(table, kinds, list(touched)))
            history.append((table.version, dict(model)))
        check_locate(table, kinds, pool)
        for version, then in history:
            check(MasterTable.open(folder, version), kinds, then)
            assert verify(folder, version) == []
        table.vacuum(keep=1)
        check(MasterTable.open(folder), kinds, model)


def check(table: MasterTable, kinds: list[pa.DataType], model: dict[Any, list[int]]) -> None:
    expected = [(key, n) for key, ns in model.items() for n in ns]
    shown = contents(table, len(kinds))
    assert sorted(shown, key=str) == sorted(expected, key=str)
    assert_in_code_order(table, kinds, shown)
    assert table.num_rows == len(expected)
    reader = table.reader(pages_at_once=3)
    together = []
    for first in range(0, table.num_pages, 3):
        batches = reader.read(first, min(3, table.num_pages - first))
        assert all(pa.ipc.get_record_batch_size(b) <= table.max_page_bytes + 512 for b in batches)
        for page, batch in enumerate(batches, first):
            together += visible(table, page, batch).column("n").to_pylist()
    assert sorted(together) == sorted(n for _, n in shown)
