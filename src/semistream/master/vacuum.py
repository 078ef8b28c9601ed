"""Removes old versions and the files of dead writers, never files that are in use.

prove    that all versions to keep can be opened; otherwise delete nothing
stop     writers that lost the race, so that no version number is used twice
retire   the manifests of old versions, read the pins again, delete those not pinned
sweep    files that no manifest lists, if they belonged to a version that was just removed
         or to a dead writer, or are older than a live writer's longest inactivity
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass

from semistream.errors import ConfigError, MasterTableError
from semistream.master import manifest as manifests
from semistream.master.changed import ChangedCodes
from semistream.master.manifest import Manifest
from semistream.master.pins import expire_idle, pinned_versions
from semistream.master.reader import open_segment
from semistream.master.retire import restore, retire
from semistream.master.store import LocalStore, writing
from semistream.master.workspace import GRACE, Writers, stop_superseded, survey

_SEGMENTS = "segments"


@dataclass(frozen=True)
class Vacuumed:
    """What was removed."""

    versions: int
    files: int
    bytes: int


def vacuum(store: LocalStore, keep: int) -> Vacuumed:
    """Keep the newest ``keep`` versions, those that a replay may read, and all their files."""
    if keep < 1:
        raise ConfigError(f"keep={keep} would delete the table itself; keep at least 1 version")
    versions = manifests.list_versions(store)
    if not versions:
        manifests.read_manifest(store)  # raises: there is no table
    now = store.clock()
    expire_idle(store, now)
    pinned = pinned_versions(store)
    doomed = [version for version in versions[:-keep] if version not in pinned]
    for version in versions:
        if version not in doomed:
            _prove(store, version)
    writers = survey(store, now)
    stop_superseded(store, versions[-1])
    token = uuid.uuid4().hex
    for version in doomed:
        retire(store, version, token)
    removed, unneeded = _delete_retired(store)
    files, nbytes = _sweep(store, now, writers, unneeded)
    return Vacuumed(removed, files, nbytes)


def _prove(store: LocalStore, version: int) -> None:
    """Raise if the version cannot be opened, unless another vacuum has just removed it."""
    try:
        manifest = manifests.read_manifest(store, version)
        for info in manifest.segments:
            open_segment(store, manifest, info).close()
            if info.changed is not None:
                ChangedCodes.read(store, info.changed)
            size = store.size(info.file)
            if size != info.bytes:
                raise MasterTableError(
                    f"{store.path(info.file)} has {size} bytes instead of {info.bytes}"
                )
    except MasterTableError as error:
        if version not in manifests.list_versions(store):
            return
        raise MasterTableError(
            f"version {version} of {store.root} cannot be opened, and nothing was deleted: "
            f"{error}. Repair it, or abandon it: delete "
            f"{store.path(manifests.manifest_name(version))}"
        ) from error


def _delete_retired(store: LocalStore) -> tuple[int, set[str]]:
    """Returns the number of deleted versions, and the files that they listed."""
    retired = manifests.list_retired(store)  # including those of a crashed vacuum
    pinned = pinned_versions(store)
    removed = 0
    unneeded = set()
    for name, version in retired.items():
        if version in pinned:
            restore(store, name, version)
            continue
        unneeded |= _files_of(_readable(store, name, version))
        store.delete(name)
        removed += 1
    if retired:
        folder = store.path(manifests.FOLDER)
        with writing(folder):  # before any of their files is deleted
            store.files.sync_folder(folder)
    return removed, unneeded


def remove_orphans(store: LocalStore) -> tuple[int, int]:
    """Delete segment files that no manifest lists and no live writer is writing."""
    now = store.clock()
    return _sweep(store, now, survey(store, now), ())


def _sweep(
    store: LocalStore, now: float, writers: Writers, unneeded: Collection[str]
) -> tuple[int, int]:
    """Returns the number of deleted files, and their bytes.

    The order matters. Files of writers that were alive before the listing are kept; writers that
    had finished by then have published, so reading the manifests afterwards finds all files in
    use. ``unneeded``: files of versions that were just deleted.
    """
    listed = store.list(_SEGMENTS)
    used = _used(store)
    files = nbytes = 0
    for name in listed:
        file, token = f"{_SEGMENTS}/{name}", name.split(".")[0]
        if file in used:
            continue
        is_litter = file in unneeded or token in writers.dead
        if not is_litter and (
            token in writers.alive or now - (store.modified(file) or now) <= GRACE
        ):
            continue
        nbytes += store.size(file) or 0
        store.delete(file)
        files += 1
    return files, nbytes


def _used(store: LocalStore) -> set[str]:
    """Files of all versions, including those that may still be restored."""
    used = set()
    for _ in range(2):  # a manifest renamed during one listing is found by the other
        for version in manifests.list_versions(store):
            try:
                used |= _files_of(manifests.read_manifest(store, version))
            except MasterTableError:
                # Unreadable: its files are unknown, so nothing is safe to delete.
                if store.size(manifests.manifest_name(version)) is not None:
                    raise
        for name, version in manifests.list_retired(store).items():
            used |= _files_of(_readable(store, name, version))
    return used


def _readable(store: LocalStore, name: str, version: int) -> Manifest | None:
    try:
        return manifests.find_manifest(store, name, version)
    except MasterTableError:
        return None


def _files_of(manifest: Manifest | None) -> set[str]:
    return set() if manifest is None else manifest.files
