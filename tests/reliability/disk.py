"""The possible contents of a disk after a crash, given all operations on a folder.

A file is its content; a folder is a map of names. Both are certain only as of their last sync.
What came after it may be kept or lost when the power fails, independently for each file and folder,
as POSIX allows, although most file systems guarantee more. A process that is killed loses nothing
that it has written.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = -1  # a name's target: the number of a file, or this
Changes = Mapping[str, int | None]  # name -> target, None if the name is gone
Tree = dict[str, bytes | None]  # path -> content, None for a folder


@dataclass(frozen=True)
class Write:
    """The whole content of a file from now on."""

    file: int
    content: bytes


@dataclass(frozen=True)
class Sync:
    file: int


@dataclass(frozen=True)
class SyncFolder:
    folder: str


@dataclass(frozen=True)
class Names:
    """Names that appear or go in one step: a creation, link, unlink or rename."""

    changes: Mapping[str, Changes]  # folder -> what changes in it


Operation = Write | Sync | SyncFolder | Names


@dataclass(frozen=True)
class Loss:
    """What a crash does to unsynced names (kept, lost, mixed) and bytes.

    Bytes may also be torn, torn after a whole line, or zeros."""

    names: str
    data: str
    seed: int = 0


KILLED = Loss("kept", "kept")
POWER = (
    Loss("lost", "lost"),
    Loss("lost", "kept"),
    Loss("kept", "lost"),
    Loss("kept", "torn"),
    Loss("kept", "lines"),
    Loss("kept", "zeros"),
    *(Loss("mixed", "mixed", seed) for seed in range(4)),
)


class Disk:
    """The folders and files after some operations; everything is relative to one folder."""

    def __init__(self) -> None:
        self._content: dict[int, bytes] = {}
        self._synced: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = defaultdict(dict)
        self._certain: dict[str, dict[str, int]] = defaultdict(dict)
        self._uncertain: dict[str, list[Changes]] = defaultdict(list)

    def apply(self, operation: Operation) -> None:
        if isinstance(operation, Write):
            self._content[operation.file] = operation.content
        elif isinstance(operation, Sync):
            self._synced[operation.file] = self._content.get(operation.file, b"")
        elif isinstance(operation, SyncFolder):
            self._certain[operation.folder] = dict(self._names[operation.folder])
            self._uncertain[operation.folder] = []
        else:
            for folder, changes in operation.changes.items():
                _change(self._names[folder], changes)
                self._uncertain[folder].append(changes)
                for name, target in changes.items():
                    if target == FOLDER:  # a new folder, even if there was one of this name
                        self._certain.pop(f"{folder}/{name}".lstrip("/"), None)
                        self._uncertain.pop(f"{folder}/{name}".lstrip("/"), None)

    def sync_all(self) -> None:
        for file in self._content:
            self.apply(Sync(file))
        for folder in list(self._names):
            self.apply(SyncFolder(folder))

    def after(self, loss: Loss) -> Tree:
        """What is found after a crash at this moment."""
        chance = random.Random(loss.seed)
        tree: Tree = {}
        contents: dict[int, bytes] = {}  # one file under two names has one content
        folders = [""]
        while folders:
            folder = folders.pop()
            for name, target in sorted(self._names_after(folder, loss.names, chance).items()):
                path = f"{folder}/{name}" if folder else name
                if target == FOLDER:
                    tree[path] = None
                    folders.append(path)
                else:
                    if target not in contents:
                        contents[target] = self._content_after(target, loss.data, chance)
                    tree[path] = contents[target]
        return tree

    def _names_after(self, folder: str, names: str, chance: random.Random) -> dict[str, int]:
        if names == "kept":
            return self._names[folder]
        result = dict(self._certain[folder])
        if names == "mixed":
            for changes in self._uncertain[folder]:
                if chance.random() < 0.5:
                    _change(result, changes)
        return result

    def _content_after(self, file: int, data: str, chance: random.Random) -> bytes:
        synced, content = self._synced.get(file, b""), self._content.get(file, b"")
        if data == "mixed":
            data = chance.choice(["kept", "lost", "torn", "lines", "zeros"])
        if data == "kept" or synced == content:
            return content
        if data == "lost":
            return synced
        middle = (len(synced) + len(content)) // 2
        if data == "torn":
            return content[:middle]
        if data == "lines":
            return content[: content.rfind(b"\n", len(synced)) + 1] or synced
        return content[:middle] + bytes(len(content) - middle)


def _change(names: dict[str, int], changes: Changes) -> None:
    for name, target in changes.items():
        if target is None:
            names.pop(name, None)
        else:
            names[name] = target


@dataclass(frozen=True)
class Crash:
    """One state that a crash may leave; ``is_done`` if the call had returned.

    ``is_power``: only a loss of power leaves it, a killed process does not.
    """

    tree: Tree
    is_done: bool
    is_power: bool
    what: str

    def lay_out(self, folder: Path) -> None:
        for path, content in self.tree.items():
            place = folder / path
            if content is None:
                place.mkdir(parents=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)


def crashes(
    start: Disk, operations: Sequence[Operation], losses: Sequence[Loss]
) -> Iterator[Crash | None]:
    """Each crash point; None where the same state came before, so that it is only counted."""
    seen = set()
    for done in range(len(operations) + 1):
        if done:
            start.apply(operations[done - 1])
        is_done = done == len(operations)
        for loss in losses:
            tree, is_power = start.after(loss), loss != KILLED
            state = is_done, tuple(sorted(tree.items()))
            if (state, False) in seen or (state, is_power) in seen:
                yield None
                continue
            seen.add((state, is_power))
            last = operations[done - 1] if done else "nothing"
            yield Crash(
                tree, is_done, is_power, f"{done} of {len(operations)}, {loss}, after {last}"
            )
