"""SweepJoin while files are damaged from which it copies rows.

Run as a separate process, which would die of SIGBUS.

    python tests/faults/damaged_copies.py FOLDER
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

import naive
import semistream as ss
from copied import MEMORY, WAYS, count_copies
from harness import check_books, cut, drive, watched
from master.split_base import rows, split
from semistream.engine.rows.copied_rows import CopiedRows

KEYS = 1000
DATA = rows(0, KEYS)
EVERY = pa.table({"n": range(KEYS), "k": range(KEYS)})
STREAM = pa.table({"n": range(900), "k": np.random.default_rng(1).integers(-10, KEYS + 10, 900)})
LAST = pa.table({"n": range(10), "k": range(KEYS - 10, KEYS)})  # needs the last page


def without_last_byte(file: Path, pages: Any) -> None:
    os.truncate(file, int(pages.ends(len(pages.pages) - 1)) - 1)


def truncated(file: Path, pages: Any) -> None:
    os.truncate(file, int(pages.offsets[len(pages.pages) // 3]) + 100)


def emptied(file: Path, pages: Any) -> None:
    os.truncate(file, 0)


def overwritten(file: Path, pages: Any) -> None:
    """The header of every page, which is not compared with its checksum again."""
    with open(file, "r+b") as opened:
        for offset in pages.offsets.tolist():
            opened.seek(offset)
            opened.write(bytes(64))


Damage = Callable[[Path, Any], None]
BEFORE: list[Damage] = [without_last_byte, truncated, emptied, overwritten]
MEANWHILE: list[Damage] = [truncated, emptied, overwritten]  # between two system calls


class Strike:
    """Calls something at the moment when rows are going to be copied."""

    def __init__(self) -> None:
        self.now: Callable[[], None] | None = None
        copy = CopiedRows.copy

        def struck(rows: CopiedRows, *arguments: Any) -> int:
            now, self.now = self.now, None
            if now is not None:
                now()
            return copy(rows, *arguments)

        CopiedRows.copy = struck  # type: ignore[method-assign]


def attempt(
    folder: Path, damage: Damage, cuts: tuple[int, ...], strike: Strike | None, way: int
) -> None:
    """Damage and restore the last file of pages in the middle of a run: no tuple is lost."""
    table = split(folder, DATA, cuts)
    path, pages = list(table.pages.segment.by_file().items())[-1]
    copied = count_copies(way)
    with ss.SweepJoin(memory=MEMORY, how="left", front_stage="4KB").open(table, on="k") as run:
        out = drive(run, cut(EVERY, KEYS))  # reads, and checks, all pages
        first, second, third = cut(STREAM, 300)
        out += watched(run, run.push(first))
        out += watched(run, run.flush())
        assert sum(copied) > 100, "no rows were copied"
        out += watched(run, run.push(second))
        out += watched(run, run.push(cut(LAST, 10)[0]))
        assert run.stats.waiting > 100
        content = Path(path).read_bytes()
        if strike is None:
            damage(Path(path), pages)
        else:
            strike.now = lambda: damage(Path(path), pages)
        for serve in (run.flush, run.step, run.flush):
            out += fails(serve)
            check_books(run)
            assert run.stats.waiting
            assert strike is None or strike.now is None, "no row was to be copied"
        Path(path).write_bytes(content)
        out += watched(run, run.push(third))
        out += watched(run, run.flush())
        assert run.stats.waiting == 0
    expected = [
        row for part in (EVERY, STREAM, LAST) for row in naive.join(part, DATA, "k", "left")
    ]
    naive.same_rows(naive.rows_of(out), expected)


def fails(serve: Callable[[], Any]) -> list[pa.RecordBatch]:
    """The rows that were returned before the error."""
    out: list[pa.RecordBatch] = []
    try:
        for batch in serve():
            out.append(batch)
    except ss.MasterTableError:
        return out
    raise AssertionError("the damage went unnoticed")


def main() -> None:
    faulthandler.enable()
    number, strike = 0, Strike()
    for damages, moment in ((BEFORE, None), (MEANWHILE, strike)):
        for damage in damages:
            for cuts, way in itertools.product(((), (400, 700)), WAYS):
                number += 1
                print(damage.__name__, cuts, moment, way, file=sys.stderr, flush=True)
                attempt(Path(sys.argv[1]) / str(number), damage, cuts, moment, WAYS[way])
    print("alive")


if __name__ == "__main__":
    main()
