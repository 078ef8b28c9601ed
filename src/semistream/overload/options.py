"""What a user configures: ``ss.Shedding`` and ``ss.Parking``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from semistream.durations import parse_duration
from semistream.errors import ConfigError, unknown
from semistream.memory import parse_size

MODES = ("considering", "keep", "random", "off")
RECOVER = ("all", "checkpoint")
WHEN_FULL = ("raise", "drop")


def _choose(value: str, what: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(unknown(what, str(value), known))


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """``recover``: which tuples a new run on the same folder takes over after a crash.

    ``all``: every tuple in the folder, so that each is served at least once. ``checkpoint``: those
    of the last ``run.checkpoint()``; the caller replays the stream from there.
    """

    recover: str = "all"

    def __post_init__(self) -> None:
        _choose(self.recover, "recover", RECOVER)


@dataclass(frozen=True)
class Shedding(_Stored):
    """What to do with tuples that arrive faster than they are served.

    Parameters
    ----------
    mode
        ``considering``: every tuple enters the front stage and the window first; those that
        waited longest without a match are shed (003). ``keep``: tuples are shed on arrival (004).
        ``random``: of the tuples that arrive during overload, a random sample is kept and the
        others are shed; ``run.estimate()``. ``off``: nothing is shed, ``offer`` returns False when
        the buffer is full.
    store
        The folder for shed tuples; every mode but ``off`` needs it.
    position
        ``considering``: while load is shed, HYBRIDJOIN and the joins built on it read for the tuple
        at this position of the queue. 0 is the newest tuple, 1 the oldest.
    rate, seed, sums
        ``random``: the share of tuples that is kept; the seed of the choice; columns of the output
        whose sums are estimated.
    limit, when_full
        The most bytes of shed tuples on disk, and whether shedding more raises or drops tuples.
    recover
        ``all`` or ``checkpoint``: which tuples of an existing folder return after a crash.

    >>> Shedding("considering", store="shed").position
    0.15
    """

    mode: str
    store: str | os.PathLike[str] | None = None
    position: float = 0.15
    rate: float = 0.1
    seed: int | None = None
    sums: tuple[str, ...] = ()
    limit: int | str | None = None
    when_full: str = "raise"

    def __post_init__(self) -> None:
        super().__post_init__()
        _choose(self.mode, "mode", MODES)
        _choose(self.when_full, "when_full", WHEN_FULL)
        if self.mode != "off" and self.store is None:
            raise ConfigError(f"Shedding({self.mode!r}) needs store=, a folder for shed tuples")
        if not 0 <= self.position <= 1:
            raise ConfigError(f"position={self.position!r}: give a number from 0 to 1")
        if not 0 < self.rate < 1:
            raise ConfigError(f"rate={self.rate!r}: give a number between 0 and 1")
        object.__setattr__(self, "sums", tuple(self.sums))
        if self.sums and self.mode != "random":
            raise ConfigError(f"sums= are estimated with mode 'random', not with {self.mode!r}")

    @property
    def limit_bytes(self) -> int | None:
        return None if self.limit is None else parse_size(self.limit, "limit")


@dataclass(frozen=True)
class Parking(_Stored):
    """Where unmatched tuples wait for a version of the table that has their key, and how long.

    Parameters
    ----------
    path
        The folder for parked tuples.
    max_age, max_rows
        After this time, or beyond this number, tuples go to the dead letters, oldest first.
    buffer
        Memory in which tuples are gathered before they are written; part of the join's budget.
    recover
        ``all`` or ``checkpoint``: which tuples of an existing folder are taken over after a crash.

    >>> Parking("parked", max_age="1d").seconds
    86400.0
    """

    path: str | os.PathLike[str]
    max_age: float | str | None = None
    max_rows: int | None = None
    buffer: int | str = "1MB"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.seconds, self.buffer_bytes
        rows = self.max_rows
        if rows is not None and (not isinstance(rows, int) or rows < 1):
            raise ConfigError(f"max_rows={rows!r}: give a whole number of at least 1")

    @property
    def seconds(self) -> float | None:
        return None if self.max_age is None else parse_duration(self.max_age, "max_age")

    @property
    def buffer_bytes(self) -> int:
        return parse_size(self.buffer, "buffer")
