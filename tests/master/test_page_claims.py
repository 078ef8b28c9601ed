"""What the page index says of pages, read from disk when a page is checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from master.cases import numbers
from semistream.master.index import SegmentPages
from semistream.master.page_claims import Claims, StoredClaims


@pytest.fixture
def table(tmp_path: Path) -> ss.MasterTable:
    """A base and two deltas."""
    data = numbers(3_000)
    built = ss.MasterTable.build(data, tmp_path / "t", key="id", page_bytes=1_000)
    table = built.upsert(data.slice(0, 1_000)).upsert(data.slice(2_000, 300))
    assert len(table.manifest.segments) == 3
    return ss.MasterTable.open(table.path)  # no page is checked yet


def on_disk(table: ss.MasterTable) -> list[Any]:
    read, infos = table.store.read, table.manifest.segments
    indexes = [SegmentPages.from_bytes(read(i.index_file), i.index_checksum, "") for i in infos]
    names = ("rows", "checksums", "last_codes")
    return [np.concatenate([getattr(one, name) for one in indexes]) for name in names]


def same(claims: Claims, expected: list[Any], pages: Any) -> bool:
    return all(
        np.array_equal(column, whole[pages]) and column.dtype == whole.dtype
        for column, whole in zip(claims, expected, strict=True)
    )


def test_claims_of_pages_in_any_order(table: ss.MasterTable) -> None:
    claims, expected = table.pages.segment.claims, on_disk(table)
    rng = np.random.default_rng(7)
    for count in (1, 2, 5, 30, table.num_pages):
        pages = rng.choice(table.num_pages, count, replace=False)
        assert same(claims.of(pages), expected, pages)
        assert same(claims.of(np.sort(pages)), expected, np.sort(pages))


def test_positions_of_a_large_index_need_more_than_32_bits() -> None:
    asked = []

    class File:
        name = "index"

        def read_ranges(self, target: memoryview, extents: Any) -> bool:
            asked.extend(extents.offsets.tolist())
            return True

    pages = np.array([2**28 + 1, 2**28], np.int32)
    StoredClaims(File(), [100, 200, 300]).of(pages)  # type: ignore[arg-type]
    assert asked == [place + 2**31 for place in (100, 200, 300)]


def test_a_vacuum_leaves_them_to_an_open_table(table: ss.MasterTable) -> None:
    expected = on_disk(table)
    table.compact().vacuum(keep=1)
    assert not Path(table.store.path(table.manifest.segments[0].index_file)).exists()
    pages = np.arange(table.num_pages)
    assert same(table.pages.segment.claims.of(pages), expected, pages)
    assert table.to_table().num_rows == 3_000


def test_an_index_that_is_cut_short_later(table: ss.MasterTable) -> None:
    path = table.store.path(table.manifest.segments[0].index_file)
    content = path.read_bytes()
    os.truncate(path, 100)
    for page in (0, 3):
        with pytest.raises(ss.MasterTableError, match=r"page index .* is truncated"):
            table.reader(2).read(page, 2)
    path.write_bytes(content)
    assert table.reader(2).read(0, 2)[0].num_rows > 0


def test_a_compressed_index_is_refused() -> None:
    batch = pa.record_batch({name: np.arange(1_000) for name in ("rows", "checksum", "last_code")})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")
    ) as writer:
        writer.write_batch(batch)
    with pytest.raises(pa.ArrowInvalid, match="compressed"):
        SegmentPages.claim_places(sink.getvalue().to_pybytes())
