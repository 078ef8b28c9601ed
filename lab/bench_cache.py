"""Hit rates of five cache policies in front of a sweep, on five streams, with equal row counts.

    python -m lab.bench_cache

A missed tuple waits; a sweep covers the keys in 64 visits per turn and loads the rows of all tuples
that wait in the visited part, so a row arrives half a window late on average. Hits are counted in
the second half of the stream. Results: lab/results/cache.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lab import machine
from lab.bench_engine import RESULTS
from lab.cache_policies import POLICIES, Sweep
from semistream.workload import zipf

DOMAIN, CAPACITY, WINDOW, TUPLES = 2_000_000, 20_000, 100_000, 6_000_000
BLOCK = 10_000


def _skewed(exponent: float) -> Callable[[int], Any]:
    return lambda seed: zipf(TUPLES, DOMAIN, exponent, seed, scattered=True) - 1


def _shifting(seed: int) -> Any:
    """The popular keys change after every million tuples."""
    parts = [
        zipf(1_000_000, DOMAIN, 1.0, seed + i, scattered=True) - 1
        for i in range(TUPLES // 1_000_000)
    ]
    return np.concatenate([(part + i * 331_777) % DOMAIN for i, part in enumerate(parts)])


def _scanning(seed: int) -> Any:
    """A third of the tuples walk through all keys in order."""
    keys = _skewed(1.0)(seed)
    scan = np.random.default_rng(seed).random(TUPLES) < 1 / 3
    keys[scan] = np.arange(scan.sum()) % DOMAIN
    return keys


STREAMS: dict[str, Callable[[int], Any]] = {
    "Zipf(1)": _skewed(1.0),
    "Zipf(0.8)": _skewed(0.8),
    "Zipf(0.5)": _skewed(0.5),
    "shifting": _shifting,
    "scanning": _scanning,
}


def hit_rate(policy: Any, keys: Any) -> float:
    """The share of hits in the second half of the stream."""
    part = DOMAIN // Sweep.visits + 1
    waiting = np.zeros(0, keys.dtype)
    hits, position = 0, 0
    for start in range(0, len(keys), BLOCK):
        block = keys[start : start + BLOCK]
        found = policy.touch(block)
        hits += int(found.sum()) if start >= len(keys) // 2 else 0
        waiting = np.concatenate([waiting, block[~found]])
        while len(waiting) > WINDOW:
            here = waiting // part == position
            policy.insert(waiting[here])
            waiting = waiting[~here]
            position = (position + 1) % Sweep.visits
    return hits / (len(keys) - len(keys) // 2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    console = Console()
    rates: dict[str, dict[str, float]] = {name: {} for name in POLICIES}
    for stream, make in STREAMS.items():
        keys = make(options.seed)
        for name, policy in POLICIES.items():
            began = time.perf_counter()
            rates[name][stream] = hit_rate(policy(DOMAIN, CAPACITY), keys)
            seconds = time.perf_counter() - began
            console.print(f"{stream}, {name}: {rates[name][stream]:.4f} ({seconds:.1f} s)")
    table = Table(title=f"hit rate, {CAPACITY:,} of {DOMAIN:,} rows cached, {WINDOW:,} waiting")
    table.add_column("policy")
    for stream in STREAMS:
        table.add_column(stream, justify="right")
    for name, row in rates.items():
        table.add_row(name, *(f"{row[stream]:.3f}" for stream in STREAMS))
    console.print(table)
    report = {"seed": options.seed, "machine": machine.describe(), "hit_rates": rates}
    (RESULTS / "cache.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
