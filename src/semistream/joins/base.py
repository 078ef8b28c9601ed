"""A join: an immutable, picklable description. Opening it returns a run, which holds the state."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from semistream.engine.age_limit import AgeLimit
from semistream.engine.binding import HOWS, Binding, On, Select
from semistream.engine.conditions import Where
from semistream.engine.context import Clock
from semistream.engine.front.choice import check_front_stage
from semistream.engine.observer import Observer
from semistream.engine.ordered_run import ORDERS, OrderedRun
from semistream.engine.plan import MemoryPlan, plan_memory
from semistream.engine.policy import Parts, Policy
from semistream.engine.run import Run
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window_policy import LIMITS
from semistream.errors import ConfigError
from semistream.master import MasterTable, ParquetPages
from semistream.master.pages import PageSource
from semistream.memory import parse_size

if TYPE_CHECKING:
    from semistream.overload.options import Parking, Shedding

_ORDERED_BUFFER_SHARE = 3  # most of an ordered run's part of the budget for its disk buffer


@dataclass(frozen=True, kw_only=True)
class Join(ABC):
    """An immutable, picklable description of a join.

    Parameters
    ----------
    memory
        The budget for everything a run holds, such as ``"50MB"``.
    how
        ``inner``, ``left``, ``left_semi`` or ``left_anti``.
    disk_buffer_pages
        Pages read at once (b in the papers). Default: a share of the budget, with which MESHJOIN,
        HYBRIDJOIN and their cached forms start (``adapt``).
    adapt
        Whether a run moves memory between its parts, or pins other pages, when what it observes
        of the stream calls for it. Default: of parts that were not configured. Joins that have
        nothing to adapt ignore it.
    """

    memory: int | str = "256MB"
    how: str = "inner"
    disk_buffer_pages: int | None = None
    adapt: bool | None = None

    name: ClassVar[str]
    needs_order: ClassVar[bool] = True
    needs_key: ClassVar[bool] = True  # False: conditions alone will do
    can_move_buffer: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", parse_size(self.memory))
        if self.how not in HOWS:
            raise ConfigError(f"how={self.how!r} is unknown; choose one of {', '.join(HOWS)}")
        pages = self.disk_buffer_pages
        if pages is not None and (not isinstance(pages, int) or pages < 1):
            raise ConfigError(f"disk_buffer_pages={pages!r}: give a whole number of at least 1")
        if self.adapt not in (None, True, False):
            raise ConfigError(f"adapt={self.adapt!r}: give True or False")

    def adapts(self, default: bool) -> bool:
        """Whether to adapt what is adapted by default, or not."""
        return default if self.adapt is None else self.adapt

    @property
    def moves_memory(self) -> bool:
        """Whether memory moves between front stage and window during a run."""
        return False

    @property
    def moves_buffer(self) -> bool:
        """Whether memory moves between disk buffer and window during a run."""
        return self.can_move_buffer and self.adapts(self.disk_buffer_pages is None)

    def open(
        self,
        master: PageSource | str | os.PathLike[str],
        on: On | None = None,
        *,
        select: Select | None = None,
        where: Where | None = None,
        as_of: str | None = None,
        order: str | None = None,
        direct: bool = False,
        follow: bool | None = None,
        observer: Observer | None = None,
        clock: Clock = time.perf_counter,
        shedding: Shedding | None = None,
        buffer: int | str | None = None,
        unmatched: str | None = None,
        parking: Parking | None = None,
        wall_clock: Clock = time.time,
        max_age: float | str | None = None,
        too_old: str = "warn",
    ) -> Run:
        """Start a run against a master table (or, where order is not needed, Parquet files).

        ``select`` names the master columns to add, or maps them to new names. ``direct`` reads
        bypass the page cache. ``follow`` switches the run to a newer version of the table at the
        next push (default: yes, unless the table was opened at an explicit version). ``where`` is a
        condition, or a list of them, that pairs with equal keys must also pass. ``as_of`` names the
        stream's time column: in a table with history, a tuple meets the row that was valid then.
        ``order="stream"`` returns rows in the order of the stream.

        ``shedding`` and ``buffer``, a part of the memory, return a run that accepts tuples at any
        rate (:class:`~semistream.overload.shedding_run.SheddingRun`). ``unmatched="park"`` with
        ``parking`` keeps unmatched tuples until their key arrives
        (:class:`~semistream.overload.parking_run.ParkingRun`); ages are measured by ``wall_clock``.

        ``max_age`` of the data, such as ``"10m"``: while the table was last in step with its source
        longer ago, ``push`` warns once (``too_old="warn"``) or raises, and takes no tuple
        (``"raise"``). ``run.age`` is the age.
        """
        source = open_source(master)
        self.check_source(source)
        if on is None and self.needs_key:
            raise ConfigError(
                f"{self.name} finds rows by their key: give on=; without an equality use meshjoin"
            )
        follow = (not source.pinned) if follow is None else follow
        binding = Binding(source, on, select, self.how, where, as_of)
        if order is not None:
            if not all(option is None for option in (shedding, buffer, unmatched, parking)):
                raise ConfigError("order cannot be combined with shedding or parking")
            return self._open_ordered(
                order, follow, source, on, binding, select=select, where=where, as_of=as_of,
                direct=direct, observer=observer, clock=clock, max_age=max_age, too_old=too_old,
            )  # fmt: skip
        limit = None if max_age is None else AgeLimit(source, max_age, too_old, wall_clock)

        def start(join: Join) -> Run:
            return Run(join, self.policy, source, binding, direct, follow, observer, clock, limit)

        if shedding is None and buffer is None and unmatched is None and parking is None:
            return start(self)
        from semistream.overload.opening import open_wrapped

        return cast(
            Run, open_wrapped(self, start, shedding, buffer, unmatched, parking, wall_clock)
        )

    def _open_ordered(
        self,
        order: str,
        follow: bool,
        source: PageSource,
        on: On | None,
        binding: Binding,
        **options: Any,
    ) -> Run:
        if order not in ORDERS:
            raise ConfigError(f"order={order!r} is unknown; choose {' or '.join(ORDERS)}")

        def open_run(memory: int) -> Run:
            pages = self.disk_buffer_pages or self._pages_in_order(source, binding, memory)
            inner = replace(self, memory=memory, disk_buffer_pages=pages)
            return inner.open(source, on, follow=False, **options)

        # It has the interface of a run.
        return cast(Run, OrderedRun(self, open_run, binding, follow))

    def _pages_in_order(self, source: PageSource, binding: Binding, memory: int) -> int | None:
        """Disk buffer of a run that serves portions: twice that without order. Each portion is a
        sweep over the table, and larger visits cost less."""
        if source.mapped:
            return None
        table = TableShape.of(source, binding, direct=False)
        pages = 2 * plan_memory(self, table, StreamShape()).buffer_pages
        return min(pages, memory // _ORDERED_BUFFER_SHARE // max(1, table.max_page_bytes)) or None

    def check_source(self, source: PageSource) -> None:
        """Raise ConfigError for a source that this join cannot run on."""
        if self.needs_order and not source.ordered:
            raise ConfigError(
                f"{self.name} needs a page index, which plain Parquet files do not have; build a "
                "master table with MasterTable.build or ss.build_master, or use meshjoin"
            )

    @abstractmethod
    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        """Divide the budget among the parts of a run; nothing is opened."""

    @abstractmethod
    def policy(self, join: Join, parts: Parts) -> Policy:
        """The algorithm, working on a run's parts."""


@dataclass(frozen=True, kw_only=True)
class CachedJoin(Join):
    """A published join behind a front stage of hot rows (003).

    Parameters
    ----------
    front_stage
        The front stage's part of the budget: a fraction, or a size. Default: it starts with 0.15,
        near which the paper finds the optimum, and memory moves between front stage and window to
        where it gains more (``adapt``).
    threshold
        How many tuples must match a master row at once for it to be cached; it adapts.
    cache
        ``recorder``, the paper's, or ``counting``, SweepJoin's.
    """

    front_stage: float | int | str | None = None
    threshold: int = 2
    cache: str = "recorder"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_front_stage(self.front_share, self.threshold, self.cache)

    @property
    def front_share(self) -> float | int | str:
        """The front stage's part of the budget when the run starts."""
        return LIMITS.start if self.front_stage is None else self.front_stage

    @property
    def moves_memory(self) -> bool:
        return self.adapts(self.front_stage is None)


def open_source(master: PageSource | str | os.PathLike[str]) -> PageSource:
    """Open a master table, or plain Parquet files, by path; a source is returned as it is."""
    if not isinstance(master, (str, os.PathLike)):
        if not hasattr(master, "reader"):
            raise ConfigError(
                f"master={master!r}: give a MasterTable, the path of one, or a list of ss.Lookup"
            )
        return master
    if (Path(master) / "manifests").is_dir():
        return MasterTable.open(master)
    return ParquetPages(os.fspath(master))
