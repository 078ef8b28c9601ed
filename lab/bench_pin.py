"""What linking a pin saves: ``python -m lab.bench_pin``.

A pin of the version of the batch before is a second name of its file (one fsync, of the folder).
Beside it, in turns within one process because the time of an fsync depends on what others write:
a new file for every pin, with an fsync of the file, of the scratch file's folder and of the folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.master.pins import pin
from semistream.master.store import LocalStore

_CREATE = LocalStore.create


def _create(
    store: LocalStore, name: str, parents: bool = True, is_scratch: bool = False
) -> AbstractContextManager[BinaryIO]:
    return _CREATE(store, name, parents)


def measure(folder: Path, batches: int) -> dict[str, list[float]]:
    """Milliseconds of every pin, by way."""
    data = pa.table({"id": np.arange(1000)})
    store = ss.MasterTable.build(data, folder / "master", key="id", unique=True).store
    times: dict[str, list[float]] = {"new file": [], "linked": []}
    for batch in range(batches):
        for way in sorted(times, reverse=batch % 2 == 1):
            patches: dict[str, Any] = {"create": _create, "publish_link": lambda *_: False}
            kept = {"create": _CREATE, "publish_link": LocalStore.publish_link}
            with mock.patch.multiple(LocalStore, **(patches if way == "new file" else kept)):
                start = time.perf_counter()
                pin(store, way.replace(" ", "-"), batch)
                times[way].append(1e3 * (time.perf_counter() - start))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--folder", type=Path, help="where the table is; default: temporary")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="semistream-pin-", dir=options.folder) as folder:
        times = measure(Path(folder), options.batches)
    print("| pin | median ms | mean | 95 % |\n|---|---|---|---|")
    for way, found in times.items():
        warm = found[10:]
        high = quantiles(warm, n=20)[-1]
        print(f"| {way} | {median(warm):.2f} | {mean(warm):.2f} | {high:.2f} |")
    faster = sum(b < a for a, b in zip(times["new file"], times["linked"], strict=True))
    print(f"\nlinked is faster in {faster} of {options.batches} pairs")


if __name__ == "__main__":
    main()
