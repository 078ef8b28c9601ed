"""Deletes a version in two steps, so that a concurrent pin wins.

    vacuum                                      a reader
    1  rename N.json to N.<token>.retired       1  write a pin of N
    2  read the pins                            2  N.json exists: it is pinned.
    3  pinned: link it back; else delete it        retired: link it back, then it is pinned.
                                                   neither: it is deleted; pin another.

If the reader found ``N.json`` before it was retired, its pin existed before vacuum read the pins.
If it comes later, it finds the retired file; then either its link or vacuum's unlink comes first,
and both can detect which. Every vacuum has its own token, so none deletes what another retired
after the pins were read. A crashed vacuum leaves retired files to the next one.
"""

from __future__ import annotations

import contextlib

from semistream.master.manifest import (
    FOLDER,
    list_retired,
    list_versions,
    manifest_name,
    retired_name,
)
from semistream.master.store import LocalStore, writing


def retire(store: LocalStore, version: int, token: str) -> None:
    """Step 1; a no-op if another vacuum was first."""
    with contextlib.suppress(FileNotFoundError):
        store.files.rename(
            store.path(manifest_name(version)), store.path(retired_name(version, token))
        )


def restore(store: LocalStore, name: str, version: int) -> bool:
    """Link a retired manifest back; False if it was deleted."""
    try:
        store.files.link(store.path(name), store.path(manifest_name(version)))
    except FileExistsError:  # another reader restored it
        pass
    except FileNotFoundError:
        return False
    folder = store.path(FOLDER)
    with writing(folder):  # a crash must not lose both names
        store.files.sync_folder(folder)
    store.delete(name)
    return True


def keep(store: LocalStore, version: int) -> bool:
    """The reader's step 2: whether the version exists and is protected by the pin."""
    # A listing during a rename may miss both names; the next one does not.
    for _ in range(3):
        if version in list_versions(store):
            return True
        retired = [name for name, number in list_retired(store).items() if number == version]
        if any(restore(store, name, version) for name in retired):
            return True
    return False
