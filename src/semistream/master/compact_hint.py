"""Suggests compacting a table whose deltas have grown large."""

from __future__ import annotations

import logging

from semistream.master.manifest import Manifest

_LOG = logging.getLogger(__name__)
_SHARE = 0.1  # of the base's rows: more makes the index large, and spreads reads
_suggested: set[str] = set()


def suggest_compact(path: str, manifest: Manifest) -> None:
    """Log it once per table and process."""
    share = manifest.delta_share
    if share > _SHARE and path not in _suggested:
        _suggested.add(path)
        _LOG.info(
            "%s: %d deltas have changed %.0f %% of the base's rows; compact() merges them",
            path,
            len(manifest.deltas),
            100 * share,
        )
