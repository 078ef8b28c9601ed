"""Which version of a master table a task reads, so that a replayed batch reads the same one.

A micro-batch reads the version that is pinned to (query, batch) in the table's folder. The first
task of the batch pins the newest version, or the one at which the table was opened. This also
works inside ``foreachBatch``, where Spark sets the same properties.

A batch query reads the version that was the newest when ``enrich`` was called, or the one at which
the table was opened. The driver pins it until it exits: the two newest versions of each table, and
all versions that were opened explicitly.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import uuid
import warnings
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from semistream.errors import MasterTableError
from semistream.master.pins import pin, refresh, unpin
from semistream.master.store import LocalStore

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True)
class MicroBatch:
    """The identity of a micro-batch; a replay has the same one."""

    query: str
    batch: int


def micro_batch() -> MicroBatch | None:
    """The micro-batch of the running task; None outside of one."""
    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        return None
    return MicroBatch(query, int(batch))


def in_foreach_batch(session: Any) -> bool:
    """Whether the driver is inside ``foreachBatch``; False if Spark does not expose it."""
    try:
        return session.sparkContext.getLocalProperty(BATCH) is not None
    except Exception:  # Spark Connect has no local properties
        return False


def pinned_version(
    path: str | os.PathLike[str], batch: MicroBatch, version: int | None = None
) -> int:
    """The version of the table at ``path`` that this batch reads, now and in every replay.

    The first call pins ``version`` (default: the newest). An explicit version has a separate pin,
    because another look-up of the same batch may follow the newest version.
    """
    query = batch.query if version is None else f"{batch.query}-at-{version}"
    try:
        return pin(LocalStore(path), query, batch.batch, version=version)
    except (OSError, MasterTableError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        if version is not None and cause.errno in _READ_ONLY:
            _warn(path, version, cause)
            return version
        raise MasterTableError(
            f"the master table's version cannot be pinned for batch {batch.batch} in {path}: "
            f"{cause.strerror or cause}; the executors need to write to its folder"
        ) from error


_PROCESS = uuid.uuid4().hex
_HELD: set[tuple[str, MicroBatch]] = set()


def hold_version(path: str | os.PathLike[str], version: int, explicit: bool) -> MicroBatch | None:
    """Pin a version for the batch queries of this process. Returns the name of the pin.

    Returns None, with a warning, if the table's folder is not writable.
    """
    name = MicroBatch(f"{_PROCESS}-{version}", 0) if explicit else MicroBatch(_PROCESS, version)
    path = os.path.abspath(path)
    if (path, name) in _HELD:
        keep_held(path, name)
        return name
    try:
        pin(LocalStore(path), name.query, name.batch, version=version)
    except (OSError, MasterTableError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _READ_ONLY:
            raise
        _warn(path, version, cause)
        return None
    if not _HELD:
        atexit.register(_release_at_exit, os.getpid())
    _HELD.add((path, name))
    return name


def keep_held(path: str | os.PathLike[str], name: MicroBatch) -> None:
    """Refresh the pin of a running batch query; a pin that is unused for a week expires."""
    with contextlib.suppress(OSError):  # the driver has exited, or this user lacks permission
        refresh(LocalStore(path), name.query, name.batch)


def release_holds() -> None:
    """Remove all pins of this process."""
    for path, name in _HELD:
        with contextlib.suppress(OSError):
            unpin(LocalStore(path), name.query, name.batch)
    _HELD.clear()


def _release_at_exit(process: int) -> None:
    if os.getpid() == process:  # a forked child holds nothing
        release_holds()


def _warn(path: object, version: int, error: OSError) -> None:
    warnings.warn(
        f"version {version} of the master table {path} is not protected from vacuum while it is "
        f"in use: its folder is not writable ({error.strerror or error}); vacuum with a "
        "large keep, or grant this user write permission",
        RuntimeWarning,
        stacklevel=3,
    )
