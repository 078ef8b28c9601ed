"""Builds: accepted and refused input, counts, clean-up."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from master.cases import numbers
from semistream.errors import ConfigError, MasterTableError, SchemaError
from semistream.master import MasterTable, progress

DATA = numbers(5_000)
SORTED = DATA.sort_by("id")


def parquet_folder(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    pq.write_table(DATA.slice(0, 3_000), folder / "a.parquet", row_group_size=700)
    pq.write_table(DATA.slice(3_000), folder / "deep" / "b.parquet")
    (folder / "_SUCCESS").touch()
    return folder


class Exported:
    """An object of another library that exports an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return DATA.__arrow_c_stream__(requested_schema)


FORMS = {
    "table": lambda folder: DATA,
    "batch": lambda folder: DATA.combine_chunks().to_batches()[0],
    "reader": lambda folder: DATA.to_reader(max_chunksize=123),
    "iterable of batches": lambda folder: iter(DATA.to_batches(max_chunksize=99)),
    "list of tables": lambda folder: [DATA.slice(0, 10), DATA.slice(10)],
    "arrow stream": lambda folder: Exported(),
    "folder": parquet_folder,
    "folder as text": lambda folder: str(parquet_folder(folder)),
    "list of files": lambda folder: sorted(parquet_folder(folder).rglob("*.parquet")),
    "dataset": lambda folder: ds.dataset(parquet_folder(folder), format="parquet"),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_supported_input_types(form: str, tmp_path: Path) -> None:
    data = FORMS[form](tmp_path / "in")
    table = MasterTable.build(data, tmp_path / "t", key="id", unique=True, page_bytes="8KiB")
    assert table.to_table().equals(SORTED)
    assert table.num_rows == 5_000
    assert table.num_pages > 10


@pytest.mark.parametrize("data", [42, {"id": [1]}, [1, 2], [], b"x", "no/such.parquet"])
def test_unsupported_input(data: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a Parquet file or folder"):
        MasterTable.build(data, tmp_path / "t", key="id")
    assert not (tmp_path / "t").exists()


def test_batches_with_different_schemas(tmp_path: Path) -> None:
    batches = [*DATA.to_batches(), *DATA.rename_columns(["id", "other"]).to_batches()]
    with pytest.raises(SchemaError, match="another schema than the first"):
        MasterTable.build(iter(batches), tmp_path / "t", key="id")
    assert not (tmp_path / "t").exists(), "a failed build leaves nothing"


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        (DATA, "nope", "'nope' is not in the data; its columns are id, text"),
        (DATA, "idd", "'idd' is not in the data; did you mean 'id'. its columns are id, text"),
        (DATA, [], "names no column"),
        (DATA, 5, "key=5 is neither a column name nor a list of names"),
        (DATA, ["id", "id"], "key has column 'id' twice"),
        (pa.table([[1], [2]], names=["id", "id"]), "id", "the data has column 'id' twice"),
        (pa.table({"id": [1.5]}), "id", "double cannot be a join key"),
        (pa.table({"id": [[1]]}), "id", "cannot be a join key"),
    ],
)
def test_invalid_schemas(data: Any, key: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=message.replace("[", r"\[")):
        MasterTable.build(data, tmp_path / "t", key=key)


@pytest.mark.parametrize("option", [{"memory": "lots"}, {"page_bytes": 0}])
def test_invalid_sizes(option: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        MasterTable.build(DATA, tmp_path / "t", key="id", **option)


@pytest.mark.parametrize("memory", ["1KB", "100MB"])
def test_a_duplicate_key_is_reported(memory: str, tmp_path: Path) -> None:
    data = pa.concat_tables([DATA, DATA.slice(77, 1)])
    twice = DATA["id"][77].as_py()
    with pytest.raises(ConfigError, match=f"the key id={twice} occurs more than once"):
        MasterTable.build(data, tmp_path / "t", key="id", unique=True, memory=memory)
    assert not (tmp_path / "t").exists()
    assert MasterTable.build(data, tmp_path / "t", key="id").num_rows == 5_001


def test_a_duplicate_nanosecond_key_is_reported(tmp_path: Path) -> None:
    data = pa.table({"at": pa.array([1, 5, 5], pa.timestamp("ns"))})
    with pytest.raises(ConfigError, match=r"00:00:00\.000000005"):
        MasterTable.build(data, tmp_path / "t", key="at", unique=True)


def test_rows_without_key_are_counted(tmp_path: Path) -> None:
    data = pa.table({"a": [1, None, 3, None], "b": ["x", "y", None, None], "v": [1, 2, 3, 4]})
    table = MasterTable.build(data, tmp_path / "t", key=["a", "b"])
    assert (table.num_rows, table.rows_without_key) == (1, 3)
    table = table.upsert(data)
    assert (table.num_rows, table.rows_without_key) == (1, 6)
    assert MasterTable.open(tmp_path / "t").rows_without_key == 6


@pytest.mark.parametrize("empty", [DATA.slice(0, 0), pa.table({"id": pa.nulls(3, pa.int64())})])
def test_an_empty_table(empty: pa.Table, tmp_path: Path) -> None:
    table = MasterTable.build(empty, tmp_path / "t", key="id")
    assert (table.num_rows, table.num_pages, table.row_bytes) == (0, 0, 0.0)
    low, high = table.index.locate([pa.array([1, 2])])
    assert low.tolist() == [0, 0]
    assert high.tolist() == [-1, -1]
    assert table.reader(4).read(0, 0) == []
    more = table.upsert(pa.table({name: DATA[name] for name in empty.column_names}))
    assert more.num_rows == 5_000
    assert more.to_table()["id"].to_pylist() == list(range(5_000))


def test_payloads_of_all_kinds(tmp_path: Path) -> None:
    count = 400
    words = [["a", "bb", None][i % 3] for i in range(count)]
    nested = [None if i % 9 == 0 else ["w"] * (i % 5) for i in range(count)]
    data = pa.table(
        {
            "id": np.random.default_rng(1).permutation(count),
            "dictionary": pa.array(words).dictionary_encode(),
            "view": pa.array(words, pa.string_view()),
            "list": nested,
            "list of dictionaries": pa.array(nested, pa.list_(pa.string())).cast(
                pa.list_(pa.dictionary(pa.int32(), pa.string()))
            ),
            "struct": [{"x": i, "y": "s" * (i % 4)} for i in range(count)],
            "map": pa.array(
                [[("k", i)] * (i % 3) for i in range(count)], pa.map_("string", "int32")
            ),
            "fixed list": pa.array([[i, None] for i in range(count)], pa.list_(pa.int16(), 2)),
            "null": pa.nulls(count),
            "half": pa.array(np.arange(count, dtype=np.float16)),
            "bool": [None if i % 4 == 0 else i % 2 == 0 for i in range(count)],
            "wide": pa.array([b"\xff" * i for i in range(count)], pa.large_binary()),
        }
    )
    table = MasterTable.build(data, tmp_path / "t", key="id", page_bytes="4KiB", memory="40KB")
    assert pa.types.is_string(table.schema.field("dictionary").type)
    expected = sorted(data.to_pylist(), key=lambda row: row["id"])
    assert table.to_table().to_pylist() == expected
    changed = table.upsert(data.slice(5, 30)).delete([3]).compact()
    assert changed.to_table().to_pylist() == [row for row in expected if row["id"] != 3]


def test_an_existing_table_is_overwritten_only_on_request(tmp_path: Path) -> None:
    first = MasterTable.build(DATA, tmp_path / "t", key="id")
    with pytest.raises(MasterTableError, match="overwrite=True"):
        MasterTable.build(DATA, tmp_path / "t", key="id")
    second = MasterTable.build(DATA.slice(0, 10), tmp_path / "t", key="id", overwrite=True)
    assert (second.version, second.num_rows) == (2, 10)
    assert second.changed_codes(1) is None
    assert first.newest_version() == 2
    assert first.to_table().equals(SORTED), "readers keep what they opened"


def test_a_foreign_folder_is_not_modified(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(MasterTableError, match=r"thesis\.doc"):
        MasterTable.build(DATA, tmp_path, key="id", overwrite=True)
    with pytest.raises(MasterTableError, match="is a file"):
        MasterTable.build(DATA, tmp_path / "thesis.doc", key="id")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.doc"]


@pytest.mark.parametrize("has_rich", [True, False])
def test_progress_on_a_terminal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    has_rich: bool,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "find_spec", lambda name: has_rich)
    MasterTable.build(DATA, tmp_path / "t", key="id", progress=True)
    shown = capsys.readouterr().err
    assert "sort" in shown
    assert shown.endswith("\r\x1b[2K") or has_rich, "the line is removed at the end"


def test_progress_is_reported(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    MasterTable.build(DATA, tmp_path / "t", key="id", progress=lambda *args: seen.append(args))
    assert seen[-1] == ("write", 5_000, 5_000)
    assert {stage for stage, _, _ in seen} == {"sort", "write"}


def test_a_table_pickles_as_path_and_version(tmp_path: Path) -> None:
    table = MasterTable.build(DATA, tmp_path / "t", key="id")
    table.delete([1])
    data = pickle.dumps(table)
    assert len(data) < 500
    copy = pickle.loads(data)
    assert (copy.version, copy.pinned, copy.num_rows) == (1, False, 5_000)
    pinned = pickle.loads(pickle.dumps(MasterTable.open(tmp_path / "t", version=1)))
    assert pinned.pinned
    resident = pickle.loads(pickle.dumps(MasterTable.open(tmp_path / "t", mapped="resident")))
    assert resident.mapped == "resident"


def test_a_segment_is_a_plain_arrow_file(tmp_path: Path) -> None:
    table = MasterTable.build(DATA, tmp_path / "t", key="id", page_bytes="16KiB")
    (segment,) = table.manifest.segments
    with pa.ipc.open_file(tmp_path / "t" / segment.file) as file:
        assert file.num_record_batches == table.num_pages
        assert file.read_all().equals(SORTED)
