"""Removing old versions and the litter of dead writers, never what somebody still needs."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.errors import ConfigError, MasterTableError
from semistream.master import manifest as manifests
from semistream.master.pins import pinned_versions
from semistream.master.store import LocalStore
from semistream.master.workspace import living_tokens

_SEGMENTS = "segments"


@dataclass(frozen=True)
class Vacuumed:
    """What was removed."""

    versions: int
    files: int
    bytes: int


def vacuum(store: LocalStore, keep: int) -> Vacuumed:
    """Keep the newest ``keep`` versions, those that a replay may ask for, and all their files."""
    if keep < 1:
        raise ConfigError(f"keep={keep} would delete the table itself; keep at least 1 version")
    versions = manifests.list_versions(store)
    pinned = pinned_versions(store)
    doomed = [version for version in versions[:-keep] if version not in pinned]
    for version in doomed:
        store.delete(manifests.manifest_name(version))
    files, nbytes = remove_orphans(store)
    return Vacuumed(len(doomed), files, nbytes)


def remove_orphans(store: LocalStore) -> tuple[int, int]:
    """Delete segment files that no manifest names and no living writer is writing.

    The order matters. Whoever is alive when the files are listed keeps them; whoever was done
    by then has published, so reading the manifests afterwards finds everything in use.
    """
    alive = living_tokens(store)
    listed = store.list(_SEGMENTS)
    alive |= living_tokens(store)
    used = set()
    for version in manifests.list_versions(store):
        try:
            manifest = manifests.read_manifest(store, version)
        except MasterTableError:
            if store.size(manifests.manifest_name(version)) is None:
                continue  # vacuumed by somebody else just now
            raise  # unreadable: nobody knows what it needs, so nothing is safe to delete
        for segment in manifest.segments:
            used |= {segment.name, segment.index}
    files = nbytes = 0
    for name in listed:
        if name in used or name.split(".")[0] in alive:
            continue
        nbytes += store.size(f"{_SEGMENTS}/{name}") or 0
        store.delete(f"{_SEGMENTS}/{name}")
        files += 1
    return files, nbytes
