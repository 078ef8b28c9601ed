"""``ss.tune`` and ``ss.predict``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from semistream.cost import Case, Machine, Prediction, predict
from semistream.durations import parse_duration
from semistream.engine.binding import On, Select
from semistream.errors import BudgetError, ConfigError, unknown
from semistream.joins import ALGORITHMS, Join, open_source
from semistream.master.pages import PageSource
from semistream.memory import format_size, parse_size
from semistream.tuning.calibrate import Progress, calibrate
from semistream.tuning.calibration_file import load, save
from semistream.tuning.plan import OutOfReachError, TuningPlan, format_rate, format_seconds
from semistream.tuning.sample import Observed, observe
from semistream.tuning.search import Tuned, tuned

_LESS = (0.7, 0.5, 0.35, 0.2, 0.1)  # of the budget: tried, in case more memory does not serve more
_WORTH = 1.01  # less memory is taken if it serves as much, within this ratio
_STEPS = 18  # of the search for the least memory
# For a wanted rate: times the memory at which the prediction reaches it. A margin of the memory is
# a wide one of the rate where little memory makes a great difference, and a narrow one where much
# memory gains little. This one is half of a fifth: where the plan errs by less, it serves the rate,
# and four fifths of its memory do not.
HEADROOM = 0.8**-0.5


def predict_join(
    join: Join,
    master: PageSource | str | os.PathLike[str],
    *,
    sample: Any,
    on: On,
    select: Select | None = None,
    direct: bool = False,
    push: int = 50_000,
    drained: bool = False,
    machine: Machine | None = None,
) -> Prediction:
    """What a join will do with a table and a stream, from a sample of the stream.

    ``push`` is the size of the batches, ``drained`` whether each is drained before the next one,
    as in a Spark task. ``machine``: default, the calibration beside the table or, without one, the
    package's factors.
    """
    source = open_source(master)
    join.check_source(source)
    seen = observe(
        source, sample, on,
        how=join.how, select=select, direct=direct, push=push, drained=drained,
    )  # fmt: skip
    return predict(_case(join, seen, machine or machine_for(source)))


def tune(
    master: PageSource | str | os.PathLike[str],
    *,
    sample: Any,
    on: On,
    memory: int | str | None = None,
    rate: float | None = None,
    max_wait: str | float | None = None,
    how: str = "inner",
    select: Select | None = None,
    joins: Sequence[str] | None = None,
    direct: bool = False,
    push: int = 50_000,
    drained: bool = False,
    machine: Machine | None = None,
    progress: Progress | None = None,
) -> TuningPlan:
    """Choose the join and the sizes of its parts.

    Parameters
    ----------
    master
        A master table or its path.
    sample
        Some thousand tuples of the stream, as an Arrow batch or table.
    on
        The key, as in ``join.open``.
    memory
        A budget: the plan is the one that serves the most within it.
    rate
        Tuples per second: the plan is the one that serves them with the least memory (at most
        ``memory``, if that is given, too).
    max_wait
        The longest time that a tuple may wait, such as ``"2s"``.
    how, select, direct, push, drained
        As the join will be used.
    joins
        Names to choose from. Default: all that can run on the table.
    machine
        Default: the calibration beside the table, measured again if it is old, damaged or of
        another machine; without one, the package's factors.
    progress
        Called with (done, total, what) if something is measured.
    """
    if memory is None and rate is None:
        raise ConfigError('tune needs memory= (such as "200MB") or rate= (tuples per second)')
    if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < 1e12):
        raise ConfigError(f"rate={rate!r}: give tuples per second, more than 0")
    longest = None if max_wait is None else parse_duration(max_wait, "max_wait")
    source = open_source(master)
    names = _names(joins, source)
    seen = observe(
        source, sample, on, how=how, select=select, direct=direct, push=push, drained=drained
    )
    machine = machine or machine_for(source, progress)
    tuner = Tuner(seen, machine, names, how, longest)
    if rate is not None:
        limit = None if memory is None else parse_size(memory)
        return tuner.least_memory(float(rate), limit)
    assert memory is not None
    return tuner.best(parse_size(memory))


def machine_for(source: Any, progress: Progress | None = None) -> Machine:
    """The machine's factors: calibrated ones, if there are any beside the table.

    A calibration that is damaged, old or of another machine is measured again. Where it cannot be
    written, as beside a table that others own, it is not kept.
    """
    found = load(source)
    machine = found.machine or Machine()
    if found.problem is not None and source.num_rows:
        machine = calibrate(source, progress, keep=False)
        with suppress(OSError):
            save(source, machine)
    return replace(machine, is_cached=fits_the_page_cache(source))


def fits_the_page_cache(source: Any) -> bool:
    """Whether the machine has the memory to keep the table in the page cache."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return True
    return bool(source.nbytes < 0.7 * total)


def _names(joins: Sequence[str] | None, source: PageSource) -> list[str]:
    for name in joins or ():
        if name not in ALGORITHMS:
            raise ConfigError(unknown("join", name, ALGORITHMS))
    names = list(joins or ALGORITHMS)
    usable = [name for name in names if source.ordered or not ALGORITHMS[name].needs_order]
    if not usable:
        raise ConfigError(f"none of {', '.join(names)} can run on a source without a page index")
    return usable


def _case(join: Any, seen: Observed, machine: Machine) -> Case:
    return Case(join, seen.table, seen.stream, seen.traffic, machine)


class Tuner:
    """Compares all joins on one table with one stream."""

    def __init__(
        self,
        seen: Observed,
        machine: Machine,
        names: Sequence[str],
        how: str,
        max_wait: float | None,
    ) -> None:
        self._seen = seen
        self._machine = machine
        self._names = names
        self._how = how
        self._max_wait = max_wait

    def best(self, memory: int) -> TuningPlan:
        """The plan that serves the most in this memory."""
        found = self.ranking(memory)
        if not found:
            raise self._nothing(memory)
        best = found[0]
        for part in _LESS:  # a smaller window may fit the processor's caches
            less = self.one(best.join.name, int(memory * part))
            if less is not None and less.prediction.rate > _WORTH * best.prediction.rate:
                best = less
        return self._plan(best, found)

    def least_memory(self, rate: float, limit: int | None) -> TuningPlan:
        """The plan with the least memory that serves this rate, and headroom if there is any."""
        most = limit or max(1 << 20, int(2.5 * self._seen.table.num_rows * self._row_bytes()))
        found = self.ranking(most)
        if not found or found[0].prediction.rate < rate:
            raise self._too_fast(rate, most, found)
        best = found[0]
        candidates = [one.join.name for one in found if one.prediction.rate >= rate]
        low, high = 1.0, float(most)
        for _ in range(_STEPS):
            if high / low < 1.01:
                break
            middle = (low * high) ** 0.5
            fast = self._fast_enough(candidates, int(middle), rate)
            if fast is None:
                low = max(low, middle)
            else:
                best, high = fast, middle
        memory = min(int(HEADROOM * high), most)
        best = self._fast_enough(candidates, memory, best.prediction.rate) or best
        return self._plan(best, self.ranking(memory))

    def _fast_enough(self, names: Sequence[str], memory: int, rate: float) -> Tuned | None:
        found = [one for name in names if (one := self.one(name, memory)) is not None]
        found = [one for one in found if one.prediction.rate >= rate]
        return max(found, key=lambda one: one.prediction.rate, default=None)

    def ranking(self, memory: int) -> list[Tuned]:
        """Every join with its best settings in this memory, best first."""
        found = [one for name in self._names if (one := self.one(name, memory)) is not None]
        return sorted(found, key=lambda one: -one.prediction.rate)

    def one(self, name: str, memory: int) -> Tuned | None:
        """One join with its best settings; None if it needs more memory, or waits too long."""
        join = ALGORITHMS[name](memory=max(1, memory), how=self._how)
        return tuned(_case(join, self._seen, self._machine), self._max_wait)

    def _plan(self, best: Tuned, found: Sequence[Tuned]) -> TuningPlan:
        others = tuple(
            (one.join, one.prediction) for one in found if one.join.name != best.join.name
        )
        return TuningPlan(
            best.join, best.prediction, others, self._machine.origin, self._seen.notes
        )

    def _row_bytes(self) -> float:
        return max(16.0, self._seen.table.row_bytes)

    # -- what is possible ------------------------------------------------------------------

    def _nothing(self, memory: int) -> OutOfReachError:
        if self._max_wait is not None:
            fastest = replace_wait(self, None).ranking(memory)
            if fastest:
                least = min(fastest, key=lambda one: one.prediction.wait.longest)
                return OutOfReachError(
                    f"no join in {format_size(memory)} has a longest wait below "
                    f"{format_seconds(self._max_wait)}; the shortest is {least.join.name}'s with "
                    f"{format_seconds(least.prediction.wait.longest)}"
                )
        smallest = self._smallest()
        return OutOfReachError(
            f"memory={format_size(memory)} ({memory} bytes) is too small for every join on this "
            f"table; the smallest budget that works is {smallest} bytes"
        )

    def _smallest(self) -> int:
        from semistream.engine.plan import plan_memory

        least = []
        for name in self._names:
            try:
                plan_memory(
                    ALGORITHMS[name](memory=1, how=self._how), self._seen.table, self._seen.stream
                )
            except BudgetError as error:
                digits = [int(word) for word in str(error).split() if word.isdigit()]
                least += digits[-1:]
        return min(least, default=1)

    def _too_fast(self, rate: float, memory: int, found: Sequence[Tuned]) -> OutOfReachError:
        if not found:
            return self._nothing(memory)
        best = found[0]
        limits = "" if self._max_wait is None else f" and a wait below {self._max_wait:g} s"
        return OutOfReachError(
            f"rate={rate:g}: no join serves {format_rate(rate)} on one core within "
            f"{format_size(memory)}{limits}; the most is {format_rate(best.prediction.rate)}, by "
            f"{best.join.name}. Divide the stream over more workers, or ask for less"
        )


def replace_wait(tuner: Tuner, max_wait: float | None) -> Tuner:
    """The same tuner with another limit."""
    return Tuner(tuner._seen, tuner._machine, tuner._names, tuner._how, max_wait)
