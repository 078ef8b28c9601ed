"""Changes by another process: ``python -m lab.changes.writer TABLE KIND ROWS COUNT SECONDS MOST``.

Publishes COUNT versions of ROWS rows each, one every SECONDS, for at most MOST seconds, and prints
how long each took. KIND: ``upsert`` changes rows, ``append`` adds some.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

import semistream as ss
from lab.changes.rows import changed_rows, random_keys


def main(path: str, kind: str, rows: int, count: int, interval: float, most: float) -> None:
    table = ss.MasterTable.open(path)
    first = table.num_rows + 1
    seconds: list[float] = []
    began = time.monotonic()
    while len(seconds) < count and time.monotonic() - began < most:
        number = len(seconds)
        keys = random_keys(first - 1, rows, number)
        if kind == "append":
            keys = np.arange(first + number * rows, first + (number + 1) * rows)
        data = changed_rows(table, keys)
        start = time.monotonic()
        table = table.upsert(data)
        seconds.append(time.monotonic() - start)
        if number % 20 == 19:
            table.vacuum(keep=3)
        time.sleep(max(0.0, began + (number + 1) * interval - time.monotonic()))
    print(json.dumps({"seconds": seconds, "total": time.monotonic() - began}))


if __name__ == "__main__":
    table, kind, *numbers = sys.argv[1:]
    main(table, kind, int(numbers[0]), int(numbers[1]), float(numbers[2]), float(numbers[3]))
