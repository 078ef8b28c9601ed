"""``auto``: chooses the join for a master table and a stream.

Before the first batch it stands for SweepJoin where the master has a page index, and for
MESHJOIN on plain Parquet files. The first batch is a sample of the stream: the cost models
compare all joins, and the run goes on with another one if that is predicted to serve clearly
more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.run import Run
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.errors import (
    BudgetError,
    ConfigError,
    InternalError,
    SemistreamError,
    unknown,
)
from semistream.joins import ALGORITHMS, Join, open_source
from semistream.joins import join as published_join
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.sweep.sweepjoin import SweepJoin
from semistream.master.pages import PageSource
from semistream.stats import MemoryUse, Stats
from semistream.tuning.predicted import FEW

if TYPE_CHECKING:
    from semistream.tuning.sample import Observed

_log = logging.getLogger("semistream.auto")
_PLAIN = frozenset(
    ("select", "direct", "follow", "observer", "clock", "max_age", "too_old")
)  # other options: the run cannot be replaced by that of another join
_MOST = 100_000  # tuples of the first batch that are looked at: more take time and memory
_OTHER_SIZE = 8  # times more or fewer tuples in a drained batch: decide again
_CLEARLY = 1.03  # times the rate: less is not worth opening another run


@dataclass(frozen=True, kw_only=True)
class AutoJoin(Join):
    """SweepJoin where the master has a page index, MESHJOIN on plain Parquet files, or what the
    cost models prefer once the first batch is seen.

    Parameters
    ----------
    drained
        Each batch is drained before the next one arrives, as in a Spark task.

    >>> AutoJoin(memory="50MB").name
    'auto'
    """

    drained: bool = False

    name: ClassVar[str] = "auto"
    needs_order: ClassVar[bool] = False

    def chosen(self, ordered: bool) -> Join:
        """The join that is used, without a sample, on a source with or without a page index."""
        return SweepJoin(**self._options()) if ordered else MeshJoin(**self._options())

    def named(self, name: str) -> Join:
        """A published join with the same options."""
        return ALGORITHMS[name](**self._options())

    def _options(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(Join)}

    def open(self, master: Any, on: Any = None, **options: Any) -> Run:
        source = open_source(master)
        options = {name: value for name, value in options.items() if value is not None}
        if on is None or not _PLAIN.issuperset(options):  # stores on disk belong to one run
            return self.chosen(source.ordered and on is not None).open(source, on, **options)

        def start(join: Join) -> Run:
            return join.open(source, on, **options)

        known = ("select", "direct")
        seen: dict[str, Any] = {name: options[name] for name in known if name in options}
        return AutoRun(self, source, start, lambda batch: self._seen(source, batch, on, seen))  # type: ignore[return-value]

    def _seen(
        self, source: PageSource, batch: pa.RecordBatch, on: Any, options: dict[str, Any]
    ) -> Observed:
        from semistream.tuning.sample import observe

        push, some = batch.num_rows, batch.slice(0, _MOST)
        return observe(
            source, some, on,
            how=self.how, push=push, drained=self.drained, lookups=False, **options,
        )  # fmt: skip

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return self.chosen(table.ordered).plan(table, stream, settings)

    def policy(self, join: Join, parts: Parts) -> Policy:
        raise InternalError("auto was not resolved before its run was opened; please report this")


class Choice(NamedTuple):
    join: Join
    why: str
    rate: float | None = None  # predicted; None without a calibration of this machine


def decide(auto: AutoJoin, source: PageSource, seen: Observed) -> Choice:
    """The join that is predicted to serve the most, and why; nothing is measured."""
    from semistream.cost import Case, Machine, predict
    from semistream.tuning.calibration_file import load
    from semistream.tuning.plan import format_rate
    from semistream.tuning.tuner import fits_the_page_cache

    calibrated = load(source).machine
    machine = replace(calibrated or Machine(), is_cached=fits_the_page_cache(source))
    fallback = auto.chosen(source.ordered)
    names = [name for name, kind in ALGORITHMS.items() if source.ordered or not kind.needs_order]
    rates: dict[str, float] = {}
    for name in names:
        case = Case(auto.named(name), seen.table, seen.stream, seen.traffic, machine)
        try:
            rates[name] = predict(case).rate
        except BudgetError:
            continue
    ranking = sorted(rates, key=lambda name: -rates[name])
    if not ranking:
        return Choice(fallback, f"{fallback.name}: no join fits into the memory")
    best = ranking[0]
    usual = rates.get(fallback.name, 0.0)
    if rates[best] <= _CLEARLY * usual:
        best = fallback.name
    others = [name for name in ranking if name != best][:1]
    beside = f", {others[0]} {format_rate(rates[others[0]])}" if others else ""
    why = f"{best}: predicted {format_rate(rates[best])}{beside}"
    if calibrated is None:
        why += " (by the package's factors: not calibrated)"
    return Choice(auto.named(best), why, None if calibrated is None else rates[best])


class AutoRun:
    """A run whose join is chosen when its first batch arrives; otherwise as any other run."""

    def __init__(
        self,
        auto: AutoJoin,
        source: PageSource,
        start: Callable[[Join], Run],
        seen: Callable[[pa.RecordBatch], Observed],
    ) -> None:
        self._auto, self._source, self._start, self._seen = auto, source, start, seen
        self._run = start(auto.chosen(source.ordered))
        self._is_open_question = True
        self._decided_for = 0  # tuples of the batch that decided
        self._wanted: int | None = None
        self.why: str | None = None  # the models' reason, once they were asked

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Push a batch; the first one decides which join it is."""
        join = None
        if getattr(batch, "num_rows", 0) >= FEW and (
            self._is_open_question or self._has_other_size(batch.num_rows)
        ):
            self._decided_for = batch.num_rows
            join = self._better(batch)
        rows = self._run.push(batch) if join is None else self._switched(join, batch)
        self._is_open_question &= not batch.num_rows
        return rows

    def _has_other_size(self, rows: int) -> bool:
        """Whether drained batches have become much larger or smaller, and nothing waits now."""
        usual = self._decided_for
        if not self._auto.drained or not usual or self._run.closed:
            return False
        is_other = rows > _OTHER_SIZE * usual or rows * _OTHER_SIZE < usual
        return is_other and not self.stats.waiting and not self._run.parts[2]

    def _better(self, batch: pa.RecordBatch) -> Join | None:
        """Another join, if the models prefer one."""
        try:
            join, why, rate = decide(self._auto, self._source, self._seen(batch))
        except SemistreamError:  # the batch is wrong: pushing it raises
            return None
        except Exception:  # a prediction that fails must not stop the stream
            _log.warning("auto: %s, as no prediction could be made", self.join.name, exc_info=True)
            return None
        _log.info("auto: %s", why)
        self.why = why
        self.stats.predicted_rate = rate
        return None if join.name == self.join.name else join

    def _switched(self, join: Join, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Push the batch to a run of this join; if that fails, to the join without a sample."""
        try:
            self._replace(join)
            return self._run.push(batch)
        except SemistreamError as error:
            usual = self._auto.chosen(self._source.ordered)
            _log.warning("auto: %s, as %s failed: %s", usual.name, join.name, error)
            self.why = f"{usual.name}: {join.name} failed"
            self.stats.predicted_rate = None
            if self.join.name != usual.name:
                self._replace(usual)
            return self._run.push(batch)

    def _replace(self, join: Join) -> None:
        """The run of another join, while nothing waits. The counters are the same object, which
        the caller may have; the old run ends before the new one allocates its window."""
        run = self._start(join)
        run.parts[0].stats = self.stats
        if self._wanted is not None:
            run.use(self._wanted)
        self._run.close()
        self._run = run

    def use(self, version: int) -> None:
        """Join batches pushed from now on with this version of the master table."""
        self._wanted = version
        self._run.use(version)

    def step(self) -> Iterator[pa.RecordBatch]:
        """Run one iteration without new input, for a stream that pauses."""
        return self._run.step()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Serve all waiting tuples."""
        return self._run.flush()

    def close(self) -> None:
        """Release memory and files."""
        self._is_open_question = False
        self._run.close()

    def __enter__(self) -> AutoRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        # What else a run has; not private names, so that copying an unfinished object ends.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._run, name)

    @property
    def join(self) -> Any:
        return self._run.join

    @property
    def stats(self) -> Stats:
        return self._run.stats

    @property
    def memory(self) -> MemoryUse:
        """Bytes by component."""
        return self._run.memory


def join(name: str, **options: Any) -> Join:
    """The join of this name, with its options; ``auto`` chooses when it is opened.

    >>> join("chybridjoin", memory="50MB").name
    'chybridjoin'
    """
    if name != AutoJoin.name:
        if name not in ALGORITHMS:
            raise ConfigError(unknown("join", name, [AutoJoin.name, *ALGORITHMS]))
        return published_join(name, **options)
    known = [field.name for field in fields(AutoJoin)]
    for option in options:
        if option not in known:
            raise ConfigError(f"{name}: {unknown('option', option, known)}")
    return AutoJoin(**options)


def choose(using: Join, source: PageSource, how: str | None = None, drained: bool = False) -> Join:
    """The join for this source, with this ``how``; raises if it needs a missing page index.

    ``auto`` stays ``auto``: the first batch decides, which is ``drained`` or not.
    """
    chosen = using.chosen(source.ordered) if isinstance(using, AutoJoin) else using
    chosen.check_source(source)
    if isinstance(using, AutoJoin):
        using = replace(using, drained=drained)
    return using if how is None else replace(using, how=how)
