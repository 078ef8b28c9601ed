"""Schedules of writers, vacuums and readers of one master table, and what must hold in each."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from reliability.grace import grace_is_over
from reliability.light_table import SCHEMA
from reliability.scheduler import Killed, Scheduler, Task, seeded_names
from semistream.errors import MasterTableError
from semistream.master import MasterTable, build, changes
from semistream.master.build import publish
from semistream.master.manifest import Manifest, list_versions
from semistream.master.pins import pin
from semistream.master.store import LocalStore

Rows = dict[int, str]
KINDS = ("upsert", "upsert", "delete", "compact", "build")


def data(rows: Rows) -> pa.Table:
    return pa.table({"id": list(rows), "text": list(rows.values())}, schema=SCHEMA)


@dataclass(frozen=True)
class Change:
    """The change of one writer; its text is unique, so that its rows can be identified."""

    kind: str
    key: int
    text: str

    def make(self, kind: type[MasterTable], path: Path) -> MasterTable:
        if self.kind == "build":
            rows = data(self.after({}))
            return kind.build(rows, path, key="id", unique=True, overwrite=True)
        table = kind.open(path)
        if self.kind == "upsert":
            return table.upsert(data({self.key: self.text}))
        if self.kind == "delete":
            return table.delete([self.key])
        return table.compact()

    def after(self, rows: Rows) -> Rows:
        if self.kind == "upsert":
            return rows | {self.key: self.text}
        if self.kind == "delete":
            return {key: text for key, text in rows.items() if key != self.key}
        if self.kind == "build":
            return dict.fromkeys((0, 1, 9), self.text)
        return rows


@dataclass
class World:
    """One table, its tasks, and what they observed."""

    kind: type[MasterTable]
    path: Path
    known: dict[int, Rows]
    writers: dict[int, Change] = field(default_factory=dict)
    published: list[tuple[int, Change]] = field(default_factory=list)
    seen: list[tuple[int, Rows]] = field(default_factory=list)
    pinned: dict[tuple[str, int], int] = field(default_factory=dict)

    def rows(self, table: Any) -> Rows:
        if hasattr(table, "rows"):
            return dict(table.rows)
        columns = table.to_table().to_pydict()
        return dict(zip(columns["id"], columns["text"], strict=True))

    def writer(self, change: Change) -> Task:
        def run() -> None:
            self.writers[threading.get_ident()] = change
            for _ in range(3):
                try:
                    change.make(self.kind, self.path)
                    return
                except MasterTableError as error:
                    if "another writer has published" not in str(error):
                        raise

        return run

    def publish(self, store: Any, workspace: Any, manifest: Manifest, written: Any) -> None:
        """Replaces the real one, to record who published what."""
        publish(store, workspace, manifest, written)
        self.published.append((manifest.version, self.writers[threading.get_ident()]))

    def vacuum(self, keep: int) -> Task:
        def run() -> None:
            self.kind.open(self.path).vacuum(keep=keep)

        return run

    def reader(self) -> Task:
        """Opens the newest version, and reads it a little later."""

        def run() -> None:
            table = self.kind.open(self.path)
            self.seen.append((table.version, self.rows(table)))

        return run

    def query(self, name: str, batches: int) -> Task:
        """Pins and reads a version for each batch; another task of the batch sees the same."""

        def run() -> None:
            store = LocalStore(self.path)
            for batch in range(batches):
                version = self.pinned[name, batch] = pin(store, name, batch)
                table = self.kind.open(self.path, version)
                self.seen.append((version, self.rows(table)))
                assert pin(store, name, batch) == version

        return run


def run_schedule(scheduler: Scheduler, world: World, seed: int) -> None:
    """Run one schedule and check everything that must hold."""
    chance = random.Random(seed)
    writers = [
        Change(chance.choice(KINDS), chance.randrange(5), f"writer {number}")
        for number in range(chance.choice([1, 2, 2]))
    ]
    tasks = [world.writer(change) for change in writers]
    others = [
        world.vacuum(1),
        world.vacuum(1),
        world.vacuum(2),
        world.query("q", 1),
        world.query("q", 2),
        world.reader(),
    ]
    tasks += chance.sample(others, chance.choice([1, 2, 2]))
    kill = [chance.randrange(len(tasks))] if chance.random() < 0.4 else []
    with (
        seeded_names(chance),
        mock.patch.object(build, "publish", world.publish),
        mock.patch.object(changes, "publish", world.publish),
    ):
        outcomes = scheduler.run(tasks, seed, kill)
        for number, outcome in enumerate(outcomes):
            if isinstance(outcome, BaseException) and not (
                isinstance(outcome, Killed) and number in kill
            ):
                raise outcome
        killed = [writers[number] for number in kill if number < len(writers)]
        check(world, [change for change in killed if change not in dict(world.published).values()])
        if seed % 8 == 0:
            check_vacuum(world)


def check(world: World, killed: list[Change]) -> None:
    """``killed``: writers that were killed before they knew whether they had published."""
    there = list_versions(LocalStore(world.path))
    by_version = dict(world.published)
    assert len(by_version) == len(world.published), "two writers published the same version"
    newest = max(there)
    assert all(version <= newest for version in by_version), "a published version is lost"
    known = dict(world.known)
    for version in range(max(known) + 1, newest + 1):
        change = by_version.get(version)
        if change is None:
            assert killed, f"version {version} was published by a writer that reported failure"
            change = killed.pop()
        known[version] = change.after(known[version - 1])
    for version in there:
        assert world.rows(world.kind.open(world.path, version)) == known[version]
    for version, rows in world.seen:
        assert rows == known[version], f"a reader of version {version} saw other rows"
    for (name, batch), version in world.pinned.items():
        assert pin(LocalStore(world.path), name, batch) == version
        assert version in there, f"version {version} is pinned and gone"


def check_vacuum(world: World) -> None:
    """When all are gone, a vacuum leaves what is in use and nothing else."""
    before = world.rows(world.kind.open(world.path))
    with grace_is_over():
        world.kind.open(world.path).vacuum(keep=1)
    left = world.kind.open(world.path)
    assert world.rows(left) == before
    used = {
        file
        for version in list_versions(left.store)
        for file in world.kind.open(world.path, version).manifest.files
    }
    found = {f"segments/{name}" for name in left.store.list("segments")}
    assert found == used, "garbage is left, or a file in use was removed"
    assert left.store.list("work") == []


class Template:
    """A table with two versions; a copy of it costs a few links."""

    def __init__(self, kind: type[MasterTable], path: Path) -> None:
        self.kind, self.path = kind, path
        table = kind.build(data(dict.fromkeys(range(5), "built")), path, key="id", unique=True)
        table = table.upsert(data({1: "upserted"}))
        world = World(kind, path, {})
        self.known = {
            version: world.rows(kind.open(path, version)) for version in list_versions(table.store)
        }

    @contextlib.contextmanager
    def copy(self, path: Path) -> Iterator[World]:
        for folder, _, files in os.walk(self.path):
            target = path / os.path.relpath(folder, self.path)
            target.mkdir()
            for file in files:
                os.link(os.path.join(folder, file), target / file)
        yield World(self.kind, path, dict(self.known))
        for folder, folders, files in os.walk(path, topdown=False):
            for file in files:
                os.unlink(os.path.join(folder, file))
            for name in folders:
                os.rmdir(os.path.join(folder, name))
        os.rmdir(path)
