"""Parked tuples on disk, found by the code of their key.

The tuples of a file are sorted by code, and the codes are a column of their own: the tuples of a
few codes are found by binary search in the mapped column, and only they are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.rows.layout import Rows
from semistream.keys import Codes
from semistream.master.files import Files
from semistream.overload.arrivals import rows_with
from semistream.overload.options import Parking
from semistream.overload.row_set import RowSet
from semistream.overload.tuple_folder import TupleFolder

CODE = "__semistream_code"


@dataclass
class ParkedFile:
    """``checked``: the newest version of the table known not to have the keys of its tuples."""

    number: int
    rows: int
    parked: float  # when the newest of its tuples was parked
    checked: int
    lost: RowSet | None = None  # rows that are not parked: taken, or dead letters; None: no row
    gone: RowSet | None = None  # of these, the ones that were taken, or fetched
    dead: dict[str, RowSet] = field(default_factory=dict)  # and those that are not, by reason

    @property
    def parked_rows(self) -> Rows:
        return np.arange(self.rows) if self.lost is None else self.lost.others()

    @property
    def has_parked(self) -> bool:
        return self.lost is None or len(self.lost) < self.rows


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
                self._add(number, self._folder.notes(number, "parked"))
                if taken:
                    file = self.files[number]
                    self.take(file, RowSet.from_text(file.rows, taken).numbers())
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
        return sum(
            (2 + len(file.dead)) * file.lost.nbytes
            for file in self.files.values()
            if file.lost is not None
        )

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
        rows = rows_with(self._read(file).column(CODE).to_numpy(), codes)
        return rows if file.lost is None else np.asarray(rows[~file.lost.mask(rows)])

    def read(self, file: ParkedFile, rows: Rows) -> pa.RecordBatch:
        """These tuples, as they were parked."""
        return self._read(file).drop_columns([CODE]).take(pa.array(rows))

    def _read(self, file: ParkedFile) -> pa.RecordBatch:
        return self._folder.read(file.number)[0]

    def take(self, file: ParkedFile, rows: Rows) -> None:
        """These tuples are no longer parked; a checkpoint makes it durable."""
        self._lose(file, rows)
        self._forget(file, rows)

    def bury(self, file: ParkedFile, rows: Rows, reason: str) -> None:
        """These tuples are dead letters, until ``take_dead``."""
        self._lose(file, rows)
        file.dead.setdefault(reason, RowSet(file.rows)).add(rows)

    def dead(self) -> tuple[ParkedFile, str] | None:
        """The oldest file with dead letters, and their reason."""
        for file in self.files.values():
            for reason in file.dead:
                return file, reason
        return None

    def take_dead(self, file: ParkedFile, reason: str) -> pa.RecordBatch:
        """These dead letters; a checkpoint makes it durable that they were taken."""
        rows = file.dead[reason].numbers()
        batch = self.read(file, rows)  # may raise: they stay
        del file.dead[reason]
        self._forget(file, rows)
        return batch

    def _lose(self, file: ParkedFile, rows: Rows) -> None:
        if file.lost is None:
            file.lost, file.gone = RowSet(file.rows), RowSet(file.rows)
        file.lost.add(rows)
        self.rows -= len(rows)

    def _forget(self, file: ParkedFile, rows: Rows) -> None:
        assert file.gone is not None
        file.gone.add(rows)
        self.in_flight += len(rows)
        if len(file.gone) == file.rows:
            del self.files[file.number]

    def older_than(self, moment: float) -> Iterator[tuple[ParkedFile, Rows]]:
        for file in list(self.files.values()):
            if file.parked > moment:
                return
            if file.has_parked:
                yield file, file.parked_rows

    def beyond(self, most: int) -> Iterator[tuple[ParkedFile, Rows]]:
        """The oldest tuples, such that ``most`` are left."""
        excess = self.rows - most
        for file in list(self.files.values()):
            if excess <= 0:
                return
            if file.has_parked:
                rows = file.parked_rows[:excess]
                excess -= len(rows)
                yield file, rows

    def checkpoint(self) -> None:
        """A run that is opened after a crash finds the tuples that are parked now."""
        live = {
            number: None if file.gone is None else file.gone.to_text()
            for number, file in self.files.items()
        }
        self._folder.checkpoint(live)
        self.in_flight = 0

    def close(self) -> None:
        self._folder.close()
