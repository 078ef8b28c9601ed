"""A master table after a crash at any point of any change: the old or the new version, whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from reliability.crash_points import QUICK_AND_SLOW, try_all
from reliability.disk import Crash, Loss
from reliability.grace import grace_is_over
from reliability.recorder import recording
from reliability.tally import Tally
from semistream.errors import MasterTableError
from semistream.master import MasterTable, verify
from semistream.master.manifest import list_versions, manifest_name
from semistream.master.pins import pin

Rows = list[tuple[int, str]]


def table(*rows: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [k for k, _ in rows], "text": [t for _, t in rows]})


def build(path: Path, overwrite: bool = False) -> MasterTable:
    word = "rebuilt" if overwrite else "built"
    rows = table(*((k, 40 * word) for k in range(300)))  # more than sorting has room for
    return MasterTable.build(
        rows, path, key="id", unique=True, page_bytes=20_000, memory=40_000, overwrite=overwrite
    )


def versions(path: Path) -> None:
    """Versions 1 to 3; the newest has two deltas."""
    build(path).upsert(table((3, "three"), (500, "new"))).delete([5, 7])


def newest(path: Path) -> MasterTable:
    return MasterTable.open(path)


@dataclass(frozen=True)
class Change:
    """Something that is done to a table, and what was there before."""

    prepare: Callable[[Path], None]
    apply: Callable[[Path], object]


CHANGES = {
    "build": Change(lambda path: None, build),
    "rebuild": Change(versions, lambda path: build(path, overwrite=True)),
    "upsert": Change(versions, lambda path: newest(path).upsert(table((3, "x"), (700, "y")))),
    "delete": Change(versions, lambda path: newest(path).delete([3, 4, 500])),
    "compact": Change(versions, lambda path: newest(path).compact()),
    "vacuum": Change(versions, lambda path: newest(path).vacuum(keep=2)),
}


def contents(path: Path) -> dict[int, Rows]:
    """The rows of every version."""
    if not path.exists():
        return {}
    found = {}
    for version in list_versions(MasterTable.open(path).store):
        data = MasterTable.open(path, version).to_table()
        found[version] = list(zip(*data.to_pydict().values(), strict=True))
    return found


@pytest.mark.parametrize("losses", QUICK_AND_SLOW)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_atomic(
    name: str, losses: Sequence[Loss], tmp_path: Path, tally: Tally
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    change = CHANGES[name]
    change.prepare(disk / "t")
    before = contents(disk / "t")
    with recording(disk) as recorder:
        change.apply(disk / "t")
    after = contents(disk / "t")
    points = try_all(
        recorder,
        losses,
        tmp_path,
        lambda place, crash: check(place / "t", crash, change, before, after),
    )
    tally("crash points of master tables", points)


def check(
    path: Path, crash: Crash, change: Change, before: dict[int, Rows], after: dict[int, Rows]
) -> None:
    old, new = max(before, default=None), max(after)
    try:
        found = MasterTable.open(path).version
    except MasterTableError:
        found = None  # right only if there was no table before
    assert found == new or (found == old and not crash.is_done)
    if found is not None:
        assert verify(path) == []
        there, known = contents(path), before | after
        assert there == {version: known[version] for version in there}
        assert there.keys() >= before.keys() & after.keys()
    if found != new or before.keys() - after.keys():  # the second is a vacuum, which may repeat
        change.apply(path)
    with grace_is_over():
        MasterTable.open(path).vacuum(keep=1)
    assert contents(path) == {new: after[new]}
    used = MasterTable.open(path).manifest.files
    files = sorted(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file())
    assert files == sorted([manifest_name(new), *used])


@pytest.mark.parametrize("follows", [False, True], ids=["new", "linked"])
@pytest.mark.parametrize("losses", QUICK_AND_SLOW)
def test_a_pin_survives_a_crash(
    losses: Sequence[Loss], follows: bool, tmp_path: Path, tally: Tally
) -> None:
    """Once it was given, a replay gets the same version, whatever was published since; also if it
    is a second name of the pin of the batch before."""
    disk = tmp_path / "disk"
    disk.mkdir()
    versions(disk / "t")
    if follows:
        pin(newest(disk / "t").store, "query", 6)
    with recording(disk) as recorder:
        pinned = pin(newest(disk / "t").store, "query", 7)

    def check(place: Path, crash: Crash) -> None:
        changed = newest(place / "t").upsert(table((1, "later")))
        again = pin(changed.store, "query", 7)
        assert again == pinned or (again == changed.version and not crash.is_done)
        changed.upsert(table((1, "even later"))).vacuum(keep=1)
        assert again in list_versions(changed.store)
        assert MasterTable.open(place / "t", again).num_rows > 0
        assert pin(changed.store, "query", 7) == again

    tally("crash points of pins", try_all(recorder, losses, tmp_path, check))
