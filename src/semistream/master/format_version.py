"""Which versions of the files' format this release reads."""

from __future__ import annotations

from semistream.errors import MasterTableError


def check_format_version(what: object, found: object, current: int) -> None:
    """Raise if this release cannot read the format version of a file."""
    if type(found) is int and found == current:
        return
    if type(found) is int and 1 <= found < current:
        raise MasterTableError(
            f"{what} has format version {found}: an earlier release of semistream wrote it, and "
            f"this one reads version {current}. Build the table again from its source, with "
            "MasterTable.build(..., overwrite=True)"
        )
    raise MasterTableError(
        f"{what} has format version {found!r}, and this semistream reads {current}; "
        "upgrade semistream"
    )
