"""The newest records of all queries, for readers that ask only for what is new."""

from __future__ import annotations

import threading
import uuid
from typing import Any

MOST_KEPT = 1000  # records, of all queries together


class Feed:
    """Records of micro-batches with serial numbers, and the state of their queries.

    A reader names the epoch and the serial number that it has seen. A feed of another process has
    another epoch, and its reader starts again.

    >>> feed = Feed()
    >>> feed.add({"query": "a", "batch": 0})
    >>> seen = feed.since(None, 0)
    >>> seen["records"], seen["next"]
    ([{'query': 'a', 'batch': 0}], 1)
    >>> feed.since(seen["epoch"], seen["next"])["records"]
    []
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._epoch = uuid.uuid4().hex
        self._most_kept = most_kept
        self._lock = threading.Lock()
        self._records: list[dict[str, Any]] = []
        self._next = 0
        self._queries: dict[str, dict[str, Any]] = {}

    @property
    def records(self) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._records)

    def add(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._records.append(record)
            del self._records[: -self._most_kept]
            self._next += 1

    def set_state(self, query: str, state: str, error: str | None = None) -> None:
        """``state`` is ``running``, ``stopped`` or ``failed``; ``error`` says why it failed."""
        with self._lock:
            self._queries[query] = {"state": state, "error": error}

    def since(self, epoch: str | None, serial: int) -> dict[str, Any]:
        """What a reader has not seen yet, JSON-serializable."""
        with self._lock:
            known = serial if epoch == self._epoch else 0
            new = max(0, self._next - known)
            return {
                "epoch": self._epoch,
                "next": self._next,
                "records": self._records[-new:] if new else [],
                "queries": dict(self._queries),
            }
