"""Races of writers, vacuum and pins between any two steps; lost replies."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from master.cases import numbers
from master.steps import Steps
from semistream.errors import MasterTableError
from semistream.master import MasterTable, verify, workspace
from semistream.master.files import Files
from semistream.master.manifest import list_versions, manifest_name
from semistream.master.pins import pin
from semistream.master.store import LocalStore
from semistream.master.workspace import Workspace


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    steps = Steps()
    monkeypatch.setattr(LocalStore, "files", steps)
    yield steps
    assert steps.is_over, "a planned step was never reached"


@pytest.fixture
def table(tmp_path: Path) -> MasterTable:
    return MasterTable.build(numbers(100), tmp_path / "t", key="id", unique=True, page_bytes=8_000)


def row(key: int, text: str) -> pa.Table:
    return pa.table({"id": [key], "text": [text]})


def text_of(path: str, key: int) -> str:
    rows = MasterTable.open(path).to_table().to_pylist()
    return next(row["text"] for row in rows if row["id"] == key)


def segments(table: MasterTable) -> set[str]:
    return set(table.store.list("segments"))


def test_a_version_with_a_successor_is_kept(table: MasterTable, steps: Steps) -> None:
    """Another writer opens the version that was just linked, and publishes the next."""

    def next_version() -> None:
        MasterTable.open(table.path).upsert(row(2, "second"))

    steps.after("link", manifest_name(2), next_version)
    mine = table.upsert(row(1, "first"))
    assert mine.version == 2
    assert list_versions(table.store) == [1, 2, 3]
    assert [verify(table.path, version) for version in (1, 2, 3)] == [[], [], []]
    assert (text_of(table.path, 1), text_of(table.path, 2)) == ("first", "second")


def files_of(table: MasterTable, version: int) -> set[str]:
    files = MasterTable.open(table.path, version).manifest.files
    return {file.removeprefix("segments/") for file in files}


def test_the_loser_of_a_publish_race_removes_only_its_own_files(
    table: MasterTable, steps: Steps
) -> None:
    def faster() -> None:
        won = MasterTable.open(table.path).upsert(row(1, "winner"))
        won.delete([2]).compact()

    steps.before("link", manifest_name(2), faster)
    with pytest.raises(MasterTableError, match="another writer has published up to version 4"):
        table.upsert(row(1, "loser"))
    assert [verify(table.path, version) for version in (1, 2, 3, 4)] == [[]] * 4
    assert text_of(table.path, 1) == "winner"
    used = set().union(*(files_of(table, version) for version in (1, 2, 3, 4)))
    assert segments(table) == used, "the loser removed its own files"


def test_a_vacuumed_version_number_is_not_reused(table: MasterTable, steps: Steps) -> None:
    """The writer pauses before its link while others publish, and vacuum its number."""

    def overtaken() -> None:
        newest = MasterTable.open(table.path)
        for key in (1, 2, 3):
            newest = newest.upsert(row(key, "others"))
        newest.vacuum(keep=1)

    steps.before("link", manifest_name(2), overtaken)
    with pytest.raises(MasterTableError, match="another writer has published up to version 4"):
        table.upsert(row(1, "late"))
    assert list_versions(table.store) == [4]
    assert verify(table.path) == []
    assert text_of(table.path, 1) == "others"
    assert segments(table) == files_of(table, 4)


LOST_REPLIES = [errno.EEXIST, errno.EIO, errno.ETIMEDOUT]


@pytest.mark.parametrize("code", LOST_REPLIES)
def test_a_link_with_a_lost_reply_has_published(
    table: MasterTable, steps: Steps, code: int
) -> None:
    """A file server created the link, its reply was lost, and the repeated request fails."""

    def lost() -> None:
        raise OSError(code, os.strerror(code))

    steps.after("link", manifest_name(2), lost)
    assert table.upsert(row(1, "mine")).version == 2
    assert verify(table.path) == []
    assert text_of(table.path, 1) == "mine"


def test_a_lost_reply_and_a_vacuumed_version_delete_nothing(
    table: MasterTable, steps: Steps
) -> None:
    """Published, superseded, vacuumed: the writer cannot know, and must not clean up."""

    def overtaken() -> None:
        newest = MasterTable.open(table.path)
        for key in (2, 3):
            newest = newest.upsert(row(key, "others"))
        newest.vacuum(keep=1)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    steps.after("link", manifest_name(2), overtaken)
    with pytest.raises(MasterTableError, match="may or may not have been published"):
        table.upsert(row(1, "mine"))
    assert verify(table.path) == []
    assert text_of(table.path, 1) == "mine", "the others built on it"


def test_a_folder_that_cannot_be_synced_keeps_the_version(table: MasterTable, steps: Steps) -> None:
    def broken() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    steps.before("sync_folder", "manifests", broken)
    with pytest.raises(MasterTableError, match="was published, but"):
        table.upsert(row(1, "mine"))
    assert verify(table.path) == []
    assert text_of(table.path, 1) == "mine"


def damage(table: MasterTable, version: int) -> None:
    file = Path(table.path) / manifest_name(version)
    file.write_bytes(file.read_bytes()[:-30])


def lose_segment(table: MasterTable, version: int) -> None:
    manifest = MasterTable.open(table.path, version).manifest
    (Path(table.path) / manifest.segments[-1].file).unlink()


def cut_segment(table: MasterTable, version: int) -> None:
    manifest = MasterTable.open(table.path, version).manifest
    os.truncate(Path(table.path) / manifest.segments[-1].file, 100)


@pytest.mark.parametrize("harm", [damage, lose_segment, cut_segment])
def test_vacuum_deletes_nothing_if_a_kept_version_cannot_be_opened(
    table: MasterTable, harm: object
) -> None:
    second = table.upsert(row(1, "x"))
    harm(table, 2)  # type: ignore[operator]
    before = segments(table)
    with pytest.raises(MasterTableError, match=r"version 2 .*nothing was deleted"):
        second.vacuum(keep=1)
    assert list_versions(table.store) == [1, 2]
    assert segments(table) == before
    assert MasterTable.open(table.path, 1).to_table().num_rows == 100


def test_vacuum_removes_old_versions_that_are_damaged(table: MasterTable) -> None:
    newest = table.upsert(row(1, "x")).upsert(row(2, "y"))
    damage(table, 1)
    assert newest.vacuum(keep=2).versions == 1
    assert list_versions(table.store) == [2, 3]
    assert [verify(table.path, version) for version in (2, 3)] == [[], []]


def several_versions(path: Path) -> MasterTable:
    table = MasterTable.build(numbers(20), path, key="id", unique=True)
    return table.upsert(row(1, "second")).upsert(row(1, "third"))


def every_step(
    tmp_path: Path, steps: Steps, action: Callable[[Path], object], other: Callable[[Path], object]
) -> Iterator[Path]:
    """Run ``action`` on a new copy of a table once per step; each time ``other`` runs before
    another step."""
    several_versions(tmp_path / "all")
    number = 0
    while True:
        path = tmp_path / f"copy-{number}"
        shutil.copytree(tmp_path / "all", path)
        steps.at(number, partial(other, path))
        action(path)
        if not steps.is_over:  # there is no such step
            steps.cancel()
            assert number > 5
            return
        yield path
        number += 1


def test_a_version_that_is_pinned_during_a_vacuum_stays_or_is_refused(
    tmp_path: Path, steps: Steps
) -> None:
    pinned: list[int | None] = []

    def pins_the_first(path: Path) -> None:
        try:
            pinned.append(pin(LocalStore(path), "query", 0, version=1))
        except MasterTableError as error:
            pinned.append(None if "version 1 of" in str(error) else -1)

    def vacuums(path: Path) -> None:
        MasterTable.open(path).vacuum(keep=1)

    for path in every_step(tmp_path, steps, vacuums, pins_the_first):
        if pinned[-1] is not None:
            assert MasterTable.open(path, 1).to_table().num_rows == 20
            assert verify(path, 1) == []
        MasterTable.open(path).vacuum(keep=1)
        versions = list_versions(LocalStore(path))
        assert versions == ([3] if pinned[-1] is None else [1, 3]), "no partial state is left"
    assert {1, None} == set(pinned), "both happened"


def test_a_pin_meets_a_vacuum_at_every_step(tmp_path: Path, steps: Steps) -> None:
    """The newest version is superseded and vacuumed while it is being pinned."""
    pinned: list[int] = []

    def overtakes(path: Path) -> None:
        MasterTable.open(path).upsert(row(2, "fourth")).vacuum(keep=1)

    for path in every_step(
        tmp_path, steps, lambda path: pinned.append(pin(LocalStore(path), "query", 0)), overtakes
    ):
        assert pin(LocalStore(path), "query", 0) == pinned[-1]
        assert verify(path, pinned[-1]) == []
        assert MasterTable.open(path, pinned[-1]).num_rows == 20
        MasterTable.open(path).vacuum(keep=1)
        assert set(list_versions(LocalStore(path))) == {pinned[-1], 4}
        assert not [name for name in LocalStore(path).list("pins") if name.startswith("hold")]
    assert {3, 4} == set(pinned), "both happened"


def test_a_table_opens_at_every_step_of_a_writer_and_a_vacuum(tmp_path: Path, steps: Steps) -> None:
    def overtakes(path: Path) -> None:
        MasterTable.open(path).upsert(row(2, "fourth")).compact().vacuum(keep=1)

    opened: list[int] = []

    def opens(path: Path) -> None:
        table = MasterTable.open(path)
        opened.append(table.version)
        assert table.to_table().num_rows == 20

    for path in every_step(tmp_path, steps, opens, overtakes):
        assert verify(path) == []
    assert {3, 5} == set(opened)


def test_a_vacuum_at_every_step_of_a_writer(tmp_path: Path, steps: Steps) -> None:
    def writes(path: Path) -> None:
        assert MasterTable.open(path).upsert(row(5, "mine")).version == 4

    def vacuums(path: Path) -> None:
        MasterTable.open(path).vacuum(keep=1)

    for path in every_step(tmp_path, steps, writes, vacuums):
        assert verify(path) == []
        assert text_of(str(path), 5) == "mine"


def test_a_writer_at_every_step_of_a_vacuum(tmp_path: Path, steps: Steps) -> None:
    def writes(path: Path) -> None:
        assert MasterTable.open(path).upsert(row(5, "mine")).version == 4

    def vacuums(path: Path) -> None:
        MasterTable.open(path).vacuum(keep=1)

    for path in every_step(tmp_path, steps, vacuums, writes):
        assert [verify(path, v) for v in list_versions(LocalStore(path))] in ([[]], [[], []])
        assert text_of(str(path), 5) == "mine"


def test_a_crashed_vacuum_is_completed_by_the_next(tmp_path: Path, steps: Steps) -> None:
    class DiedError(Exception):
        pass

    def dies(path: Path) -> None:
        raise DiedError

    def vacuums(path: Path) -> None:
        with contextlib.suppress(DiedError):
            MasterTable.open(path).vacuum(keep=1)

    for path in every_step(tmp_path, steps, vacuums, dies):
        store = LocalStore(path)
        assert [verify(path, version) for version in list_versions(store)][-1] == []
        MasterTable.open(path).vacuum(keep=1)
        assert store.list("manifests") == [Path(manifest_name(3)).name]
        assert not [name for name in store.list("work") if not name.startswith("clock")]


def test_a_writer_on_another_machine_is_not_removed(
    table: MasterTable, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks do not work across machines: a free lock proves nothing."""

    def vacuums_elsewhere() -> None:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(workspace, "this_machine", lambda: "another")
            elsewhere.setattr(Files, "lock", lambda *args, **kwargs: os.open("/dev/null", 0))
            MasterTable.open(table.path).vacuum(keep=1)

    steps.before("link", manifest_name(2), vacuums_elsewhere)
    assert table.upsert(row(1, "mine")).version == 2
    assert verify(table.path) == []
    assert text_of(table.path, 1) == "mine"


@pytest.mark.parametrize("step", ["create", "link"])
def test_a_writer_considered_dead_cannot_publish(
    table: MasterTable, steps: Steps, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Its machine was paused for longer than the grace period."""

    def a_week_later() -> None:
        (folder,) = (Path(table.path) / "work").iterdir()
        for path in [*folder.iterdir(), folder]:
            long_ago(path)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(workspace, "this_machine", lambda: "another")
            MasterTable.open(table.path).vacuum(keep=1)
        assert len(segments(table)) == 2

    steps.before(step, manifest_name(2) if step == "link" else "manifest.json", a_week_later)
    with pytest.raises(MasterTableError, match=r"considered it dead. Nothing was changed"):
        table.upsert(row(1, "late"))
    assert list_versions(table.store) == [1]
    assert verify(table.path) == []
    assert table.store.list("work") == []
    assert len(segments(table)) == 2


def test_a_lease_of_a_newer_release_stops_vacuum(table: MasterTable) -> None:
    newest = table.upsert(row(1, "x"))
    with Workspace(table.store) as living:
        lease = living.folder / "lease"
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "format_version": 9}))
        with pytest.raises(MasterTableError, match=r"lease has format version 9.*upgrade"):
            newest.vacuum(keep=1)
    assert list_versions(table.store) == [1, 2], "before anything was deleted"
    assert newest.vacuum(keep=1).versions == 1


def long_ago(path: Path) -> None:
    old = path.stat().st_mtime - workspace.GRACE - 60
    os.utime(path, (old, old))


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
def test_a_file_deleted_under_a_reader(
    table: MasterTable, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A vacuum on another machine deletes a file that is open here."""

    def vanished(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", vanished)
    with pytest.raises(MasterTableError, match=r"is missing.*another machine. Open the newest"):
        table.to_table()
