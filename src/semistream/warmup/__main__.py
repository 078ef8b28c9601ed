"""``python -m semistream.warmup``: compile all kernels, without output."""

import signal
import sys

from semistream.warmup.compile_all import warm_up

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())  # removes the small tables
    warm_up()
