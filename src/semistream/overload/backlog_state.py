"""Which rows of a streaming query wait, and what a micro-batch changes about them.

    deferred   before the first look-up: their micro-batch had no time left
    parked     at a look-up whose table has no row of their key
    dead       parked for too long: to be written to the dead letters

Pure values. The driver computes the next state from the state before a batch and from the changes
that its tasks report; :mod:`semistream.overload.backlog` keeps states and rows on disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from semistream.errors import SemistreamError
from semistream.overload.options import Parking
from semistream.overload.row_set import RowSet

FORMAT = 1
_NAME = re.compile(r"\d{12,}-[0-9a-f]{32}\.arrow|\d+@\d+")  # a file, or partition@offset
MERGE = 8  # parked files of about the same size that become one
_MOST_SPAN = 0.05  # of max_age: how far apart in time the rows of a file may have been parked


@dataclass(frozen=True)
class WaitingFile:
    """Rows in a file that never changes.

    ``columns``: how many of its columns are the stream's; those of earlier look-ups follow.
    ``lookup``: where its rows are parked; None if they were deferred. ``version``: the newest
    version of that look-up's table that is known not to have their keys. ``gone``: rows that do
    not wait any more, as a :class:`RowSet`; empty if all wait.
    """

    name: str
    rows: int
    nbytes: int
    since: float
    columns: int
    lookup: int | None = None
    version: int = 0
    gone: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):  # it must not lead out of the folder
            raise ValueError(f"{self.name!r} is not the name of a file of waiting rows")

    @property
    def is_message(self) -> bool:
        """Whether its rows are in a topic, not in a file."""
        return "@" in self.name

    @property
    def gone_rows(self) -> RowSet:
        return RowSet.from_text(self.rows, self.gone) if self.gone else RowSet(self.rows)

    @property
    def waiting(self) -> int:
        return self.rows - len(self.gone_rows) if self.gone else self.rows

    def without(self, rows: Any) -> WaitingFile:
        """The same file, after these rows, which waited, have left."""
        gone = self.gone_rows
        gone.add(rows)
        return replace(self, gone=gone.to_text())


@dataclass
class Changes:
    """What one task did with waiting rows; its message to the driver."""

    added: list[WaitingFile] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    """Deferred files whose rows were joined, and parked ones that were merged."""
    taken: dict[str, str] = field(default_factory=dict)
    """Parked file -> rows that came back, as a :class:`RowSet`."""
    checked: dict[str, int] = field(default_factory=dict)
    """Parked file -> the version whose keys were looked for."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Changes:
        found = cls(**json.loads(text))
        found.added = [WaitingFile(**one) for one in found.added]  # type: ignore[arg-type]
        return found


@dataclass(frozen=True)
class State:
    """All rows of a query that wait after a commit, oldest first."""

    number: int = 0
    files: tuple[WaitingFile, ...] = ()
    dead: tuple[WaitingFile, ...] = ()

    @property
    def deferred(self) -> list[WaitingFile]:
        return [file for file in self.files if file.lookup is None]

    @property
    def parked(self) -> list[WaitingFile]:
        return [file for file in self.files if file.lookup is not None]

    @property
    def rows(self) -> int:
        return sum(file.waiting for file in (*self.files, *self.dead))

    @property
    def names(self) -> set[str]:
        return {file.name for file in (*self.files, *self.dead)}

    def figures(self, now: float) -> dict[str, float]:
        """For the metrics: how many rows wait, and for how many seconds the oldest has."""
        found: dict[str, float] = {}
        for kind, files in (("deferred", self.deferred), ("parked", self.parked)):
            oldest = min((file.since for file in files), default=now)
            found[kind] = sum(file.waiting for file in files)
            found[f"{kind}_oldest_seconds"] = max(0.0, now - oldest)
        return found

    def after(self, changes: Iterable[Changes]) -> State:
        """The state after a batch. Dead letters of this one have been written."""
        files = {file.name: file for file in self.files}
        dead: list[WaitingFile] = []
        for one in changes:
            for name in one.served:
                del files[name]
            for name, rows in one.taken.items():
                files[name] = files[name].without(
                    RowSet.from_text(files[name].rows, rows).numbers()
                )
            for name, version in one.checked.items():
                files[name] = replace(files[name], version=version)
            for file in one.added:
                if file.reason:
                    dead.append(file)
                else:
                    files[file.name] = file
        left = [file for file in files.values() if file.waiting]
        left.sort(key=lambda file: (file.since, file.name))
        return State(self.number, tuple(left), tuple(dead))

    def expired(self, parking: Parking, now: float) -> State:
        """After moving parked rows that are too old, or too many, to the dead letters."""
        files, dead = list(self.files), list(self.dead)
        for place, rows, reason in _too_old(self.files, parking, now):
            file = files[place]
            kept = np.setdiff1d(file.gone_rows.others(), rows)
            dead.append(replace(file.without(kept), reason=reason))
            files[place] = file.without(rows)
        return State(self.number, tuple(file for file in files if file.waiting), tuple(dead))

    def merges(self, parking: Parking, most_rows: int) -> list[tuple[WaitingFile, ...]]:
        """Groups of parked files that may be merged, so that their number grows with the logarithm
        of the number of batches. A merged file is as old as its newest rows."""
        groups: dict[Any, list[WaitingFile]] = {}
        found: list[tuple[WaitingFile, ...]] = []
        for file in self.parked:
            size = file.waiting
            if MERGE * size > most_rows:
                continue
            level = int(np.log(size) / np.log(MERGE))
            group = groups.setdefault((file.lookup, file.version, level), [])
            age = parking.seconds
            if group and age is not None and file.since - group[0].since > _MOST_SPAN * age:
                group.clear()
            group.append(file)
            if len(group) == MERGE:
                found.append(tuple(group))
                group.clear()
        return found

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes, where: object) -> State:
        try:
            content = json.loads(data)
            version = content.pop("format", None)
        except (ValueError, AttributeError, TypeError) as error:
            raise SemistreamError(f"{where} is damaged: {error}; restore it") from error
        if version != FORMAT:
            raise SemistreamError(
                f"{where} has the format version {version!r}, this release reads {FORMAT}; use "
                "the release of semistream that wrote it, or a newer one"
            )
        try:
            lists = (
                tuple(WaitingFile(**file) for file in content[name]) for name in ("files", "dead")
            )
            return cls(int(content["number"]), *lists)
        except (TypeError, KeyError, ValueError) as error:
            raise SemistreamError(f"{where} is damaged: {error}; restore it") from error


def _too_old(
    files: tuple[WaitingFile, ...], parking: Parking, now: float
) -> Iterator[tuple[int, Any, str]]:
    """Place of a file, rows of it and the reason, oldest first."""
    left = sum(file.waiting for file in files if file.lookup is not None)
    for place, file in enumerate(files):
        if file.lookup is None:
            continue
        rows = file.gone_rows.others()
        if parking.seconds is not None and now - file.since >= parking.seconds:
            reason = f"no version of the table had its key within max_age={parking.max_age}"
        elif parking.max_rows is not None and left > parking.max_rows:
            rows = rows[: left - parking.max_rows]
            reason = f"more than max_rows={parking.max_rows} rows were parked"
        else:
            continue
        left -= len(rows)
        yield place, rows, reason
