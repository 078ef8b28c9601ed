"""The newest version of a table, while writers publish others and a vacuum removes old ones."""

from __future__ import annotations

import os
import weakref
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
        self._paths = [store.path(name) for name in names]
        self._own, self._following = map(str, self._paths)
        self._folder: int | None = None
        self._is_open = False

    def find(self) -> int:
        """The newest published version; costs two file look-ups if nothing changed."""
        if not self._is_open:
            self._open_folder()
        exists, folder = self._store.files.exists, self._folder
        if not exists(self._following, folder) and exists(self._own, folder):
            return self._version
        versions = manifests.list_versions(self._store)
        return versions[-1] if versions else self._version

    def _open_folder(self) -> None:
        """Later calls need not follow the folder's path. If another folder takes its place, the own
        version is missing in this one, and :meth:`find` looks by path."""
        self._is_open = True
        path_only = getattr(os, "O_PATH", 0)
        try:
            self._folder = self._store.files.open(self._paths[0].parent, path_only)
        except OSError:  # as on Windows
            return
        weakref.finalize(self, os.close, self._folder)
        self._own, self._following = (path.name for path in self._paths)
