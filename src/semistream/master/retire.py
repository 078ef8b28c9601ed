"""Taking a version away in two steps, so that a pin that is made at the same moment wins.

    vacuum                                      a reader
    1  rename N.json to N.<token>.retired       1  write a pin of N
    2  read the pins                            2  is N.json there? Then it is pinned.
    3  pinned: link it back; else delete it        retired? Link it back, and it is pinned.
                                                   neither? Then it is gone: pin another.

If the reader found ``N.json`` before it was retired, its pin was there before vacuum read the pins.
If it comes later, it meets the retired file; then either its link or vacuum's unlink comes first,
and both know which. The token is different for every vacuum: none deletes what another retired
after the pins were read. A vacuum that died leaves retired files to the next one.
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
    """Step 1; nothing if another vacuum was faster."""
    with contextlib.suppress(FileNotFoundError):
        store.files.rename(
            store.path(manifest_name(version)), store.path(retired_name(version, token))
        )


def restore(store: LocalStore, name: str, version: int) -> bool:
    """Link a retired manifest back; False if it was deleted."""
    try:
        store.files.link(store.path(name), store.path(manifest_name(version)))
    except FileExistsError:  # another reader did it
        pass
    except FileNotFoundError:
        return False
    folder = store.path(FOLDER)
    with writing(folder):  # a crash must not lose the new name and keep the old one deleted
        store.files.sync_folder(folder)
    store.delete(name)
    return True


def keep(store: LocalStore, version: int) -> bool:
    """The reader's step 2: whether the version is there to stay, now that a pin names it."""
    # A look that falls into a rename may miss both names; the next one does not.
    for _ in range(3):
        if version in list_versions(store):
            return True
        retired = [name for name, number in list_retired(store).items() if number == version]
        if any(restore(store, name, version) for name in retired):
            return True
    return False
