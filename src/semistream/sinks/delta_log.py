"""Whether the newest entry of a Delta log is complete.

delta-rs publishes an entry before its content is synced, and the sink syncs it right afterwards.
After a power failure in between, the entry may be empty or truncated. Truncated after a complete
line, it would still be read: with files of the batch, but without the batch's transaction.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semistream.errors import SemistreamError


def check_log_complete(path: Path) -> None:
    """Raise if the table's newest log entry is truncated."""
    entries = [e for e in (path / "_delta_log").glob("*.json") if e.stem.isdigit()]
    newest = max(entries, default=None)
    if newest is not None and not _is_complete(newest):
        raise SemistreamError(
            f"{newest} is truncated: the power failed while it was written, before its batch was "
            "acknowledged. Delete this file and restart the query, which replays the batch"
        )


def _is_complete(entry: Path) -> bool:
    try:
        actions: list[dict[str, Any]] = [json.loads(s) for s in entry.read_bytes().splitlines()]
    except ValueError:
        return False
    kinds = {kind for action in actions for kind in action}
    commit: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    if "query" in commit and "batch" in commit:
        return "txn" in kinds  # the transaction is the last line
    return bool(actions) and (int(entry.stem) > 0 or "metaData" in kinds)
