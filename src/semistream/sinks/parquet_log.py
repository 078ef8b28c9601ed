"""The Parquet sink's ledger: one small file per batch of a query, published atomically."""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from semistream.errors import SemistreamError
from semistream.master.files import Files
from semistream.sinks.disk import make_folders, names, remove, sync_folders

FORMAT = 1
_KEEP = 100  # entries of a query; a replay needs only the newest
_DRAFT = ".draft"


@dataclass(frozen=True)
class Entry:
    """A committed batch."""

    query: str
    batch: int
    rows: int
    files: dict[str, str]
    """Staged name -> final name."""
    waiting: tuple[int, int] | None = None
    """The number and the rows of the query's :class:`~semistream.sinks.contract.Mark`."""


class Log:
    """The entries of one query, in a folder below ``top``."""

    def __init__(self, folder: Path, top: Path, disk: Files) -> None:
        self.folder = folder
        self._top = top
        self._disk = disk

    def path(self, batch: int) -> Path:
        return self.folder / f"{batch:08d}.json"

    def newest(self) -> Entry | None:
        numbers = self._numbers()
        return self.read(numbers[-1]) if numbers else None

    def entries(self) -> list[Entry]:
        found = (self.read(number) for number in self._numbers())
        return [entry for entry in found if entry is not None]

    def read(self, batch: int) -> Entry | None:
        path = self.path(batch)
        try:
            content = json.loads(self._disk.read(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise SemistreamError(
                f"{path} is damaged: {error}; restore it from a backup. It lists the files of "
                f"batch {batch}"
            ) from error
        version = content.pop("format", None) if isinstance(content, dict) else None
        if version != FORMAT:
            raise SemistreamError(
                f"{path} has the format version {version!r}, this release reads {FORMAT}; "
                "use the release of semistream that wrote it, or a newer one"
            )
        try:
            return Entry(**content)
        except TypeError as error:
            raise SemistreamError(f"{path} is damaged: {error}; restore it") from error

    def publish(self, entry: Entry) -> bool:
        """The commit: publishes the entry atomically; False if there is one already.

        Uses a hard link, because a rename would silently replace another driver's entry.
        """
        make_folders(self._disk, self.folder)
        draft = self.folder / f"{uuid.uuid4().hex}{_DRAFT}"
        try:
            with self._disk.create(draft) as file:
                content = {"format": FORMAT, **asdict(entry)}
                if entry.waiting is None:  # as earlier releases wrote it, and read it
                    del content["waiting"]
                file.write(json.dumps(content).encode())
                self._disk.sync(file)
            self._disk.link(draft, self.path(entry.batch))
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):  # trimmed later
                remove(self._disk, draft)
        return True

    def sync(self) -> None:
        """Sync the folder: required before acting on an entry."""
        sync_folders(self._disk, self.folder, self._top)

    def trim(self) -> None:
        """Remove entries that no replay needs, and drafts of dead drivers."""
        with contextlib.suppress(OSError):
            for name in names(self._disk, self.folder):
                if name.endswith(_DRAFT):
                    remove(self._disk, self.folder / name)
            for old in self._numbers()[:-_KEEP]:
                remove(self._disk, self.path(old))

    def _numbers(self) -> list[int]:
        entries = (name.partition(".") for name in names(self._disk, self.folder))
        return sorted(int(stem) for stem, _, kind in entries if stem.isdigit() and kind == "json")
