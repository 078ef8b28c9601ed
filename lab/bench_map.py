"""Three ways to scattered pages of a cached table: ``python -m lab.bench_map --rows 2000000``.

Each page gives one row, copied out with all its columns, as in a visit of SweepJoin. *Read* copies
the pages that are needed into a buffer, *map* maps a stretch of the file with all its pages and
unmaps it after the visit; both hold ``--buffer`` bytes at most. The break-even is
``master.mapped_reader.MAPPED_PAGES``. *Copy* goes over the whole file as SweepJoin does where few
tuples need a page: compiled code reads some pages into frames, or maps them, and copies their
rows; ``--mapped`` bytes are mapped at most. How fast a map is depends on the share of the file that
the page cache has in huge pages. It is printed; it falls while other files are read. R is the
engine benchmark's; it is kept if it was there.
"""

from __future__ import annotations

import argparse
import shutil
import time
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

import semistream as ss
from lab import machine, page_cache
from lab.engine_data import EngineData
from semistream.engine.page_rows import Openers
from semistream.engine.rows.copied_rows import CopiedRows
from semistream.engine.rows.row_buffer import RowBuffer
from semistream.master.page_buffer import HUGE
from semistream.memory import parse_size

NEEDED = (20, 40, 80, 160, 320, 640)  # pages of a stretch
SHARES = (1600, 400, 100, 50, 12, 6)  # one page of so many, of the file


def visit(table: ss.MasterTable, reader: Any, pages: Any, opener: Any, rows: RowBuffer) -> None:
    """Load the pages, and copy the first row of each."""
    done = 0
    while done < len(pages):
        read = reader.plan(pages[done:])
        loaded = opener.open(read.pages, reader.load(read), read.sizes)
        rows.add(loaded.columns, np.arange(len(read.pages)), np.zeros(len(read.pages), np.int64))
        rows.finish()
        done += len(read.pages)


def measure(table: ss.MasterTable, buffer: int, needed: int, rounds: int) -> dict[str, float]:
    """Microseconds for a page, by way: the median of ``rounds`` stretches anywhere in the file."""
    rng, stretch = np.random.default_rng(needed), buffer // 16_384
    names = list(table.schema.names)
    opener = Openers(table)(names)
    rows = RowBuffer([table.schema.field(name).type for name in names], stretch, 128.0)
    times: dict[str, list[float]] = {"read": [], "map": []}
    for number in range(rounds):
        first = int(rng.integers(0, table.num_pages - stretch))
        pages = first + np.sort(rng.choice(stretch, needed, replace=False))
        for way in sorted(times, reverse=number % 2 == 1):
            least = 1 if way == "map" else 2**31
            with (
                mock.patch("semistream.master.mapped_reader.MAPPED_PAGES", least),
                mock.patch("semistream.master.mapped_reader._SPARSE", 0),
            ):
                reader: Any = table.reader(stretch)
                visit(table, reader, pages[:1], opener, rows)
                began = time.perf_counter()
                visit(table, reader, pages, opener, rows)
                times[way].append(time.perf_counter() - began)
                reader.close()
    return {way: 1e6 * median(found[5:]) / needed for way, found in times.items()}


def measure_copies(
    table: ss.MasterTable, buffer: int, mapped: int, needed: int, rounds: int
) -> dict[str, float]:
    """Microseconds for a page of the file, read into a buffer or copied from."""
    rng, names = np.random.default_rng(needed), list(table.schema.names)
    opener, at_once = Openers(table)(names), buffer // 16_384
    rows = RowBuffer([table.schema.field(name).type for name in names], at_once, 128.0)
    reader: Any = table.reader(at_once)
    copied = CopiedRows(opener, [opener], at_once, table.row_bytes, table.max_row_bytes)
    table.pages.segment.checked[:] = True  # else the first read of a page checks it
    file, first_codes = reader.scattered_pages(mapped), table.pages.segment.pages.first_codes
    times: dict[str, list[float]] = {"read": [], "read rows": [], "map rows": []}
    for number in range(rounds):
        pages = np.sort(rng.choice(table.num_pages, needed, replace=False))
        codes, every = np.ascontiguousarray(first_codes[pages]), np.arange(needed)
        visit(table, reader, pages[:1], opener, rows)
        for way in sorted(times, reverse=number % 2 == 1):
            began = time.perf_counter()
            if way == "read":
                visit(table, reader, pages, opener, rows)
            else:
                done, places = 0, file.mapped() if way == "map rows" else file.in_frames()
                while done < needed:
                    done = copied.copy(codes, every, done, pages, places)
            times[way].append(time.perf_counter() - began)
    reader.close()
    return {way: 1e6 * median(found[2:]) / needed for way, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--buffer", default="24MiB", help="bytes of a stretch")
    parser.add_argument("--mapped", default="16MiB", help="bytes that are mapped for copying")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    data = EngineData(options.rows, options.seed)
    was_there = data.master.exists()
    data.prepare(print, lmdb=False)
    page_cache.drop(data.master)
    data.warm()
    machine.pin_to_one_core()
    table = ss.MasterTable.open(data.master, mapped=True)
    print(f"load {machine.load()}, {table.num_pages:,} pages, {options.buffer} at a time")
    print("| pages needed of a stretch | read, us a page | map, us a page |\n|---|---|---|")
    nbytes = parse_size(options.buffer)
    for needed in (count for count in NEEDED if count <= nbytes // 16_384):
        found = measure(table, nbytes, needed, options.rounds)
        print(f"| {needed} | {found['read']:.2f} | {found['map']:.2f} |")
    share = page_cache.huge_share(data.pages_file)
    print(f"\nthe page cache has {share:.0%} of the file in huge pages")
    print("| pages needed of the file | per 2 MB | read, us a page | read rows | map rows |")
    print("|---|---|---|---|---|")
    for needed in (max(1, table.num_pages // part) for part in SHARES):
        found = measure_copies(
            table, 4 << 20, parse_size(options.mapped), needed, max(5, options.rounds // 5)
        )
        per_huge = needed * HUGE / data.pages_file.stat().st_size
        print(
            f"| {needed} | {per_huge:.1f} | {found['read']:.2f} | "
            f"{found['read rows']:.2f} | {found['map rows']:.2f} |"
        )
    if not was_there:
        shutil.rmtree(data.folder)


if __name__ == "__main__":
    main()
