"""The measured cells: a centre, and variations of one axis at a time.

The whole grid (two sizes of R, four of memory, three exponents, three batch sizes, thirty
variants) takes days. The slices take hours and cover every axis; ``--all`` measures the whole grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from lab import rivals
from lab.rivals.cell import Cell

MEMORIES = ("1", "5", "10", "all")
EXPONENTS = (0.0, 0.5, 1.0)
BATCHES = (1_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Point:
    """A point in the grid."""

    rows: int
    memory: str = "10"
    exponent: float = 1.0
    batch: int = 100_000
    cold: bool = False


@dataclass(frozen=True)
class Size:
    """The values of each axis, repeats and limits."""

    rows: tuple[int, ...]
    check_tuples: int
    check_seconds: float
    warm_tuples: int
    warm_seconds: float
    repeats: int
    repeat_seconds: float
    time_limit: float
    file: str
    centre_only: tuple[str, ...] = ()  # rivals that are too slow, or no different, elsewhere

    @property
    def centre(self) -> Point:
        return Point(max(self.rows))

    def slices(self) -> dict[str, list[Point]]:
        """The centre, and the points that differ from it on one axis, by axis."""
        centre = self.centre
        if len(self.rows) == 1:
            return {"centre": [centre], "memory": [replace(centre, memory="all")]}
        return {
            "centre": [centre],
            "memory": [replace(centre, memory=m) for m in MEMORIES if m != centre.memory],
            "rows": [replace(centre, rows=n) for n in self.rows if n != centre.rows],
            "batch": [replace(centre, batch=n) for n in BATCHES if n != centre.batch],
            "exponent": [replace(centre, exponent=e) for e in EXPONENTS if e != centre.exponent],
            "cold": [replace(centre, cold=True)],
        }

    def everything(self) -> list[Point]:
        axes = product(self.rows, MEMORIES, EXPONENTS, BATCHES, (False, True))
        return [Point(*values) for values in axes]


# Six repeats: the smallest and the largest of six enclose the median with 97 % confidence.
SIZES = {
    "full": Size(
        rows=(2_000_000, 20_000_000),
        check_tuples=200_000,
        check_seconds=2.0,
        warm_tuples=1_000_000,
        warm_seconds=20.0,
        repeats=6,
        repeat_seconds=0.5,
        time_limit=75.0,
        file="rivals.json",
    ),
    "small": Size(
        rows=(500_000,),
        check_tuples=100_000,
        check_seconds=1.0,
        warm_tuples=200_000,
        warm_seconds=0.5,
        repeats=6,
        repeat_seconds=0.1,
        time_limit=8.0,
        file="rivals-small.json",
        centre_only=("spark_static", "lmdb", "rocksdb", "sqlite", "postgresql"),
    ),
}


def cells(size: Size, points: list[Point], names: list[str], seed: int) -> Iterator[Cell]:
    """Every variant of the rivals named, point after point."""
    for point in points:
        for name in names:
            if name in size.centre_only and point != size.centre:
                continue
            kind = rivals.rival(name)
            for variant in kind.variants:
                yield Cell(
                    rival=name,
                    variant=variant,
                    rows=point.rows,
                    memory=point.memory,
                    exponent=point.exponent,
                    batch=point.batch,
                    cold=point.cold,
                    seed=seed,
                    check_tuples=size.check_tuples,
                    check_seconds=size.check_seconds,
                    warm_tuples=size.warm_tuples,
                    warm_seconds=size.warm_seconds,
                    repeats=size.repeats,
                    repeat_seconds=size.repeat_seconds,
                    time_limit=size.time_limit * kind.patience,
                )
