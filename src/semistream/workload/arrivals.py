"""Arrival processes: constant, Poisson, bursty and self-similar, or on/off.

Each function returns the number of tuples in every time step, as an int64 array. The user chooses
the length of a step (10 ms, a second); rates are tuples per step. :func:`timestamps`
turns counts into a time for each tuple, :func:`cut` cuts a stream of batches accordingly.

The bursty process is that of Naeem, Dobbie, Weber, *HYBRIDJOIN for Near-Real-Time Data
Warehousing*, 2011, appendix, figure 9. It models sales that follow hours, weeks and seasons:
source i adds 2**i tuples to every step in which it is on, and changes its state after a random
share of 2**i steps, so that slow changes are the large ones and the stream is bursty at every
time scale up to the slowest source.

Differences from the paper
--------------------------
- The paper's variable ``on`` is one for all sources, and the first source taken from the queue
  is never put back. Here every source has its own state and none is lost.
- The paper takes at most one change from its priority queue per step; when several are due they
  wait. Here all due changes happen. The queue would then only merge the timelines of independent
  sources, so each timeline is generated separately and the bandwidths are added.
- The paper switches all sources on at time zero. Here each starts in a random state, so the
  stream has no opening burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream import kernels
from semistream.errors import ConfigError
from semistream.workload.checks import integer, number
from semistream.workload.seeds import stream_key

Counts = npt.NDArray[np.int64]
_MOST_STEPS = 2**31 - 1


def constant(steps: int, rate: float) -> Counts:
    """``rate`` tuples in every step; a fraction is carried over to the next.

    >>> constant(5, rate=2.5).tolist()
    [2, 3, 2, 3, 2]
    """
    steps, rate = _steps_and_rate(steps, rate)
    return _whole(np.arange(1, steps + 1) * rate)


def poisson(steps: int, rate: float, seed: int = 0) -> Counts:
    """Independent arrivals, ``rate`` per step on average.

    >>> counts = poisson(10_000, rate=5.0, seed=1)
    >>> 4.9 < float(counts.mean()) < 5.1
    True
    """
    steps, rate = _steps_and_rate(steps, rate)
    out = np.empty(steps, np.int64)
    kernels.workload_arrivals.poisson_counts(out, stream_key(seed, "poisson"), rate)
    return out


def bursty(steps: int, rate: float | None = None, seed: int = 0, sources: int = 10) -> Counts:
    """Self-similar arrivals from on/off sources of bandwidth 2, 4, ..., 2**sources.

    Parameters
    ----------
    steps
        Number of time steps.
    rate
        Tuples per step in the long run; None leaves the bandwidths as they are, which gives
        2**sources - 1. In a stream shorter than many times 2**sources steps the mean still
        varies, as it does in a self-similar process.
    seed
        The same seed gives the same counts.
    sources
        Number of sources; each one doubles the longest time scale.

    >>> counts = bursty(10_000, rate=100.0, seed=1)
    >>> int(counts.min()), int(counts.max())
    (0, 200)
    """
    sources = integer("sources", sources, 1, 24)
    natural = float(2**sources - 1)
    steps, rate = _steps_and_rate(steps, natural if rate is None else rate)
    out = np.zeros(steps, np.int64)
    for i in range(1, sources + 1):
        kernels.workload_arrivals.add_switching_source(
            out, stream_key(seed, f"bursty source {i}"), np.int64(2**i)
        )
    return out if rate == natural else _whole(np.cumsum(out) * (rate / natural))


def on_off(
    steps: int, rate: float, on_steps: float = 50.0, off_steps: float = 200.0, seed: int = 0
) -> Counts:
    """``rate`` tuples per step while on, none while off; both periods have random lengths.

    >>> counts = on_off(10_000, rate=10.0, on_steps=50.0, off_steps=150.0, seed=1)
    >>> 0.15 < float((counts > 0).mean()) < 0.35
    True
    """
    steps, rate = _steps_and_rate(steps, rate)
    on_steps = number("on_steps", on_steps, 1.0, 2.0**31)
    off_steps = number("off_steps", off_steps, 1.0, 2.0**31)
    mask = np.empty(steps, np.int64)
    kernels.workload_arrivals.on_off_mask(mask, stream_key(seed, "on/off"), on_steps, off_steps)
    return _whole(np.cumsum(mask) * rate)


def by_name(kind: str, rate: float, seed: int = 0) -> Callable[[int], Counts]:
    """An arrival process by name, as a function of the number of steps.

    >>> by_name("constant", rate=2.0)(3).tolist()
    [2, 2, 2]
    """
    processes: dict[str, Callable[[int], Counts]] = {
        "constant": lambda steps: constant(steps, rate),
        "poisson": lambda steps: poisson(steps, rate, seed),
        "bursty": lambda steps: bursty(steps, rate, seed),
        "on-off": lambda steps: on_off(steps, rate, seed=seed),
    }
    if kind not in processes:
        raise ConfigError(f"arrivals={kind!r} is unknown; use one of {', '.join(processes)}")
    return processes[kind]


def until(tuples: int, process: Callable[[int], Counts]) -> Counts:
    """As many steps of a process as ``tuples`` need; the last step is truncated.

    >>> until(7, lambda steps: constant(steps, rate=2.0)).tolist()
    [2, 2, 2, 1]
    """
    tuples = integer("tuples", tuples, 0)
    steps = 1024
    counts = process(steps)
    while int(counts.sum()) < tuples:
        steps *= 2
        counts = process(steps)
    totals = np.cumsum(counts)
    last = int(np.searchsorted(totals, tuples))
    counts = counts[: last + 1]
    counts[-1:] -= totals[last] - tuples
    return counts


def timestamps(counts: Counts, step_seconds: float = 1.0) -> npt.NDArray[np.int64]:
    """Nanoseconds since the start for each tuple, spread evenly over its step.

    >>> timestamps(np.array([2, 0, 1]), step_seconds=1.0).tolist()
    [0, 500000000, 2000000000]
    """
    step_seconds = number("step_seconds", step_seconds, 0.0, 1e9, open_low=True)
    step = int(step_seconds * 1e9)
    if step < 1:
        raise ConfigError(f"step_seconds={step_seconds} is below a nanosecond; give 1e-9 or more")
    starts = np.repeat(np.arange(counts.size, dtype=np.int64) * step, counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(starts.size, dtype=np.int64) - first
    spread: npt.NDArray[np.int64] = place * step // np.repeat(np.maximum(counts, 1), counts)
    return starts + spread


def cut(batches: Iterable[pa.RecordBatch], counts: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Re-batch a stream so that batch t has the arrivals of step t; it may be empty.

    Ends with the stream or with the counts, whichever comes first.

    >>> from semistream.workload.stream import sales
    >>> [batch.num_rows for batch in cut(sales(100, 10), [3, 0, 5])]
    [3, 0, 5]
    """
    source = iter(batches)
    held = next(source, None)
    for count in counts:
        if held is None:
            return
        parts, missing = [], int(count)
        while held is not None and missing >= held.num_rows:
            parts.append(held)
            missing -= held.num_rows
            held = next(source, None)
        if held is not None:
            parts.append(held.slice(0, missing))
            held = held.slice(missing)
        if len(parts) > 1 and sum(part.num_rows for part in parts):
            parts = pa.Table.from_batches(parts).combine_chunks().to_batches()
        yield parts[0]


def _steps_and_rate(steps: int, rate: float) -> tuple[int, float]:
    return (
        integer("steps", steps, 0, _MOST_STEPS),
        number("rate", rate, 0.0, 1e12, open_low=True),
    )


def _whole(expected: npt.NDArray[np.floating[Any]]) -> Counts:
    """Integer tuples per step; rounds the running total, so that no tuple is lost."""
    totals = np.zeros(expected.size + 1, np.int64)
    totals[1:] = np.floor(expected)
    return totals[1:] - totals[:-1]
