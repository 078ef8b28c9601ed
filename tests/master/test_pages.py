"""How pages are cut, found and read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from harness import needs_direct_io
from master.cases import numbers
from semistream.errors import ConfigError, MasterTableError
from semistream.master import MasterTable
from semistream.master.page_claims import Claims
from semistream.master.row_sizes import cumulative_bytes


def lengths(table: MasterTable) -> list[int]:
    return [int(n) for n in table.pages.pages.lengths]


def claims_of(table: MasterTable) -> Claims:
    return table.pages.segment.claims.of(np.arange(table.num_pages))


@pytest.mark.parametrize("page_bytes", [1, 700, 4_096, 65_536, 10**9])
def test_only_a_single_row_page_exceeds_the_page_size(page_bytes: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    sizes = np.where(rng.random(3_000) < 0.01, 5_000, rng.integers(0, 60, 3_000))
    data = pa.table({"id": rng.permutation(3_000), "text": ["x" * n for n in sizes]})
    table = MasterTable.build(data, tmp_path / "t", key="id", page_bytes=page_bytes)
    pages, claims = table.pages.segment.pages, claims_of(table)
    assert all(
        length <= page_bytes or rows == 1
        for length, rows in zip(pages.lengths, claims.rows, strict=True)
    )
    assert table.max_page_bytes == max(lengths(table))
    assert table.max_row_bytes == sizes.max() + 4 + 8
    if 4_096 <= page_bytes < 10**9:
        neighbours = pages.lengths[:-1] + pages.lengths[1:]
        assert np.all(neighbours > page_bytes), "pages that would fit into one were cut apart"
    reader = table.reader()
    rows = [reader.read(page)[0].num_rows for page in range(table.num_pages)]
    assert rows == claims.rows.tolist()
    assert sum(rows) == 3_000


def test_row_sizes_follow_the_bytes_on_disk() -> None:
    """The size estimate for cutting pages is close to what Arrow writes, also for slices."""
    rng = np.random.default_rng(5)
    nested = [None if i % 7 == 0 else list(range(rng.integers(0, 9))) for i in range(2_000)]
    batch = pa.record_batch(
        {
            "int": pa.array(range(2_000), pa.int16()),
            "text": ["x" * n for n in rng.integers(0, 30, 2_000)],
            "list": pa.array(nested, pa.large_list(pa.int32())),
            "struct": pa.array([{"a": 1, "b": "yy"}] * 2_000),
            "map": pa.array(
                [[("key", 1)] * (i % 3) for i in range(2_000)], pa.map_("string", "int8")
            ),
            "fixed": pa.array([[1, 2, 3]] * 2_000, pa.list_(pa.float64(), 3)),
        }
    )
    empty = pa.ipc.get_record_batch_size(pa.RecordBatch.from_pylist([], schema=batch.schema))
    for piece in (batch, batch.slice(100, 1_500), batch.slice(1_999, 1), batch.slice(5, 40)):
        # A copy: Arrow may write more than the slice's own values.
        alone = piece.take(pa.array(np.arange(piece.num_rows)))
        actual = pa.ipc.get_record_batch_size(alone) - empty
        total = cumulative_bytes(piece)
        assert len(total) == piece.num_rows + 1
        assert total[0] == 0
        assert abs(int(total[-1]) - actual) <= 40 * 8


def test_locate_without_duplicates(tmp_path: Path) -> None:
    data = pa.table({"id": np.arange(0, 10_000, 10)})
    table = MasterTable.build(data, tmp_path / "t", key="id", page_bytes=1_000)
    probes = np.arange(-20, 10_050)
    low, high = table.index.locate([pa.array(probes)])
    assert np.array_equal(low, high)
    firsts = table.pages.pages.first_codes
    assert np.array_equal(low, np.maximum(np.searchsorted(firsts, probes, "right") - 1, 0))
    assert not table.index.continues.any()
    assert table.index.nbytes == 22 * table.num_pages


def test_runs_of_equal_keys_span_pages(tmp_path: Path) -> None:
    """1 fits in a page, 5 fills many, 6 begins where 5 ends, 9 fills many again."""
    keys = [1, 2] + [5] * 500 + [6] + [9] * 300
    data = pa.table({"id": keys, "n": range(len(keys))})
    table = MasterTable.build(data, tmp_path / "t", key="id", page_bytes=1_000)
    reader = table.reader()
    pages = [reader.read(page)[0].column("id").to_pylist() for page in range(table.num_pages)]
    for key in (0, 1, 2, 3, 5, 6, 7, 9, 10):
        (low,), (high,) = table.index.locate([pa.array([key])])
        holding = [number for number, page in enumerate(pages) if key in page]
        if holding:
            assert (low, high) == (holding[0], holding[-1]), key
        else:
            assert low == high
    expected = [pages[i][-1] == pages[i + 1][0] for i in range(len(pages) - 1)] + [False]
    assert table.index.continues.tolist() == expected
    assert sum(expected) > 5


@pytest.mark.parametrize("above", ["one of the run", "after the run", "the whole run again"])
def test_deltas_on_runs_of_equal_keys(above: str, tmp_path: Path) -> None:
    keys = [1, 2] + [5] * 500 + [6] + [9] * 300 + [11]
    data = pa.table({"id": keys, "n": range(len(keys))})
    table = MasterTable.build(data, tmp_path / "t", key="id", page_bytes=1_000)
    model = {
        k: [n for key, n in zip(keys, range(len(keys)), strict=True) if key == k] for k in keys
    }
    changes = {
        "one of the run": [(5, 9_000)],
        "after the run": [(4, 9_000), (7, 9_001), (8, 9_002), (12, 9_003)],
        "the whole run again": [(3, 9_000)] + [(5, 9_001 + i) for i in range(400)] + [(6, 1)],
    }[above]
    for key in {key for key, _ in changes}:
        model[key] = [n for k, n in changes if k == key]
    table = table.upsert(pa.table({"id": [k for k, _ in changes], "n": [n for _, n in changes]}))
    table = table.delete([2, 9] if above == "after the run" else [2])
    for key in (2, 9) if above == "after the run" else (2,):
        del model[key]
    shown = table.to_table()
    expected = [(key, n) for key in sorted(model) for n in model[key]]
    assert list(zip(shown["id"].to_pylist(), shown["n"].to_pylist(), strict=True)) == expected
    assert table.num_rows == len(expected)
    reader = table.reader()
    for key, ns in model.items():
        (low,), (high,) = table.index.locate([pa.array([key])])
        found = []
        for page in range(low, high + 1):
            (batch,) = reader.read(page)
            assert pa.ipc.get_record_batch_size(batch) <= table.max_page_bytes
            found += [row["n"] for row in batch.to_pylist() if row["id"] == key]
        assert found == ns
    # a logical page needs at most one page of each segment
    assert table.max_page_bytes <= 3 * 1_000
    assert table.compact().to_table().equals(shown)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_direct_reads_equal_cached_ones(at_once: int, changed: bool, disk_path: Path) -> None:
    needs_direct_io(disk_path)
    table = MasterTable.build(numbers(5_000), disk_path / "t", key="id", page_bytes=9_000)
    if changed:
        table = table.upsert(numbers(300, start=400)).delete(list(range(2_000, 2_500)))
    cached, direct = table.reader(at_once), table.reader(at_once, direct=True)
    for first in range(0, table.num_pages, at_once):
        count = min(at_once, table.num_pages - first)
        assert direct.read(first, count) == cached.read(first, count)
    assert direct.bytes_read >= cached.bytes_read > 0


def test_adjacent_pages_are_read_with_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = MasterTable.build(numbers(5_000), tmp_path / "t", key="id", page_bytes=9_000)
    requests = []
    preadv = os.preadv

    def counted(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        requests.append(len(buffers[0]))
        return preadv(descriptor, buffers, offset)

    table.reader(5).read(2, 5)  # pages are checked when they are first read
    monkeypatch.setattr(os, "preadv", counted)
    reader = table.reader(5)
    reader.read(2, 5)
    assert requests == [reader.bytes_read]


def test_reader_contract(tmp_path: Path) -> None:
    table = MasterTable.build(numbers(5_000), tmp_path / "t", key="id", page_bytes=9_000)
    reader = table.reader(2)
    with pytest.raises(ConfigError, match="larger pages_at_once"):
        reader.read(0, 3)
    with pytest.raises(ConfigError, match=f"table of {table.num_pages} pages"):
        reader.read(table.num_pages, 1)
    with pytest.raises(ConfigError):
        table.reader(0)
    (batch,) = reader.read(0)
    kept = batch.column("id")[0].as_py()
    assert reader.nbytes >= 2 * 8_000
    reader.close()
    assert reader.nbytes == 0
    assert batch.column("id")[0].as_py() == kept, "returned batches outlive the reader"
    with pytest.raises(ConfigError, match="closed"):
        reader.read(0)


@pytest.mark.parametrize("changed", [False, True])
def test_readers_hold_no_more_than_they_report(changed: bool, tmp_path: Path) -> None:
    table = MasterTable.build(numbers(20_000), tmp_path / "t", key="id", page_bytes=30_000)
    if changed:
        table = table.upsert(numbers(5_000, start=3_000)).delete(list(range(0, 20_000, 7)))
    reader = table.reader(4)
    before = pa.total_allocated_bytes()
    highest = 0
    for first in range(0, table.num_pages - 4, 4):
        pages = reader.read(first, 4)
        highest = max(highest, pa.total_allocated_bytes() - before)
        del pages
    assert highest == 0, "nothing is copied"
    assert 4 * max(lengths(table)) <= reader.nbytes + 4_096
    assert reader.nbytes <= 3 * 4 * table.max_page_bytes


def test_a_page_is_checked_until_it_passes_once(tmp_path: Path) -> None:
    table = MasterTable.build(numbers(5_000), tmp_path / "t", key="id", page_bytes=9_000)
    file = tmp_path / "t" / table.manifest.segments[0].file
    good = file.read_bytes()
    at = int(table.pages.segment.pages.offsets[3]) + 500
    bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    reader = table.reader(2)
    file.write_bytes(bad)
    for _ in range(2):
        with pytest.raises(MasterTableError, match=rf"page 3 of .*{file.name} is damaged"):
            reader.read(2, 2)
    file.write_bytes(good)
    assert reader.read(2, 2)[1].num_rows > 0


def test_a_version_knows_which_pages_another_one_has_checked(tmp_path: Path) -> None:
    keys = list(range(2000))
    table = MasterTable.build(
        pa.table({"k": keys, "v": keys}), tmp_path / "t", key="k", page_bytes=2048
    )
    table.reader(3).read(1, 3)
    newer = table.upsert(pa.table({"k": [5, 9000], "v": [1, 2]}))
    moved = table.at_version(newer.version)
    before, checked = table.pages.segment.checked, moved.pages.segment.checked
    assert {1, 2, 3} <= set(np.flatnonzero(before).tolist()) < set(range(table.num_pages))
    assert checked.tolist() == [*before.tolist(), *[False] * (moved.num_pages - len(before))]
    rebuilt = MasterTable.build(
        pa.table({"k": keys, "v": keys}), tmp_path / "t", key="k", page_bytes=2048, overwrite=True
    )
    assert not moved.at_version(rebuilt.version).pages.segment.checked.any()
