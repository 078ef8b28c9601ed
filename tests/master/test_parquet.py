"""Plain Parquet as a source of pages: every row once per scan, in pages of known size."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semistream.errors import ConfigError, MasterTableError
from semistream.master import ParquetPages

ROWS = 9_500
DATA = pa.table(
    {
        "id": np.random.default_rng(1).permutation(ROWS),
        "price": np.arange(ROWS) * 0.5,
        # One word many times: a few bytes in the file, many when decoded.
        "word": pa.array(["a rather long word that repeats"] * ROWS).dictionary_encode(),
        "text": ["x" * (i % 90) for i in range(ROWS)],
        "list": [list(range(i % 4)) for i in range(ROWS)],
    }
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, start in enumerate(range(0, ROWS, 4_000)):
        part = DATA.slice(start, 4_000)
        pq.write_table(part, tmp_path / f"{number}.parquet", row_group_size=1_500)
    return tmp_path


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("page_bytes", [400, 5_000, "64KiB", "1GiB"])
def test_all_rows_in_every_round(folder: Path, page_bytes: int | str, at_once: int) -> None:
    pages = ParquetPages(folder, page_bytes=page_bytes)
    assert (pages.num_rows, pages.ordered, pages.index, pages.version) == (ROWS, False, None, 0)
    assert pages.schema.field("word").type == pa.string()
    reader = pages.reader(at_once)
    for _ in range(2):
        rows = []
        for first in range(0, pages.num_pages, at_once):
            for batch in reader.read(first, min(at_once, pages.num_pages - first)):
                assert batch.schema.equals(pages.schema)
                assert batch.nbytes <= pages.max_page_bytes
                rows += batch.column("id").to_pylist()
        assert rows == DATA["id"].to_pylist()
    if page_bytes == "1GiB":
        assert pages.num_pages == 3 + 3 + 1, "a page is a row group when that is small enough"
    if page_bytes == 5_000:
        assert pages.max_page_bytes < 3 * 5_000


def test_pages_can_be_read_in_any_order(folder: Path) -> None:
    pages = ParquetPages(folder, page_bytes=20_000)
    forward = pages.reader()
    expected = [forward.read(page)[0].column("text").to_pylist() for page in range(pages.num_pages)]
    anywhere = pages.reader(2)
    for page in (5, 3, 4, 4, pages.num_pages - 1, 0):
        assert anywhere.read(page)[0].column("text").to_pylist() == expected[page]


def test_measured_sizes(folder: Path) -> None:
    pages = ParquetPages(folder)
    stored = [pages.reader().read(page)[0] for page in range(pages.num_pages)]
    total = sum(batch.nbytes for batch in stored)
    assert pages.row_bytes == pytest.approx(total / ROWS, rel=0.1)
    assert pages.max_row_bytes >= 8 + 8 + 31 + 89 + 3 * 8
    assert pages.reader(3).nbytes > 3 * pages.max_page_bytes
    assert pages.nbytes == sum(file.stat().st_size for file in folder.iterdir())


def test_a_damaged_row_group_is_named(folder: Path) -> None:
    pages = ParquetPages(folder, page_bytes=20_000)
    reader = pages.reader()
    file = folder / "1.parquet"
    good = file.read_bytes()
    meta = pq.read_metadata(file).row_group(1).column(0)
    at = meta.dictionary_page_offset or meta.data_page_offset
    file.write_bytes(good[:at] + b"\xff" * 40 + good[at + 40 :])
    bad = next(
        number for number, page in enumerate(pages.pages) if (page.file, page.row_group) == (1, 1)
    )
    reader.read(0)
    with pytest.raises(MasterTableError, match=r"row group 1 of .*1\.parquet cannot be decoded"):
        reader.read(bad)
    file.write_bytes(good)
    assert reader.read(bad)[0].num_rows > 0, "readable again after the fault"
    file.unlink()
    with pytest.raises(MasterTableError, match=r"1\.parquet"):
        reader.read(bad - 1)


def test_invalid_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        ParquetPages(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="has no"):
        ParquetPages(tmp_path)
    (tmp_path / "a.parquet").write_text("not Parquet")
    with pytest.raises(ConfigError, match="cannot be read as Parquet"):
        ParquetPages(tmp_path)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [1]}), tmp_path / "b.parquet")
    with pytest.raises(MasterTableError, match="another schema"):
        ParquetPages(tmp_path)


def test_page_source_contract(folder: Path) -> None:
    pages = pickle.loads(pickle.dumps(ParquetPages(folder, page_bytes=20_000)))
    assert (pages.newest_version(), pages.changed_codes(0), pages.key) == (0, None, ())
    with pytest.raises(ConfigError, match="direct=True"):
        pages.reader(direct=True)
    with pytest.raises(ConfigError):
        pages.reader(0)
    reader = pages.reader()
    with pytest.raises(ConfigError, match="pages_at_once"):
        reader.read(0, 2)
    reader.close()
    with pytest.raises(ConfigError, match="closed"):
        reader.read(0)


def test_an_empty_file(tmp_path: Path) -> None:
    pq.write_table(DATA.slice(0, 0), tmp_path / "a.parquet")
    pages = ParquetPages(tmp_path)
    assert (pages.num_rows, pages.num_pages, pages.row_bytes) == (0, 0, 0.0)
