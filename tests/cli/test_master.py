"""``semistream master``: what it prints, what it returns, how it fails."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from semistream.cli.master import app, build_table, check, describe, rows_of_keys
from semistream.errors import ConfigError
from semistream.master import MasterTable


@pytest.fixture
def source(tmp_path: Path) -> Path:
    data = pa.table({"a": [2, 1, None], "b": ["x", "y", "z"], "price": [1.0, 2.0, 3.0]})
    pq.write_table(data, tmp_path / "data.parquet")
    return tmp_path / "data.parquet"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_build_info_verify(source: Path, tmp_path: Path) -> None:
    code, text = run("build", source, tmp_path / "t", "--key", "a", "--key", "b", "--unique")
    assert code == 0, text
    assert "a, b (unique)" in text
    MasterTable.open(tmp_path / "t").delete([(1, "y")])
    code, text = run("info", tmp_path / "t")
    assert code == 0
    for word in ("version", "price: double", "rows without key", "deltas", "delta", "base"):
        assert word in text
    code, text = run("verify", tmp_path / "t")
    assert code == 0
    assert "no problems" in text


def test_the_logic_returns_values(source: Path, tmp_path: Path) -> None:
    info = build_table([source], tmp_path / "t", ["a"], page_bytes="4KiB")
    assert (info.rows, info.rows_without_key, info.key, info.versions) == (2, 1, ("a",), (1,))
    build_table([source, source], tmp_path / "t", ["a"], overwrite=True)
    old = describe(tmp_path / "t", version=1)
    assert (old.version, old.versions, old.rows) == (1, (1, 2), 2)
    assert describe(tmp_path / "t").rows == 4
    assert check(tmp_path / "t").problems == ()
    with pytest.raises(ConfigError, match="a=1 occurs more than once"):
        build_table([source, source], tmp_path / "u", ["a"], unique=True)


def test_verify_lists_problems_and_fails(source: Path, tmp_path: Path) -> None:
    build_table([source], tmp_path / "t", ["a"])
    (segment,) = (s for s in describe(tmp_path / "t").segments)
    file = tmp_path / "t" / "segments" / segment.name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    code, text = run("verify", tmp_path / "t")
    assert code == 1
    assert f"{segment.name}, page 0" in text
    file.unlink()
    code, text = run("verify", tmp_path / "t")
    assert code == 1
    assert "the file is missing" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "nowhere"),
        ("verify", "nowhere"),
        ("build", "nowhere", "t", "--key", "a"),
        ("build", "data.parquet", "t", "--key", "c"),
        ("build", "data.parquet", "t", "--key", "a", "--memory", "lots"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    arguments: tuple[str, ...], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    code, text = run(*arguments)
    assert code == 2
    assert text.startswith("error: ")
    assert "Traceback" not in text
    assert not (source.parent / "t").exists()


def test_head_shows_the_first_rows(source: Path, tmp_path: Path) -> None:
    build_table([source], tmp_path / "t", ["a"])
    code, text = run("head", tmp_path / "t", "-n", 1)
    assert code == 0
    assert text.split() == ["a", "b", "price", "1", "y", "2.0"]
    code, text = run("head", tmp_path / "t", "--json", "-c", "b")
    assert (code, text) == (0, '{"b": "y"}\n{"b": "x"}\n')


def test_get_shows_the_rows_of_keys(source: Path, tmp_path: Path) -> None:
    build_table([source], tmp_path / "t", ["a", "b"])
    code, text = run("get", tmp_path / "t", "2,x", "9,z", "1,y", "--json")
    assert code == 0
    assert [json.loads(line)["price"] for line in text.splitlines()] == [1.0, 2.0]
    assert run("get", tmp_path / "t", "9,z") == (1, "no rows\n")
    code, text = run("get", tmp_path / "t", "2")
    assert code == 2
    assert "the key has the columns a, b; separate their values by commas" in text
    code, text = run("get", tmp_path / "t", "two,x")
    assert code == 2
    assert "cannot read the key (a: int64, b: string)" in text


def test_get_with_keys_of_other_types(tmp_path: Path) -> None:
    days = pa.table({"day": pa.array([date(2026, 11, 17)]), "n": [-5]})
    MasterTable.build(days, tmp_path / "days", key="day")
    MasterTable.build(days, tmp_path / "numbers", key="n")
    assert rows_of_keys(tmp_path / "days", ["2026-11-17"])["n"].to_pylist() == [-5]
    code, text = run("get", tmp_path / "numbers", "--json", "--", -5)
    assert (code, text) == (0, '{"day": "2026-11-17", "n": -5}\n')
