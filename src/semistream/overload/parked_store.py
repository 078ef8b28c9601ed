"""Parked tuples on disk, found by the code of their key.

The tuples of a file are sorted by code, and the codes are a column of their own: the tuples of a
few codes are found by binary search in the mapped column, and only they are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.rows.layout import Rows
from semistream.keys import Codes
from semistream.master.changed import contains
from semistream.master.files import Files
from semistream.overload.options import Parking
from semistream.overload.tuple_folder import TupleFolder

CODE = "__semistream_code"


@dataclass
class ParkedFile:
    """``checked``: the newest version of the table known not to have the keys of its tuples."""

    number: int
    rows: int
    parked: float  # when the newest of its tuples was parked
    checked: int
    left: Any = None  # which rows are parked; None: all
    gone: Any = None  # which rows were taken; others are parked, or dead letters to be fetched

    @property
    def parked_rows(self) -> Rows:
        return np.arange(self.rows) if self.left is None else np.flatnonzero(self.left)


class ParkedStore:
    """Files of parked tuples, oldest first. Taken tuples stay on disk until ``checkpoint``."""

    def __init__(
        self,
        options: Parking,
        clock: Callable[[], float] = time.time,
        files: Files | None = None,
    ) -> None:
        self._folder = TupleFolder(options.path, options.recover, files)
        self._clock = clock
        self.files: dict[int, ParkedFile] = {}
        self.rows = 0
        self.in_flight = 0  # tuples taken since the last checkpoint
        try:
            for number, taken in self._folder.live.items():
                self._add(number, self._folder.notes(number))
                if taken:
                    self.take(self.files[number], np.array(taken, np.int64))
            self.in_flight = 0
        except BaseException:
            self._folder.close()
            raise

    def _add(self, number: int, notes: dict[str, Any]) -> None:
        file = ParkedFile(number, notes["rows"], notes["parked"], notes["version"])
        self.files[number] = file
        self.rows += file.rows

    @property
    def nbytes(self) -> int:
        """Bytes in memory: which rows are still parked, of files that have lost some."""
        return sum(2 * file.rows for file in self.files.values() if file.left is not None)

    def append(self, tuples: pa.RecordBatch, codes: Codes, version: int) -> None:
        """Park tuples durably; no version up to ``version`` has their keys. If it raises, none
        was parked."""
        order = np.argsort(codes, kind="stable")
        sorted_tuples = tuples.take(pa.array(order)).append_column(CODE, pa.array(codes[order]))
        notes = {"rows": len(order), "parked": self._clock(), "version": version}
        self._add(self._folder.write([sorted_tuples], notes), notes)

    def stale(self, version: int) -> list[ParkedFile]:
        """Files whose tuples may have their key in this version."""
        return [file for file in self.files.values() if file.checked < version]

    def with_codes(self, file: ParkedFile, codes: Codes | None) -> Rows:
        """Rows of parked tuples with one of these codes, which are sorted; None: all."""
        if codes is None:
            return file.parked_rows
        column = self._read(file).column(CODE).to_numpy()
        if len(codes) < len(column):
            low, high = np.searchsorted(column, codes), np.searchsorted(column, codes, "right")
            hit = low < high
            found = [np.arange(a, b) for a, b in zip(low[hit], high[hit], strict=True)]
            rows = np.concatenate([np.zeros(0, np.int64), *found])
        else:
            rows = np.flatnonzero(contains(codes, column))
        return rows if file.left is None else np.asarray(rows[file.left[rows]])

    def read(self, file: ParkedFile, rows: Rows) -> pa.RecordBatch:
        """These tuples, as they were parked."""
        return self._read(file).drop_columns([CODE]).take(pa.array(rows))

    def _read(self, file: ParkedFile) -> pa.RecordBatch:
        return self._folder.read(file.number)[0]

    def take(self, file: ParkedFile, rows: Rows) -> None:
        """These tuples are no longer parked; a checkpoint makes it durable."""
        self.bury(file, rows)
        self.remove_dead(file, rows)

    def bury(self, file: ParkedFile, rows: Rows) -> None:
        """These tuples are dead letters, until ``remove_dead``."""
        if file.left is None:
            file.left = np.ones(file.rows, np.bool_)
            file.gone = np.zeros(file.rows, np.bool_)
        file.left[rows] = False
        self.rows -= len(rows)

    def remove_dead(self, file: ParkedFile, rows: Rows) -> None:
        file.gone[rows] = True
        self.in_flight += len(rows)
        if file.gone.all():
            del self.files[file.number]

    def older_than(self, moment: float) -> Iterator[tuple[ParkedFile, Rows]]:
        for file in list(self.files.values()):
            if file.parked > moment:
                return
            rows = file.parked_rows
            if len(rows):
                yield file, rows

    def beyond(self, most: int) -> Iterator[tuple[ParkedFile, Rows]]:
        """The oldest tuples, such that ``most`` are left."""
        excess = self.rows - most
        for file in list(self.files.values()):
            if excess <= 0:
                return
            rows = file.parked_rows[:excess]
            excess -= len(rows)
            if len(rows):
                yield file, rows

    def checkpoint(self) -> None:
        """A run that is opened after a crash finds the tuples that are parked now."""
        live = {
            number: None if file.gone is None else np.flatnonzero(file.gone).tolist()
            for number, file in self.files.items()
        }
        self._folder.checkpoint(live)
        self.in_flight = 0

    def close(self) -> None:
        self._folder.close()
