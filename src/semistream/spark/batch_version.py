"""Which version of a master table a task sees, so that a batch that is run again sees the same.

A micro-batch: the version that is pinned to (query, batch) in the table's folder; the first task
of the batch pins the newest, or the one at which the table was opened. This also holds inside
``foreachBatch``, where Spark sets the same properties.

A batch query: the version that was the newest when ``enrich`` was called, or the one at which the
table was opened. The driver holds it by a pin of its own until it ends: the two newest versions
of each table, and all that were opened explicitly.
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
    """What makes a batch the same batch, however often it is run."""

    query: str
    batch: int


def micro_batch() -> MicroBatch | None:
    """The micro-batch that the running task belongs to, if it belongs to one."""
    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        return None
    return MicroBatch(query, int(batch))


def in_foreach_batch(session: Any) -> bool:
    """Whether the driver is inside ``foreachBatch`` now; False where Spark does not say."""
    try:
        return session.sparkContext.getLocalProperty(BATCH) is not None
    except Exception:  # Connect has no such thing
        return False


def pinned_version(
    path: str | os.PathLike[str], batch: MicroBatch, version: int | None = None
) -> int:
    """The version of the table at ``path`` that this batch sees, now and in every replay.

    The first call decides: for ``version``, or the newest one by default. An explicit version
    has a pin of its own: another look-up of the same batch may follow the table.
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
    """Keep a version for the batch queries of this process; the name of the pin that does.

    None, with a warning, if the table's folder cannot be written to.
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
    """Say that a batch query is at work: a pin that is not used for a week is dropped."""
    with contextlib.suppress(OSError):  # the driver has ended, or may write and we may not
        refresh(LocalStore(path), name.query, name.batch)


def release_holds() -> None:
    """Let go of all versions that this process holds."""
    for path, name in _HELD:
        with contextlib.suppress(OSError):
            unpin(LocalStore(path), name.query, name.batch)
    _HELD.clear()


def _release_at_exit(process: int) -> None:
    if os.getpid() == process:  # a forked child holds nothing
        release_holds()


def _warn(path: object, version: int, error: OSError) -> None:
    warnings.warn(
        f"version {version} of the master table {path} is not kept from being vacuumed while it "
        f"is used: its folder cannot be written to ({error.strerror or error}); vacuum with a "
        "large keep, or give this user the right to write there",
        RuntimeWarning,
        stacklevel=3,
    )
