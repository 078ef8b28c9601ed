"""A durable folder of stream tuples: numbered Arrow IPC files that never change, and a checkpoint.

    000000000001.arrow     tuples, with the format version in the schema's metadata
    checkpoint.json        the files that were live at the last checkpoint, and their state
    lock                   held by the run that uses the folder

A file is written under another name, synced, renamed and the folder synced: it is there completely
or not at all. A file whose tuples have been taken stays until a checkpoint says so. Then a crash at
any moment leaves one of two well-defined sets of tuples:

- ``recover="all"``: files that are newer than the checkpoint, and what it lists as live;
- ``recover="checkpoint"``: what it lists as live.

All file operations go through :class:`~semistream.master.files.Files`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SemistreamError
from semistream.master.files import Files
from semistream.master.format_version import check_format_version

FORMAT_VERSION = 1
_FORMAT = b"semistream-tuples"  # metadata key of the format version
_NOTES = b"semistream-notes"  # metadata key of what the owner notes about a file
_CHECKPOINT = "checkpoint.json"
_DRAFT = ".draft"
_TUPLES = ".arrow"
_OWN_DRAFT = re.compile(r"(\d{12,}|checkpoint)\.draft")
_OWN_TUPLES = re.compile(r"(\d{12,})\.arrow")


class TupleFolder:
    """``live``: the numbers of files that hold tuples, and the state of each at the checkpoint."""

    def __init__(self, path: str | os.PathLike[str], recover: str, files: Files | None = None):
        self.path = Path(path)
        self.files = files or Files()
        self._last = 0  # the newest number ever used
        with _writing(self.path):
            self._make_folder(self.path)
            self._lock = self._take_lock()
        try:
            self.live = self._recover(recover)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the folder back; its files stay."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- tuples ----------------------------------------------------------------------------

    def write(self, batches: Sequence[pa.RecordBatch], notes: Mapping[str, Any]) -> int:
        """Publish a file with these tuples; returns its number. If it raises, nothing is there."""
        schema = batches[0].schema.with_metadata(
            {_FORMAT: str(FORMAT_VERSION), _NOTES: json.dumps(dict(notes))}
        )
        number = self._last + 1
        target = self.path / _name(number)
        with _writing(target):
            self._publish(target, lambda file: _write_batches(file, schema, batches))
        self._last = number
        return number

    def read(self, number: int) -> list[pa.RecordBatch]:
        """The tuples of a file, mapped and not copied."""
        with self._opened(number) as reader:
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        return [batch.replace_schema_metadata(None) for batch in batches]

    def notes(self, number: int, needed: str) -> dict[str, Any]:
        """What its owner noted; ``needed`` tells the notes of shed and of parked tuples apart."""
        with self._opened(number) as reader:
            found = dict(json.loads(reader.schema.metadata[_NOTES]))
        if needed not in found:
            raise ConfigError(
                f"{self.path} holds tuples of the other kind; shed and parked tuples need a folder "
                "each"
            )
        return found

    @contextlib.contextmanager
    def _opened(self, number: int) -> Iterator[Any]:
        path = self.path / _name(number)
        try:
            with pa.memory_map(str(path)) as mapped:
                reader = pa.ipc.open_file(mapped)
                version = (reader.schema.metadata or {}).get(_FORMAT, b"").decode(errors="replace")
                found = int(version) if version.isdigit() else version
                check_format_version(path, found, FORMAT_VERSION)
                yield reader
        except (OSError, pa.ArrowException) as error:
            raise SemistreamError(
                f"the file of shed or parked tuples {path} cannot be read: {error}; "
                f"{_restore(number)}"
            ) from error

    def size(self, number: int) -> int:
        return int(self.files.stat(self.path / _name(number)).st_size)

    # -- checkpoints -----------------------------------------------------------------------

    def checkpoint(self, live: Mapping[int, Any]) -> None:
        """From now on only these files hold tuples, in this state. Removes the others."""
        content = {"format_version": FORMAT_VERSION, "last": self._last, "live": {}}
        content["live"] = {str(number): state for number, state in live.items()}
        data = json.dumps(content).encode()
        with _writing(self.path / _CHECKPOINT):
            self._publish(self.path / _CHECKPOINT, lambda file: file.write(data))
        self._remove(set(self._numbers()) - set(live))

    def _recover(self, recover: str) -> dict[int, Any]:
        content = self._read_checkpoint()
        live = {int(number): state for number, state in content["live"].items()}
        for name in self.files.list(self.path):
            if _OWN_DRAFT.fullmatch(name):
                self.files.unlink(self.path / name)
        numbers = self._numbers()
        missing = set(live) - set(numbers)
        if missing:
            raise SemistreamError(
                f"{self.path / _name(min(missing))} is missing, but the checkpoint in its folder "
                f"lists it; {_restore(min(missing))}"
            )
        self._last = max([int(content["last"]), *numbers])
        if recover == "all":
            live |= {number: None for number in numbers if number > content["last"]}
        self._remove(set(numbers) - set(live))
        return dict(sorted(live.items()))

    def _read_checkpoint(self) -> dict[str, Any]:
        path = self.path / _CHECKPOINT
        try:
            content = json.loads(self.files.read(path))
        except FileNotFoundError:
            return {"last": 0, "live": {}}
        except ValueError as error:
            raise SemistreamError(f"{path} is damaged: {error}; restore it from a copy") from error
        check_format_version(path, content.get("format_version"), FORMAT_VERSION)
        return dict(content)

    # -- files -----------------------------------------------------------------------------

    def _publish(self, target: Path, write: Any) -> None:
        draft = target.with_suffix(_DRAFT)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.files.unlink(draft)
            with self.files.create(draft) as file:
                write(file)
                self.files.sync(file)
            self.files.rename(draft, target)
            self.files.sync_folder(self.path)
        except BaseException:
            left = [draft] if target.name == _CHECKPOINT else [draft, target]
            for path in left:  # a name that may not survive must not be found either
                with contextlib.suppress(OSError):
                    self.files.unlink(path)
            raise

    def _remove(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            with contextlib.suppress(OSError):  # it is not live; the next checkpoint removes it
                self.files.unlink(self.path / _name(number))

    def _numbers(self) -> list[int]:
        found = map(_OWN_TUPLES.fullmatch, self.files.list(self.path))
        return sorted(int(name[1]) for name in found if name is not None)

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make_folder(folder.parent)
            with contextlib.suppress(FileExistsError):
                self.files.mkdir(folder)
            with contextlib.suppress(PermissionError):
                self.files.sync_folder(folder.parent)

    def _take_lock(self) -> int | None:
        path = self.path / "lock"
        with contextlib.suppress(FileExistsError):
            self.files.create(path).close()
        lock = self.files.lock(path, wait=False)
        if lock is None:
            raise ConfigError(
                f"{self.path} is in use by another run; close it first, or give another folder"
            )
        return lock


def _name(number: int) -> str:
    return f"{number:012d}{_TUPLES}"


def _restore(number: int) -> str:
    return (
        f"restore it from a copy, or to lose its tuples remove it, and its number {number} from "
        f"{_CHECKPOINT}, while no run is open"
    )


def _write_batches(file: Any, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
    if len(batches) > 1:  # a file has one dictionary per column, a stream may have many
        bare = [batch.replace_schema_metadata(None) for batch in batches]
        batches = pa.Table.from_batches(bare).unify_dictionaries().to_batches()
    with pa.ipc.new_file(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SemistreamError(
            f"{error.filename or path} cannot be written: {error.strerror or error}; no tuple is "
            "lost. Free space, or check the disk and permissions, then call the run again"
        ) from error
