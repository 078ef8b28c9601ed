"""Upserts by another process: ``python -m lab.changes.writer TABLE ROWS COUNT SECONDS``.

Publishes COUNT versions of ROWS rows each, one every SECONDS, and prints how long each took.
"""

from __future__ import annotations

import json
import sys
import time

import semistream as ss
from lab.changes.rows import changed_rows, random_keys


def main(path: str, rows: int, count: int, interval: float) -> None:
    table = ss.MasterTable.open(path)
    seconds = []
    began = time.monotonic()
    for number in range(count):
        data = changed_rows(table, random_keys(table.num_rows, rows, number))
        start = time.monotonic()
        table = table.upsert(data)
        seconds.append(time.monotonic() - start)
        if number % 20 == 19:
            table.vacuum(keep=3)
        time.sleep(max(0.0, began + (number + 1) * interval - time.monotonic()))
    print(json.dumps({"seconds": seconds, "total": time.monotonic() - began}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
