"""Damaged, truncated, missing or foreign files: the error names one, verify lists all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from master.cases import numbers
from semistream.errors import MasterTableError
from semistream.master import MasterTable, index, sort, verify
from semistream.master.manifest import FORMAT_VERSION, manifest_name
from semistream.master.reader import open_segment


@pytest.fixture
def table(tmp_path: Path) -> MasterTable:
    """A base of many pages, and an upsert of some."""
    table = MasterTable.build(
        numbers(3_000), tmp_path / "t", key="id", unique=True, page_bytes=8_000
    )
    return table.upsert(numbers(1_000, start=200))


def file_of(table: MasterTable, segment: int) -> Path:
    return Path(table.path) / table.manifest.segments[segment].file


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(data)


def read_all(path: str) -> pa.Table:
    return MasterTable.open(path).to_table()


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("page", [0, 2, -1])
@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.999])
def test_a_flipped_byte_in_a_page(table: MasterTable, segment: int, page: int, part: float) -> None:
    pages = open_segment(table.store, table.manifest, table.manifest.segments[segment]).pages
    page %= len(pages)
    at = int(pages.offsets[page] + part * pages.lengths[page])
    file = file_of(table, segment)
    flip(file, at)
    (problem,) = verify(table.path)
    assert (problem.page, problem.what) == (page, "damaged: the checksum does not match")
    assert problem.file == f"segments/{file.name}"
    with pytest.raises(MasterTableError, match=rf"page {page} of .*{file.name} is damaged"):
        read_all(table.path)


def test_the_first_of_several_damaged_pages_is_named_and_the_others_are_checked(
    table: MasterTable,
) -> None:
    table = MasterTable.open(table.path, 1)
    segment = table.pages.segment
    for page in (5, 3):
        flip(file_of(table, 0), int(segment.offsets[page]) + 500)
    with pytest.raises(MasterTableError, match=r"page 3 of .* is damaged"):
        table.reader(8).read(0, 8)
    assert np.flatnonzero(~segment.checked[:8]).tolist() == [3, 5]
    assert not segment.checked[8:].any()


@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("where", ["header", "footer"])
def test_a_flipped_byte_outside_the_pages(table: MasterTable, segment: int, where: str) -> None:
    file = file_of(table, segment)
    flip(file, 30 if where == "header" else file.stat().st_size - 20)
    (problem,) = verify(table.path)
    assert "header or footer" in problem.what


def test_a_truncated_segment(table: MasterTable) -> None:
    pages = open_segment(table.store, table.manifest, table.manifest.segments[0]).pages
    file = file_of(table, 0)
    cut = int(pages.offsets[4]) + 100
    file.write_bytes(file.read_bytes()[:cut])
    problems = verify(table.path)
    assert problems[0].page is None
    assert f"{cut} bytes instead of" in problems[0].what
    assert [p.page for p in problems[1:]] == list(range(4, len(pages)))
    assert "truncated: 100 of" in problems[1].what
    reader = MasterTable.open(table.path, 1).reader(8)
    assert len(reader.read(0, 4)) == 4
    with pytest.raises(MasterTableError, match=rf"page 4 of .*{file.name} is truncated"):
        reader.read(0, 8)
    with pytest.raises(MasterTableError, match="page 4 of"):
        read_all(table.path)


def test_a_missing_segment(table: MasterTable) -> None:
    file_of(table, 0).unlink()
    (problem,) = verify(table.path)
    assert str(problem) == f"segments/{file_of(table, 0).name}: the file is missing"
    with pytest.raises(MasterTableError, match="is missing"):
        MasterTable.open(table.path)
    assert table.to_table().num_rows == 3_000, "an open table can still be read"


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: flip(file, 400)])
def test_a_bad_page_index(table: MasterTable, harm: Callable[[Path], None]) -> None:
    file = Path(table.path) / table.manifest.segments[1].index_file
    harm(file)
    (problem,) = verify(table.path)
    assert problem.file.endswith(".index.arrow")
    with pytest.raises(MasterTableError, match=file.name):
        MasterTable.open(table.path)
    assert MasterTable.open(table.path, 1).num_rows == 3_000


def test_keys_out_of_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checksums only prove that the bytes are unchanged; the content is checked, too."""
    monkeypatch.setattr(sort, "code_order", lambda column: None)
    with pytest.raises(MasterTableError, match="its pages are out of order"):
        MasterTable.build(numbers(500), tmp_path / "t", key="id", page_bytes=4_000)
    problems = verify(tmp_path / "t")
    assert len(problems) > 2
    assert {problem.what for problem in problems} == {"its keys are out of order"}
    one_page = pa.table({"id": [1, 3, 2, 4]})
    table = MasterTable.build(one_page, tmp_path / "u", key="id")
    with pytest.raises(MasterTableError, match="its keys are out of order"):
        table.to_table()


def rewrite(table: MasterTable, **changes: Any) -> None:
    """Change a manifest and recompute its checksum."""
    file = Path(table.path) / manifest_name(table.version)
    body = json.loads(file.read_bytes())
    body.pop("checksum")
    for name, value in changes.items():
        body[name] = value(body[name]) if callable(value) else value
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["checksum"] = xxhash.xxh3_64_hexdigest(canonical.encode())
    file.write_text(json.dumps(body))


def test_wrong_counts_are_found(table: MasterTable) -> None:
    rewrite(table, num_rows=7)
    (problem,) = verify(table.path)
    assert "the manifest has 7 rows, the segments have 3000" in str(problem)
    with pytest.raises(MasterTableError, match="should have 7 rows"):
        MasterTable.open(table.path).compact()


@pytest.mark.parametrize("name", ["../../secret.arrow", "/etc/passwd", "a/b.arrow", "", ".."])
@pytest.mark.parametrize("field", ["name", "index"])
def test_a_manifest_with_names_outside_the_folder(
    table: MasterTable, name: str, field: str
) -> None:
    rewrite(table, segments=lambda segments: [{**segments[0], field: name}])
    with pytest.raises(MasterTableError):
        MasterTable.open(table.path)
    with pytest.raises(MasterTableError):
        verify(table.path)


def test_a_newer_format(table: MasterTable) -> None:
    rewrite(table, format_version=FORMAT_VERSION + 1)
    with pytest.raises(MasterTableError, match=f"format version {FORMAT_VERSION + 1}.*upgrade"):
        MasterTable.open(table.path)
    assert MasterTable.open(table.path, 1).num_rows == 3_000


def test_a_table_of_an_earlier_release(table: MasterTable) -> None:
    """Its keys have no codes: it must be built again, which the error says; and can be."""
    rewrite(table, format_version=1)
    with pytest.raises(MasterTableError, match=r"earlier release.*Build.*again.*overwrite=True"):
        MasterTable.open(table.path)
    again = MasterTable.build(numbers(10), table.path, key="id", overwrite=True)
    assert (again.version, MasterTable.open(table.path).num_rows) == (3, 10)


def test_a_page_index_of_an_earlier_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(index, "FORMAT_VERSION", 1)
        written = MasterTable.build(numbers(100), tmp_path / "t", key="id")
    with pytest.raises(MasterTableError, match=r"format version 1: an earlier release"):
        MasterTable.open(written.path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "semistream-master"}', "{}"])
def test_an_invalid_manifest(table: MasterTable, text: str) -> None:
    (Path(table.path) / manifest_name(2)).write_text(text)
    with pytest.raises(MasterTableError):
        MasterTable.open(table.path)
    with pytest.raises(MasterTableError):
        table.vacuum(keep=1)
    assert file_of(table, 0).exists(), "nothing is deleted while a manifest cannot be read"


def test_every_byte_of_a_manifest_counts(table: MasterTable) -> None:
    file = Path(table.path) / manifest_name(2)
    good = file.read_bytes()
    for at in range(5, len(good), 37):
        if good[at] in b' \n"{}[],:':
            continue
        file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(MasterTableError):
            MasterTable.open(table.path)


def test_a_foreign_or_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(MasterTableError, match="does not exist"):
        MasterTable.open(tmp_path / "nowhere")
    (tmp_path / "photos").mkdir()
    with pytest.raises(MasterTableError, match="is not a master table"):
        MasterTable.open(tmp_path / "photos")
    (tmp_path / "file").touch()
    with pytest.raises(MasterTableError, match="is a file"):
        MasterTable.open(tmp_path / "file")


def test_a_version_that_does_not_exist(table: MasterTable) -> None:
    with pytest.raises(MasterTableError, match=r"version 9 of .* the table has 1, 2"):
        MasterTable.open(table.path, version=9)


@pytest.mark.parametrize("unknown", [0, -1, True, "1", None])
def test_unknown_formats_of_a_manifest(table: MasterTable, unknown: Any) -> None:
    rewrite(table, format_version=unknown)
    with pytest.raises(MasterTableError, match=f"format version {unknown!r}.*upgrade"):
        MasterTable.open(table.path)


def test_unknown_formats_of_a_page_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as later:
        later.setattr(index, "FORMAT_VERSION", 3)
        written = MasterTable.build(numbers(100), tmp_path / "t", key="id")
        assert written.num_rows == 100
    with pytest.raises(MasterTableError, match=r"index.arrow has format version 3.*upgrade"):
        MasterTable.open(written.path)
