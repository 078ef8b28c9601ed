"""A page that cannot be read: an error, nothing lost, and the run continues after the fault."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import naive
import semistream as ss
from harness import (
    build,
    check_books,
    check_pinned,
    cut,
    drain_by_steps,
    every_join_and_how,
    needs_direct_io,
    smallest_memory,
    soon,
    takes,
    watched,
)
from semistream.master.disk_read import DiskRead
from semistream.master.local_file import LocalFile

STREAM = pa.table(
    {"n": range(600), "k": np.random.default_rng(1).integers(-10, 1010, 600)},
)
MASTER = pa.table({"k": range(1000), "v": range(1000), "text": ["x" * 30] * 1000})

every_algorithm = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))


class Disk:
    """The machine's disk, with a switch that makes reads fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken = False
        self.fail_every = 0
        self.reads = self.ahead = 0
        self.read = os.preadv
        self.finish = DiskRead.finish
        self.read_ranges = LocalFile.read_ranges
        monkeypatch.setattr(os, "preadv", self.preadv)
        monkeypatch.setattr(LocalFile, "read_ranges", lambda *a: self.many(*a))
        monkeypatch.setattr(DiskRead, "finish", lambda ahead: self.finished(ahead))

    def fails(self) -> bool:
        self.reads += 1
        return self.broken or bool(self.fail_every and self.reads % self.fail_every == 0)

    def preadv(self, *arguments: Any) -> int:
        if self.fails():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.read(*arguments)

    def many(self, *arguments: Any) -> bool:
        """Many reads at once; after a failure they are repeated one by one."""
        return not self.fails() and self.read_ranges(*arguments)

    def finished(self, ahead: DiskRead) -> int:
        """A prefetch fails like any other read."""
        got = self.finish(ahead)
        self.ahead += 1
        return -errno.EIO if self.fails() else got


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("faults") / "table"
    build(path, MASTER, ["k"])
    return path


def open_run(algorithm: str, folder: Path, how: str = "left") -> Any:
    master = ss.MasterTable.open(folder)
    least = smallest_memory(algorithm, master, cut(STREAM, 50), "k", how=how)
    options = soon(algorithm, memory=int(1.3 * least), how=how)
    return ss.join(algorithm, **options).open(master, on="k")


def collect(out: list[pa.RecordBatch], rows: Iterable[pa.RecordBatch]) -> bool:
    """Append the batches. Returns whether a read failed."""
    try:
        for batch in rows:
            out.append(batch)
    except ss.MasterTableError:
        return True
    return False


@every_join_and_how
def test_a_disk_that_fails_and_recovers(algorithm: str, how: str, folder: Path, disk: Disk) -> None:
    out: list[pa.RecordBatch] = []
    with open_run(algorithm, folder, how) as run:
        failed = 0
        for turn, batch in enumerate(cut(STREAM, 50)):
            disk.broken = turn % 3 == 1
            failed += collect(out, run.push(batch))
            check_books(run)
            assert run.stats.tuples_in == 50 * (turn + 1)
            if disk.broken and run.stats.waiting:
                before = run.stats.as_dict()
                with pytest.raises(ss.MasterTableError):
                    list(run.step())
                failed += 1
                check_books(run)
                assert run.stats.waiting == before["waiting"], "a failed read removed a tuple"
                assert run.stats.rows_out == before["rows_out"]
                disk.broken = False
                out += watched(run, run.step())
        assert failed, "no read failed"
        disk.broken = False
        out += watched(run, run.flush())
        assert run.stats.waiting == 0
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", how))


@every_algorithm
def test_a_disk_with_intermittent_errors(algorithm: str, folder: Path, disk: Disk) -> None:
    out: list[pa.RecordBatch] = []
    with open_run(algorithm, folder) as run:
        disk.fail_every = 3
        for batch in cut(STREAM, 50):
            before = run.stats.tuples_in
            while run.stats.tuples_in == before:  # refused as a whole or taken as a whole
                collect(out, run.push(batch))
            assert run.stats.tuples_in == before + 50
            check_books(run)
        for _ in range(2000):
            if not collect(out, run.flush()):
                break
            check_books(run)
        assert run.stats.waiting == 0
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))


@every_algorithm
def test_a_disk_that_fails_from_the_start(algorithm: str, folder: Path, disk: Disk) -> None:
    with open_run(algorithm, folder) as run:
        disk.broken = True
        out: list[pa.RecordBatch] = []
        collect(out, run.push(cut(STREAM, 200)[0]))
        with pytest.raises(ss.MasterTableError) as failure:
            list(run.flush())
        assert "table" in str(failure.value), "the error names the file"
        assert os.strerror(errno.EIO) in str(failure.value)
        disk.broken = False
        out += drain_by_steps(run)
    naive.same_rows(naive.rows_of(out), naive.join(STREAM.slice(0, 200), MASTER, "k", "left"))


@pytest.mark.parametrize("algorithm", [n for n in ss.ALGORITHMS if takes(n, "observe")])
@pytest.mark.parametrize("source", ["observed", "given"])
def test_a_disk_that_fails_while_pages_are_pinned(
    algorithm: str, source: str, folder: Path, disk: Disk
) -> None:
    """Pinning is restarted or continued, and no row is returned twice."""
    hot = {"hot_keys": STREAM["k"].combine_chunks()} if source == "given" else {"observe": 50}
    join = ss.join(algorithm, memory="120KB", how="left", pinned="24KB", **hot)
    out: list[pa.RecordBatch] = []
    failed = 0
    with join.open(ss.MasterTable.open(folder), on="k") as run:
        disk.fail_every = 4
        for batch in cut(STREAM, 50):
            failed += collect(out, run.push(batch))
            for _ in range(100):
                if run.stats.waiting == 0:
                    break
                failed += collect(out, run.step())
                check_books(run)
        assert failed > 3, "too few reads failed"
        check_pinned(run)
        assert run.stats.waiting == 0
        assert run.stats.rows_out == sum(rows.num_rows for rows in out) == len(STREAM)
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))


def damage(segment: Path, how: str) -> None:
    content = bytearray(segment.read_bytes())
    if how == "truncated":
        del content[len(content) // 3 :]
    elif how == "flipped byte":
        for place in range(1000, len(content), 64):  # at least one byte in every page
            content[place] ^= 0x10
        # A page that was read before is not compared with its checksum again; its header is.
        content = content.replace(b"\xff\xff\xff\xff", b"\xff\xff\xff\xef")
    segment.write_bytes(content)


@every_algorithm
@pytest.mark.parametrize("how", ["truncated", "flipped byte"])
def test_a_segment_damaged_under_a_run(algorithm: str, how: str, tmp_path: Path) -> None:
    build(tmp_path / "table", MASTER, ["k"])
    segments = sorted((tmp_path / "table").rglob("*"), key=lambda path: path.stat().st_size)
    segment = segments[-1]
    whole = segment.read_bytes()
    out: list[pa.RecordBatch] = []
    with open_run(algorithm, tmp_path / "table") as run:
        first, second, third = cut(STREAM, 200)
        out += watched(run, run.push(first))
        damage(segment, how)
        failed = collect(out, run.push(second)) or collect(out, run.flush())
        assert failed, f"a {how} segment went unnoticed"
        check_books(run)
        segment.write_bytes(whole)
        out += watched(run, run.push(third))
        out += watched(run, run.flush())
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))


@every_algorithm
def test_a_corrupt_page_is_named(algorithm: str, tmp_path: Path) -> None:
    build(tmp_path / "table", MASTER, ["k"])
    segment = max((tmp_path / "table").rglob("*"), key=lambda path: path.stat().st_size)
    with open_run(algorithm, tmp_path / "table") as run:
        damage(segment, "flipped byte")
        list_until_error: list[pa.RecordBatch] = []
        with pytest.raises(ss.MasterTableError) as failure:
            list_until_error += run.push(cut(STREAM, 600)[0])
            list_until_error += run.flush()
        assert "page" in str(failure.value)
        assert segment.name in str(failure.value) or str(tmp_path) in str(failure.value)


@pytest.mark.skipif(DiskRead.make() is None, reason="this system has no asynchronous reads")
def test_prefetches_that_fail_intermittently(disk_path: Path, disk: Disk) -> None:
    needs_direct_io(disk_path)
    master = build(disk_path / "table", MASTER, ["k"], page_bytes=8192)
    out: list[pa.RecordBatch] = []
    failed = 0
    with ss.join("sweepjoin", memory="300KB", how="left").open(master, on="k", direct=True) as run:
        disk.fail_every = 2
        for turn, batch in enumerate(cut(STREAM, 50)):
            disk.broken = turn % 3 == 1
            failed += collect(out, run.push(batch))
            check_books(run)
        disk.broken = True
        failed += collect(out, run.flush())
        disk.broken = False  # every second read still fails, and is repeated
        out += watched(run, run.flush())
        assert run.stats.waiting == 0
    assert failed, "no read failed"
    assert disk.ahead, "nothing was read ahead"
    naive.same_rows(naive.rows_of(out), naive.join(STREAM, MASTER, "k", "left"))
