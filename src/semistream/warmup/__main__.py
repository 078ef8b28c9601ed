"""``python -m semistream.warmup``: compile all kernels beside a query, without output."""

import os
import signal
import sys

from semistream.warmup.compile_all import most_frequent_cases, warm_up


def make_way(done: int, total: int) -> None:
    """The rest is most likely for later queries: leave the processor to the one that is starting.
    If it needs one of them, it waits, and takes nothing from this process meanwhile."""
    if done == len(most_frequent_cases()):
        os.nice(10)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())  # removes the small tables
    warm_up(make_way)
