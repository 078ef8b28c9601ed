"""Page access of SweepJoin: prefetching, reuse of readers, long visits, failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import STREAM, MemoryPages, binding, context, pages_of
from harness import needs_direct_io
from semistream.engine.plan import plan_memory
from semistream.engine.rows.page_opener import LoadedPages
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.sweep.read_ahead import ReadAhead
from semistream.joins.sweep.visit import Visit
from semistream.kernels.page_columns import copy_codes

KEYS = [[page * 10, page * 10 + 1] for page in range(8)]
NONE = np.zeros(0, np.int32)
both_kinds = pytest.mark.parametrize("can_address", [False, True], ids=["batches", "addresses"])


def reads_of(
    source: Any, ahead: int, direct: bool, pages: int = 2, stream: pa.Schema = STREAM
) -> tuple[Any, Any]:
    shared = replace(context(binding(source, stream)), direct=direct)
    table = TableShape.of(source, shared.binding, direct)
    plan = plan_memory(ss.join("sweepjoin", memory=200_000), table, StreamShape())
    plan = replace(plan, reads_ahead=ahead, buffer_pages=pages)
    return ReadAhead(shared, source, plan), shared


def visit(*pages: int) -> Visit:
    return Visit(np.array(pages, np.int64), NONE, NONE, NONE)


def codes_of(loaded: LoadedPages) -> list[int]:
    codes = np.empty(int(loaded.sizes.sum()), np.int64)
    copy_codes(loaded.codes, loaded.sizes, codes)
    return codes.tolist()


def values_of(loaded: LoadedPages, column: int = 0) -> list[Any]:
    places = np.repeat(np.arange(len(loaded.pages)), loaded.sizes)
    rows = np.concatenate([np.arange(size) for size in loaded.sizes])
    return loaded.columns.take(places, rows)[column].to_pylist()


def test_a_long_visit_is_loaded_in_parts() -> None:
    reads, shared = reads_of(pages_of(KEYS, can_address=True), 0, False)
    long = visit(3, 4, 5, 7)
    loaded = reads.load(long)
    assert loaded.pages.tolist() == [3, 4]
    assert codes_of(loaded) == [30, 31, 40, 41]
    assert values_of(loaded) == ["30/0", "31/1", "40/0", "41/1"]
    assert (long.done, long.ended) == (2, False)
    loaded = reads.load(long)
    assert (loaded.pages.tolist(), codes_of(loaded)) == ([5, 7], [50, 51, 70, 71])
    assert long.ended
    assert shared.stats.pages_read == 4


def test_pages_without_addresses_are_loaded_one_by_one_in_the_order_of_codes() -> None:
    texts = [["b", "a", "d"], ["c"]]
    source = pages_of(texts, pa.string())
    stream = pa.schema([("k", pa.string()), ("a", pa.int64())])
    reads, shared = reads_of(source, 0, False, stream=stream)
    wanted = visit(0, 1)
    for number, keys in enumerate(texts):
        loaded = reads.load(wanted)
        assert loaded.pages.tolist() == [number]
        codes, _ = shared.binding.master_codes(source.pages[number])
        assert codes_of(loaded) == sorted(codes.tolist())
        rows = np.arange(len(keys))
        found = loaded.keys.take(0 * rows, rows)[0].to_pylist()
        assert found == [keys[row] for row in np.argsort(codes)]
        assert values_of(loaded) == [f"{key}/{keys.index(key)}" for key in found]
    assert wanted.ended


@both_kinds
@pytest.mark.parametrize("direct", [False, True])
def test_visits_are_requested_in_order_up_to_a_limit(direct: bool, can_address: bool) -> None:
    source = pages_of(KEYS, can_address=can_address)
    reads, _ = reads_of(source, 2, direct)
    visits = [visit(0, 1), visit(3), visit(5, 6, 7)]
    reads.request(visits, 2)
    assert [v.reader is not None for v in visits] == [True, True, False]
    reads.request(visits, 2)
    assert visits[2].reader is None  # two are in flight
    readers = {id(v.reader): v.reader for v in visits[:2]}
    assert [a for reader in readers.values() for a in reader.prefetched] == [[0, 1], [3]]
    for number, first in enumerate((0, 3)):
        loaded = reads.load(visits[number])
        assert codes_of(loaded)[0] == 10 * first
        assert visits[number].reader is None


@both_kinds
def test_the_next_visit_is_requested_before_pages_are_opened(
    can_address: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, _ = reads_of(pages_of(KEYS, can_address=can_address), 1, True)
    visits = [visit(0, 1), visit(3), visit(5)]
    reads.request(visits, 1)
    reads.plan(visits)
    planned = visits[1].read
    assert [v.read is not None for v in visits] == [True, True, False]

    def fail(*_: Any) -> None:
        assert visits[1].reader is not None
        raise OSError("damaged")

    with monkeypatch.context() as patched:
        patched.setattr(reads, "_opened", fail)
        with pytest.raises(OSError, match="damaged"):
            reads.load(visits[0], visits[1:], 1)
    assert (visits[1].read, visits[2].reader) == (planned, None)
    assert visits[0].done == 0, "it is loaded again"
    assert codes_of(reads.load(visits[0]))[:2] == [0, 1]
    assert codes_of(reads.load(visits[1])) == [30, 31]


@both_kinds
def test_a_visit_without_pages_is_not_requested(can_address: bool) -> None:
    reads, _ = reads_of(pages_of(KEYS, can_address=can_address), 2, False)
    visits = [visit(), visit(1)]
    reads.request(visits, 2)
    assert [v.reader is not None for v in visits] == [False, True]


@both_kinds
def test_direct_reads_need_a_buffer_each(can_address: bool) -> None:
    source = pages_of(KEYS, can_address=can_address)
    reads, _ = reads_of(source, 2, True)
    visits = [visit(page) for page in range(4)]
    reads.request(visits, 9)
    assert [v.reader is not None for v in visits] == [True, True, False, False]
    assert reads.nbytes == 3 * source.buffer_bytes(2, True)
    assert reads.buffer_bytes == source.buffer_bytes(2, True)
    reads.load(visits.pop(0))
    reads.request(visits, 9)
    assert [v.reader is not None for v in visits] == [True, True, False]
    reads.close()
    assert all(reader.is_closed for reader in reads._readers)


@both_kinds
@pytest.mark.parametrize("direct", [False, True])
def test_a_failed_read_can_be_repeated(direct: bool, can_address: bool) -> None:
    source = pages_of(KEYS, can_address=can_address)
    reads, shared = reads_of(source, 1, direct)
    wanted = visit(2)
    reads.request([wanted], 2)
    source.fail = [2]
    with pytest.raises(OSError, match="page 2"):
        reads.load(wanted)
    assert shared.stats.pages_read == 0
    assert not wanted.ended
    assert codes_of(reads.load(wanted)) == [20, 21]
    following = visit(4)
    reads.request([following], 2)
    assert following.reader is not None  # no buffer was lost


def test_the_second_part_of_a_visit_can_fail_and_be_repeated() -> None:
    source = pages_of(KEYS, can_address=True)
    reads, _ = reads_of(source, 1, True)
    wanted = visit(0, 1, 2)
    reads.request([wanted], 2)
    reads.load(wanted)
    source.fail = [2]
    with pytest.raises(OSError, match="page 2"):
        reads.load(wanted)
    assert wanted.done == 2
    assert codes_of(reads.load(wanted)) == [20, 21]
    assert wanted.ended


@both_kinds
def test_without_prefetching_nothing_is_requested(can_address: bool) -> None:
    reads, _ = reads_of(pages_of(KEYS, can_address=can_address), 0, False)
    wanted = visit(0)
    reads.request([wanted], 2)
    assert wanted.reader is None


# -- pages of a table on disk ------------------------------------------------------------------


def table_of(path: Path, rows: int = 3_000) -> ss.MasterTable:
    texts = [f"value {n}" for n in range(rows)]
    data = pa.table({"k": [f"key {n}" for n in range(rows)], "v": texts, "n": range(rows)})
    return ss.MasterTable.build(data, path / "t", key="k", page_bytes=2000)


@pytest.mark.parametrize("mode", ["cached", "mapped", "resident", "direct"])
def test_visits_to_a_table(mode: str, disk_path: Path) -> None:
    """Adjacent and scattered pages, prefetched or not, with the buffer of a few pages."""
    if mode == "direct":
        needs_direct_io(disk_path)
    table = table_of(disk_path)
    table = ss.MasterTable.open(
        table.path, mapped="resident" if mode == "resident" else mode == "mapped"
    )
    batches = [table.reader().read(page)[0] for page in range(table.num_pages)]
    direct, stream = mode == "direct", pa.schema([("k", pa.string())])
    ahead = 2 if table.can_prefetch(direct) else 0
    reads, shared = reads_of(table, ahead, direct, pages=4, stream=stream)
    assert reads.ahead == ahead
    rng = np.random.default_rng(2)
    visits = [visit(*range(10, 14)), visit(0, table.num_pages - 1), visit(7)]
    for _ in range(30):
        some = rng.choice(table.num_pages, rng.integers(1, 9), replace=False)
        visits.append(visit(*sorted(some.tolist())))
    most, expected, total = 0, sum(len(v.pages) for v in visits), 0
    while visits:
        reads.request(visits[:3], 2)
        wanted = visits.pop(0)
        parts = 0
        while not wanted.ended:
            loaded = reads.load(wanted)
            parts += 1
            total += len(loaded.pages)
            pages = pa.Table.from_batches([batches[page] for page in loaded.pages])
            assert codes_of(loaded) == pages[table.code_column].to_pylist()
            for column, name in enumerate(shared.binding.master_columns):
                assert values_of(loaded, column) == pages[name].to_pylist()
            keys = replace(loaded, columns=loaded.keys)
            assert values_of(keys) == pages["k"].to_pylist()
        most = max(most, parts)
    assert mode == "resident" or most > 1  # some did not fit into the buffer at once
    assert shared.stats.pages_read == expected == total
    reads.close()


@pytest.mark.parametrize("direct", [False, True])
def test_a_truncated_table(direct: bool, disk_path: Path) -> None:
    """All pages were read before, so nothing but the length of the file shows the damage."""
    if direct:
        needs_direct_io(disk_path)
    table = table_of(disk_path)
    stream = pa.schema([("k", pa.string())])
    reads, _ = reads_of(table, 1, direct, pages=16, stream=stream)
    last = table.num_pages - 1
    whole = visit(*range(last + 1))
    while not whole.ended:
        reads.load(whole)
    segment = Path(table.pages.segment.parts[0][1])
    content = segment.read_bytes()
    segment.write_bytes(content[: int(table.pages.segment.offsets[last])])
    wanted = visit(0, 2, last)
    reads.request([wanted], 2)
    with pytest.raises(ss.MasterTableError, match=f"page {last} of .* is truncated"):
        reads.load(wanted)
    segment.write_bytes(content)
    loaded = reads.load(wanted)
    assert loaded.pages.tolist() == [0, 2, last]
    assert values_of(loaded) == [
        value for page in (0, 2, last) for value in table.reader().read(page)[0]["v"].to_pylist()
    ]


def test_pages_are_requested_with_the_visit_that_needs_them() -> None:
    source: MemoryPages = pages_of(KEYS, can_address=True)
    reads, _ = reads_of(source, 2, False)
    wanted = visit(1, 2)
    reads.request([wanted], 2)
    read = wanted.read
    assert read.pages.tolist() == [1, 2]
    reads.load(wanted)
    assert wanted.read is None
