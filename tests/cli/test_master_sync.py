"""``semistream master sync``: once, at an interval, dry; errors in one line."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from semistream.cli._master_sync import Synced, SyncOptions, keep_syncing, source_of, sync_once
from semistream.cli.master import app
from semistream.errors import ConfigError, MasterTableError
from semistream.master import MasterTable

COMMAND = "import sys; sys.argv[0] = 'semistream'; from semistream.cli import main; main()"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sync", *(str(argument) for argument in arguments)])
    return result.exit_code, result.output


def write(folder: Path, prices: dict[int, float]) -> Path:
    table = pa.table({"id": list(prices), "price": list(prices.values())})
    pq.write_table(table, folder / "products.parquet")
    return folder / "products.parquet"


def test_build_preview_and_sync(tmp_path: Path) -> None:
    file, table = write(tmp_path, {1: 1.0, 2: 2.0, 3: 3.0}), tmp_path / "t"
    code, text = run(table, file)
    assert code == 2, "there is no table, and no key to build one"
    assert "there is no master table at" in text
    code, text = run(table, file, "--key", "id")
    assert (code, "version 1: 3 inserted" in text) == (0, True), text
    write(tmp_path, {1: 1.0, 2: 2.5, 4: 4.0})
    code, text = run(table, file, "--dry-run")
    assert "would be 1 inserted, 1 updated, 1 deleted; 3 rows read" in text
    assert MasterTable.open(table).version == 1
    code, text = run(table, file)
    assert "version 2: 1 inserted, 1 updated, 1 deleted" in text
    code, text = run(table, file)
    assert "version 2 is in step with its source" in text
    info = CliRunner().invoke(app, ["info", str(table)]).output
    assert "Parquet files in" in info
    assert "ago" in info


def test_a_database(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as database:
        database.execute("create table product (id integer, v integer)")
        database.execute("insert into product values (1, 1), (2, 1)")
    options = [f"sqlite:///{file}", "--table", "product", "--version-column", "v"]
    assert run(tmp_path / "t", *options, "--key", "id")[0] == 0
    with sqlite3.connect(file) as database:
        database.execute("delete from product where id = 1")
    code, text = run(tmp_path / "t", *options, "--find-deletes", "always")
    assert (code, "1 deleted" in text) == (0, True), text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (SyncOptions(), "a source is missing"),
        (SyncOptions("kafka://h:1"), "needs --topic"),
        (SyncOptions("file.parquet", topic="x"), "--topic is for"),
        (SyncOptions("file.parquet", table="x"), "are for a database URL"),
        (
            SyncOptions("file.parquet", find_deletes="sometimes"),
            "--find-deletes are for",
        ),
        (SyncOptions("file.parquet", value="arrow"), "--value is for"),
        (SyncOptions("postgresql://h/db"), "needs --table"),
        (SyncOptions("oracle://h/db", table="x"), "not a supported database"),
        (SyncOptions("sqlite:///f", table="x", find_deletes="often"), "not a duration"),
        (SyncOptions("kafka://h:1", topic="x", value="avro"), "'json' or 'arrow'"),
    ],
)
def test_options_that_do_not_fit(options: SyncOptions, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        source_of(options)


def test_a_failing_sync_is_reported_and_repeated() -> None:
    answers: list[Any] = [MasterTableError("the server is down"), "synced", KeyboardInterrupt()]
    shown: list[Any] = []
    reported: list[str] = []
    waits: list[float] = []

    def once() -> Synced:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    with pytest.raises(KeyboardInterrupt):
        keep_syncing(once, "30s", shown.append, reported.append, waits.append)
    assert shown == ["synced"]
    assert reported == ["error: the server is down; trying again in 30s"]
    assert [round(wait) for wait in waits] == [30, 30]


def test_after_a_first_sync_nothing_ends_the_interval() -> None:
    """A folder may be empty for a moment, and a type may not fit: the options were right."""
    answers: list[Any] = [
        "synced", ConfigError("no *.parquet file"), OSError("stale file handle"),
        ValueError("type"), KeyboardInterrupt(),
    ]  # fmt: skip
    reported: list[str] = []

    def once() -> Synced:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    with pytest.raises(KeyboardInterrupt):
        keep_syncing(once, "30s", lambda _: None, reported.append, lambda _: None)
    assert [text.split(";")[0] for text in reported] == [
        "error: no *.parquet file", "error: stale file handle", "error: type",
    ]  # fmt: skip
    answers = [ConfigError("wrong option")]
    with pytest.raises(ConfigError):
        keep_syncing(once, "30s", lambda _: None, reported.append, lambda _: None)


def test_a_password_in_the_address_of_a_broker_is_not_shown() -> None:
    source = source_of(SyncOptions("kafka://me:secret@host:9092", topic="x"))
    assert source.name == "Kafka topic 'x' at me:***@host:9092"


@pytest.mark.slow
def test_an_interval_until_control_c(tmp_path: Path) -> None:
    file = write(tmp_path, {1: 1.0})
    arguments = [
        "master",
        "sync",
        str(tmp_path / "t"),
        str(file),
        "--key",
        "id",
        "--every",
        "100ms",
    ]
    log = tmp_path / "log"
    with open(log, "w") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments], stdout=out, stderr=subprocess.STDOUT,
            env=os.environ,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        write_at = 1
        while "version 3" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            if f"version {write_at}" in log.read_text():
                write_at += 1
                write(tmp_path, {1: 1.0, 2: float(write_at)})
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    text = log.read_text()
    assert text.splitlines()[-1] == "stopped; the next sync continues where the last one ended"
    assert "Traceback" not in text
    assert MasterTable.open(tmp_path / "t").num_rows == 2


def test_a_table_that_does_not_exist_needs_a_key(tmp_path: Path) -> None:
    source = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1]}), source)
    with pytest.raises(ConfigError, match=r"there is no master table at .*with --key"):
        sync_once(tmp_path / "absent", source_of(SyncOptions(str(source))))
