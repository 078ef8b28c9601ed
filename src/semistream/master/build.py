"""Building a table: check, sort, write, publish. Nothing is visible before the last step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from semistream.errors import ConfigError, MasterTableError, SchemaError
from semistream.keys import Codes
from semistream.master import manifest as manifests
from semistream.master.codes import KeyCodes
from semistream.master.history import History, Validity
from semistream.master.manifest import Manifest
from semistream.master.progress import Progress, Report, reporting
from semistream.master.segment import SegmentWriter
from semistream.master.sort import ExternalSort
from semistream.master.source import Source, open_source
from semistream.master.storage_types import drop_null_keys, storage_schema, to_storage
from semistream.master.store import LocalStore, PublishInDoubtError
from semistream.master.vacuum import remove_orphans
from semistream.master.workspace import UNPUBLISHED, Workspace
from semistream.memory import parse_size

_FOLDERS = ("segments", "manifests", "work", "pins")


def build(
    data: Any,
    path: str | os.PathLike[str],
    key: str | Sequence[str],
    unique: bool,
    page_bytes: int | str,
    memory: int | str,
    overwrite: bool,
    progress: Progress,
    history: History | None = None,
) -> int:
    """Write a table. Returns the published version."""
    key = _key_names(key)
    page_size = parse_size(page_bytes, "page_bytes")
    sort_bytes = parse_size(memory, "memory")
    from semistream.master.sync.begin import start_following  # which needs this module

    data, follow = start_following(data, key)
    source = open_source(data)
    schema = storage_schema(source.schema, key)
    stored = schema
    if history is not None:
        history.check(schema, key)
        stored = history.stored(schema)
        if unique:
            raise ConfigError("unique=True, but with history a key has several rows; choose one")
    store = LocalStore(path)
    parent = _claim(store, overwrite)
    with _tidy(store), Workspace(store) as workspace, reporting(progress) as report:
        with contextlib.suppress(MasterTableError):  # the old version may be damaged
            remove_orphans(store)
        sort, rows_without_key = sort_by_code(
            source, KeyCodes(schema, key), workspace, sort_bytes, report
        )
        written = 0
        with SegmentWriter(
            store, workspace.token, "base", stored, key, page_size, "refuse" if unique else "keep"
        ) as writer:
            rows = sort.sorted()
            if history is not None:
                rows = Validity(KeyCodes(schema, key), history).added(rows)
            for batch in rows:
                writer.write(batch)
                written += batch.num_rows
                report("write", written, sort.rows)
        segment = writer.info
        manifest = Manifest(
            version=1 if parent is None else parent + 1,
            parent=parent,
            kind="build",
            created=manifests.now(),
            schema=stored,
            key=key,
            unique=bool(unique),
            page_bytes=page_size,
            num_rows=segment.rows,
            rows_without_key=rows_without_key,
            segments=(segment,),
            history=history,
            sync=follow(segment.rows),
        )
        publish(store, workspace, manifest, segment.files)
    return manifest.version


def sort_by_code(
    source: Source,
    codes: KeyCodes,
    workspace: Workspace,
    memory: int,
    report: Report = lambda stage, done, total: None,
    note: Callable[[Codes], object] = lambda codes: None,
) -> tuple[ExternalSort, int]:
    """Rows of a source, ready to be sorted. Also returns the number of rows with a null key.

    ``note`` is called with the codes of each batch.
    """
    sort = ExternalSort(codes.schema, codes.column, memory, workspace.folder)
    seen = 0
    for batch in source.batches(sort.run_bytes // 8):
        seen += batch.num_rows
        rows = codes.add(drop_null_keys(to_storage(batch, codes.rows_schema), codes.key))
        note(codes.stored(rows))
        sort.add(rows)
        report("sort", seen, source.num_rows)
    return sort, seen - sort.rows


def publish(
    store: LocalStore, workspace: Workspace, manifest: Manifest, written: Sequence[str]
) -> None:
    """Publish the version; if another writer published first, delete what was written, and raise.

    The hard link decides the race. Nothing that was ever visible is deleted, because other versions
    may be based on it. No version number is used twice: vacuum removes the scratch manifest of a
    writer that lost the race before it deletes a version.
    """

    def is_next() -> bool:
        return max(manifests.list_versions(store), default=None) == manifest.parent

    name = manifests.manifest_name(manifest.version)
    scratch = workspace.scratch(UNPUBLISHED)
    try:
        if store.publish(name, manifest.to_json(), scratch, is_next):
            return
    except PublishInDoubtError:
        raise
    except MasterTableError:
        remove_unpublished(store, manifest, written)
        raise
    remove_unpublished(store, manifest, written)
    if is_next():
        raise MasterTableError(
            f"version {manifest.version} of {store.root} cannot be published: the workspace of "
            "this writer was removed, because a vacuum on another machine considered it dead. "
            "Nothing was changed; repeat the change"
        )
    newest = max(manifests.list_versions(store), default=None)
    raise MasterTableError(
        f"version {manifest.version} of {store.root} cannot be published: it starts from "
        f"version {manifest.parent}, and another writer has published up to version {newest}. "
        "Nothing was changed; open the newest version and repeat the change"
    )


def remove_unpublished(store: LocalStore, manifest: Manifest, written: Sequence[str]) -> None:
    """Delete new files that no version lists. Their names are unique, so a version that lists
    one is this version or based on it."""
    for version in manifests.list_versions(store):
        if version >= manifest.version:
            try:
                found = manifests.read_manifest(store, version)
            except MasterTableError:  # damaged or just vacuumed: leave the files to a vacuum
                return
            if not found.files.isdisjoint(written):
                return
    for file in written:
        store.delete(file)


def _key_names(key: Any) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise SchemaError(f"key={key!r} is neither a column name nor a list of names")
    return tuple(names)


def _claim(store: LocalStore, overwrite: bool) -> int | None:
    """The parent version; raises if the folder contains anything but a master table."""
    root = store.root
    if root.exists() and not root.is_dir():
        raise MasterTableError(f"{root} is a file; give a folder for the master table")
    versions = manifests.list_versions(store)
    if versions and not overwrite:
        raise MasterTableError(
            f"{root} already holds version {versions[-1]} of a master table; open it, choose "
            "another path, or publish a new version over it with overwrite=True (--overwrite)"
        )
    if not versions and root.exists():
        foreign = sorted(p.name for p in root.iterdir() if p.name not in _FOLDERS)
        if foreign:
            raise MasterTableError(
                f"{root} contains {foreign[0]!r} and is not a master table; choose an empty folder"
            )
    return versions[-1] if versions else None


@contextlib.contextmanager
def _tidy(store: LocalStore) -> Iterator[None]:
    """Remove empty folders after a failed first build."""
    existed = store.root.exists()
    try:
        try:
            store.make_folder(store.root)
        except OSError as error:
            raise ConfigError(f"{store.root} cannot be created: {error.strerror}") from error
        yield
    except BaseException:
        if not existed:
            with contextlib.suppress(OSError):  # another writer uses the folder
                for folder in ("work", *_FOLDERS, ""):
                    if (store.root / folder).exists():
                        store.files.rmdir(store.root / folder)
        raise
