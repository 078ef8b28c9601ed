"""Compiled arrival processes for :mod:`semistream.workload.arrivals`."""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.workload import log, tuple_state

_U1, _U11, _U32 = np.uint64(1), np.uint64(11), np.uint64(32)


@compiled(inline=True)
def _exponential(draw: Any) -> Any:
    """A waiting time of mean 1 from 64 random bits."""
    return -log(np.float64((draw >> _U11) + _U1) * 2.0**-53)


@compiled
def poisson_counts(out: Any, key: Any, rate: Any) -> None:
    """Count exponential gaps of mean 1 / rate into unit steps."""
    position, number = 0.0, 0
    for step in range(out.size):
        count = 0
        while True:
            gap = _exponential(tuple_state(key, number)) / rate
            if position + gap >= 1.0:
                break
            position += gap
            number += 1
            count += 1
        out[step] = count
        # The gap that crosses the step is drawn again: the process is memoryless.
        position = 0.0
        number += 1


@compiled
def add_switching_source(out: Any, key: Any, bandwidth: Any) -> None:
    """Add one on/off source: ``bandwidth`` tuples in each step in which it is on.

    It stays in a state for a time uniform in 0 to ``bandwidth`` steps. Time is an integer
    number of 2**-32 steps, so it is never rounded.
    """
    first = tuple_state(key, 0)
    on = (first & _U1) == _U1
    number = 1
    switch = np.int64((first >> _U32) * np.uint64(bandwidth))
    for step in range(out.size):
        now = np.int64(step) << 32
        while switch <= now:
            on = not on
            switch += np.int64((tuple_state(key, number) >> _U32) * np.uint64(bandwidth)) + 1
            number += 1
        if on:
            out[step] += bandwidth


@compiled
def on_off_mask(out: Any, key: Any, on_steps: Any, off_steps: Any) -> None:
    """Alternate runs of ones and zeros of geometric length with the given means."""
    step, number, on = 0, 0, True
    while step < out.size:
        mean = on_steps if on else off_steps
        length = np.int64(1)
        if mean > 1.0:  # an exponential truncated to whole steps is geometric
            decay = -log(1.0 - 1.0 / mean)
            length += np.int64(min(_exponential(tuple_state(key, number)) / decay, 2.0**62))
        stop = min(step + length, out.size)
        out[step:stop] = 1 if on else 0
        step, number, on = stop, number + 1, not on
