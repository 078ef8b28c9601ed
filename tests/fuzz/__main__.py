"""Draw cases until the time is up, the count is reached, or one fails: ``make fuzz MINUTES=n``.

A failure prints the case and the command that repeats it. A worker that dies or hangs is a failure
of its current case.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from fuzz.faults import Disk
from fuzz.worker import NAMES, Worker, run_world


def fuzz(start: int, minutes: float, most: int, workers: int) -> int:
    began = last = time.monotonic()
    print(f"==> fuzz, seed {start}, commit {_commit()}", flush=True)
    team = [Worker(itertools.count(start + i, workers)) for i in range(workers)]
    try:
        while True:
            time.sleep(0.2)
            counts = [sum(column) for column in zip(*(w.counts for w in team), strict=True)]
            for worker in team:
                said = worker.failure()
                if said is not None:
                    print(f"\n{said}\n{sum(counts)} cases passed; repeat the one that failed with")
                    print(f"    make fuzz SEED={worker.at}", flush=True)
                    return 1
            now = time.monotonic()
            over = now - began >= 60 * minutes or sum(counts) >= most
            if over or now - last >= (1 if sys.stdout.isatty() else 30):
                last = now
                rate = sum(counts) / (now - began)
                line = f"{sum(counts):,} cases, {rate:.0f}/s, {(now - began) / 60:.1f} minutes"
                print(line, end="\r" if sys.stdout.isatty() else "\n", flush=True)
            if over:
                print()
                for name, count in zip(NAMES, counts, strict=True):
                    print(f"{name:>24} {count:>10,}")
                print(f"{'all passed':>24} {sum(counts):>10,}")
                return 0
    finally:
        for worker in team:
            worker.stop()


def repeat(seed: str) -> int:
    """One case, in this process, so that a debugger can look at it."""
    world, number = (int(part) for part in seed.split("."))
    disk = Disk()
    with disk.installed():
        run_world(world, [number], disk, lambda case, done: done or print(case))
    print(f"case {seed} passes")
    return 0


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--cases", type=int, default=1 << 60, help="maximum number of cases")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seed", default="", help="WORLD.CASE reproduces a case; WORLD starts there"
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))  # ends the workers, too
    if "." in asked.seed:
        return repeat(asked.seed)
    start = int(asked.seed) if asked.seed else random.SystemRandom().randrange(1 << 40)
    return fuzz(start, asked.minutes, asked.cases, asked.workers)


if __name__ == "__main__":
    sys.exit(main())
