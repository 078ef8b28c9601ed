"""Which codes have changed since an older version. Runs ask when they move to a newer version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from semistream.errors import MasterTableError
from semistream.keys import Codes
from semistream.master import manifest as manifests
from semistream.master.changed import ChangedCodes
from semistream.master.manifest import Manifest

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


def changed_codes(table: MasterTable, since: int) -> Iterator[Codes] | None:
    """See :meth:`MasterTable.changed_codes`."""
    if since > table.version:
        return None
    lists: list[Codes] = []
    current: Manifest = table.manifest
    try:
        while current.version > since:
            if current.kind == "build" or current.parent is None:
                return None
            if current.changed is not None:
                held = table.pages.codes_in_memory(current.changed.name)
                if held is None:
                    held = ChangedCodes.read(table.store, current.changed).codes
                lists.append(held)
            if current.parent <= since:
                break
            current = manifests.read_manifest(table.store, current.parent)
    except MasterTableError:  # vacuumed
        return None
    return reversed(lists)


def codes_of_newer_deltas(table: MasterTable, before: Manifest) -> Iterator[Codes] | None:
    """All codes of the deltas that an older version with the same base does not have."""
    if before.version > table.version:
        return None
    newer = [info for info in table.manifest.deltas if info not in before.deltas]
    try:
        lists = [ChangedCodes.read(table.store, info.changed) for info in newer if info.changed]
    except MasterTableError:  # vacuumed, too
        return None
    return (changed.codes for changed in lists)
