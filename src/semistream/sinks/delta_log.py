"""Whether the newest entry of a Delta log is whole.

delta-rs gives an entry its name before the disk has its content, and the sink syncs it right
afterwards. If the power fails in between, the entry may be empty or cut short. Cut after a whole
line, it would even be read: with files of the batch, but without the transaction that says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semistream.errors import SemistreamError


def refuse_torn(path: Path) -> None:
    """Refuse a table whose newest log entry was cut short."""
    entries = [e for e in (path / "_delta_log").glob("*.json") if e.stem.isdigit()]
    newest = max(entries, default=None)
    if newest is not None and not _is_whole(newest):
        raise SemistreamError(
            f"{newest} is cut short: the power failed while it was written, before its batch was "
            "acknowledged. Delete this file and start the query again, which repeats the batch"
        )


def _is_whole(entry: Path) -> bool:
    try:
        actions: list[dict[str, Any]] = [json.loads(s) for s in entry.read_bytes().splitlines()]
    except ValueError:
        return False
    kinds = {kind for action in actions for kind in action}
    commit: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    if "query" in commit and "batch" in commit:
        return "txn" in kinds  # it comes last
    return bool(actions) and (int(entry.stem) > 0 or "metaData" in kinds)
