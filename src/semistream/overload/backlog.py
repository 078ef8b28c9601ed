"""The folder of a streaming query's waiting rows; a micro-batch's commit makes its changes true.

    <path>/<query>/<state before>-<random>.arrow    rows, written by tasks; they never change
    <path>/<query>/<number>.state                   which of them wait

Files of rows and states are only proposals. The sink's ledger names the state that holds, in the
same atomic step that makes a batch visible (:class:`~semistream.sinks.contract.Mark`). So a crash
at any moment leaves the state before the batch, or the one after it. Everything else in the folder
is garbage, which the next commit removes.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SemistreamError
from semistream.master.files import Files
from semistream.overload.backlog_state import State, WaitingFile
from semistream.overload.topic_rows import TopicRows
from semistream.sinks.contract import Mark, safe_name
from semistream.sinks.disk import make_folders, names, remove, sync_folders, writing
from semistream.sinks.files import check_complete

# A deferred file is served as a whole, so this is how finely a batch's time is divided.
FILE_ROWS = 1 << 16
FILE_BYTES = 16 << 20
_ROWS, _STATE, _DRAFT, _NOTE, _LOCK = ".arrow", ".state", ".draft", ".note", "lock"


class Backlog:
    """The waiting rows of one query, in a folder that driver and workers share."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        query: str,
        disk: Files | None = None,
        topic: TopicRows | None = None,
    ) -> None:
        self.topic = topic
        self.top = Path(os.path.abspath(path))
        self.query = query
        self.folder = self.top / safe_name(query)
        self.disk = disk or Files()

    # -- rows: written and read by tasks ---------------------------------------------------

    def write(
        self, rows: Iterable[pa.RecordBatch], base: int, **about: Any
    ) -> Iterator[WaitingFile]:
        """Write rows to files of limited size, and sync them. ``base``: the number of the state
        before; ``about``: fields of the files."""
        pieces = (piece for batch in rows for piece in _pieces(batch))
        piece = next(pieces, None)
        while piece is not None:
            path = self.folder / f"{base:012d}-{uuid.uuid4().hex}{_ROWS}"
            with writing(path):
                make_folders(self.disk, self.folder)
                file = self.disk.create(path)
            count, is_full = 0, False
            try:
                writer = pa.ipc.new_file(file, piece.schema)
                while piece is not None and not is_full:
                    with writing(path):
                        writer.write_batch(piece)
                    count += piece.num_rows
                    piece = next(pieces, None)
                    left = 0 if piece is None else piece.num_rows
                    is_full = count + left > FILE_ROWS or file.tell() >= FILE_BYTES
                with writing(path):
                    writer.close()
                    self.disk.sync(file)
                    nbytes = file.tell()
                    file.close()
            except BaseException:
                for clean_up in (file.close, lambda path=path: self.disk.unlink(path)):
                    with contextlib.suppress(OSError):  # report the first failure
                        clean_up()
                raise
            yield WaitingFile(path.name, count, nbytes, **about)

    def defer(
        self, rows: Iterable[pa.RecordBatch], base: int, **about: Any
    ) -> Iterator[WaitingFile]:
        """Write deferred rows to the topic, if there is one; they are only ever read as a whole."""
        if self.topic is not None:
            return self.topic.write(rows, **about)
        return self.write(rows, base, **about)

    def read(self, file: WaitingFile) -> list[pa.RecordBatch]:
        """All rows of a file, mapped; or of a message."""
        if file.is_message:
            if self.topic is None:
                raise ConfigError(
                    f"rows of query {self.query} wait in a Kafka topic; give deferred_topic= as "
                    "before"
                )
            return self.topic.read(file)
        path = self.folder / file.name
        try:
            with pa.memory_map(str(path)) as mapped:
                reader = pa.ipc.open_file(mapped)
                return [reader.get_batch(i) for i in range(reader.num_record_batches)]
        except (OSError, pa.ArrowException) as error:
            raise SemistreamError(
                f"the file of waiting rows {path} cannot be read: {error}; restore it from a copy"
            ) from error

    def stream_schema(self, file: WaitingFile) -> pa.Schema:
        """The stream's columns, as they were when the rows were written."""
        return pa.schema(list(self.read(file)[0].schema)[: file.columns])

    def note(self, base: int, name: str) -> Path:
        """A file in which one function of a task tells another what it did."""
        return self.folder / f"{base:012d}-{name}{_NOTE}"

    # -- states: read and published by the driver ------------------------------------------

    def state(self, mark: Mark | None) -> State:
        """The state that the ledger names."""
        if mark is None or not mark.rows:
            return State(0 if mark is None else mark.number)
        path = self._state_path(mark.number)
        try:
            return State.from_bytes(self.disk.read(path), path)
        except FileNotFoundError:
            raise SemistreamError(
                f"{mark.rows} rows of query {self.query} wait, but {path}, which lists them, is "
                "missing: give the folder of deferred and parked rows that the query had before, "
                "or restore it"
            ) from None

    def publish(self, state: State, added: Iterable[WaitingFile]) -> State:
        """Write a state with a number of its own, which holds once the ledger names it.

        ``added``: files that a crash may still lose.
        """
        with writing(self.folder):
            make_folders(self.disk, self.folder)
            sizes = {self.folder / f.name: f.nbytes for f in added if not f.is_message}
            check_complete(self.disk, sizes)
            state = replace(state, number=max([state.number, *self._numbers()]) + 1)
            draft = self.folder / f"{state.number:012d}-{uuid.uuid4().hex}{_DRAFT}"
            try:
                with self.disk.create(draft) as file:
                    file.write(state.to_bytes())
                    self.disk.sync(file)
                # Raises if another driver has this number: the batch is then replayed.
                self.disk.link(draft, self._state_path(state.number))
            finally:
                with contextlib.suppress(OSError):
                    remove(self.disk, draft)
            sync_folders(self.disk, self.folder, self.top)
        return state

    def discard(self, state: State) -> None:
        """Remove a state that the ledger did not accept."""
        with contextlib.suppress(OSError):
            remove(self.disk, self._state_path(state.number))

    def sweep(self, state: State) -> None:
        """Remove what came before this state, and what it does not need. What is newer may belong
        to another driver; a later sweep removes it if not."""
        with contextlib.suppress(OSError):
            for name in names(self.disk, self.folder):
                stem, _, kind = name.partition(".")
                number = stem.partition("-")[0]
                is_ours = number.isdigit() and f".{kind}" in (_ROWS, _STATE, _DRAFT, _NOTE)
                if is_ours and int(number) < state.number and name not in state.names:
                    remove(self.disk, self.folder / name)

    @contextlib.contextmanager
    def lock(self, alone: bool) -> Iterator[None]:
        """Held from the check of the mark to the commit: no drain comes between, and a drain is
        ``alone``. Drivers share it: the ledger decides between a query's old driver and its
        successor, which must not wait for one that hangs."""
        path = self.folder / _LOCK
        with writing(path):
            make_folders(self.disk, self.folder)
            held = self.disk.share_lock(path)  # creates the file
            if alone and held is not None:
                os.close(held)
                held = self.disk.lock(path, wait=False)
        if held is None:
            raise SemistreamError(
                f"the waiting rows of query {self.query} are in use by "
                f"{'the running query' if alone else 'a drain'}; nothing is lost: try again "
                "when it has ended"
            )
        try:
            yield
        finally:
            os.close(held)

    def _state_path(self, number: int) -> Path:
        return self.folder / f"{number:012d}{_STATE}"

    def _numbers(self) -> list[int]:
        found = (name.partition(".") for name in names(self.disk, self.folder))
        return [int(stem) for stem, dot, kind in found if stem.isdigit() and dot + kind == _STATE]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in parts that fit into a file; none if it is empty."""
    rows = FILE_ROWS
    if batch.nbytes > FILE_BYTES:
        rows = max(1, int(batch.num_rows * FILE_BYTES / batch.nbytes))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
