"""The newest version of a table, while writers publish others and a vacuum removes old ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from semistream.errors import MasterTableError
from semistream.master import manifest as manifests
from semistream.master.manifest import Manifest
from semistream.master.store import LocalStore

Opened = TypeVar("Opened")


def open_version(
    store: LocalStore, version: int | None, opened: Callable[[Manifest], Opened]
) -> Opened:
    """Open a version by its manifest; default: the newest."""
    while True:
        manifest = manifests.read_manifest(store, version)
        try:
            return opened(manifest)
        except MasterTableError:
            # It may have been vacuumed meanwhile; then there is a newer version to open.
            newest = manifests.list_versions(store)[-1:]
            if version is not None or newest <= [manifest.version]:
                raise


class NewestVersion:
    """Looks for versions after ``version``."""

    def __init__(self, store: LocalStore, version: int) -> None:
        self._store = store
        self._version = version
        names = map(manifests.manifest_name, (version, version + 1))
        self._own, self._following = map(store.path, names)

    def find(self) -> int:
        """The newest published version; costs two file look-ups if nothing changed."""
        exists = self._store.files.exists
        if not exists(self._following) and exists(self._own):
            return self._version
        versions = manifests.list_versions(self._store)
        return versions[-1] if versions else self._version
