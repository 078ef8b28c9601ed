"""Compile the kernels with the signatures that runs use, by running small joins.

No list of kernels or of types is kept: every algorithm joins small tables of every shape in
:mod:`semistream.warmup.shapes`, and the generators of :mod:`semistream.workload` generate a few
rows. What they call is compiled and cached. A kernel that nothing here calls fails a test.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semistream.engine.conditions import Compare
from semistream.errors import BudgetError
from semistream.joins import ALGORITHMS, join
from semistream.master.mapped_reader import RESIDENT
from semistream.overload.options import Shedding
from semistream.warmup.shapes import SHAPES, Tables

HOWS = ("inner", "left", "left_semi", "left_anti")
MEMORIES = (4_000_000, 20_000)  # plenty; too little, raised until it is accepted
_CACHES = [{"cache": "recorder", "threshold": 1}, {"cache": "counting", "threshold": 1}]
# What decides which kernels a join calls; all other options are left at their defaults.
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "x-hybridjoin": [{"observe": 20}],
    "optimised-x-hybridjoin": [{"observe": 20}],
    "cmeshjoin": _CACHES,
    "chybridjoin": _CACHES,
    "cinlj": _CACHES,
    # With a small front stage, the tuples of later batches wait for pages that are known.
    "sweepjoin": [{"front_stage": "2kB"}, {"front_stage": "2kB", "cache": "recorder"}, {}],
}
WRAPPED = ("sweepjoin", "meshjoin", "hybridjoin")  # each kind of window
# What `auto` chooses is run as Spark runs it, and first, because a query may wait for it.
FIRST = "sweepjoin"


@dataclass(frozen=True)
class WarmUp:
    """The kernels' signatures that were compiled now, those that there are, and the time."""

    compiled: int
    signatures: int
    seconds: float


@dataclass(frozen=True)
class Case:
    """One small join."""

    algorithm: str
    shape: str
    memory: int
    access: str
    how: str
    options: dict[str, Any] = field(default_factory=dict)
    where: Any = None


def first_cases() -> list[Case]:
    """What a query may wait for now."""
    return [
        Case(FIRST, shape, MEMORIES[0], "mapped", how, options)
        for shape in SHAPES  # all of a shape together: a query waits for one of them
        for options in OPTIONS[FIRST]
        for how in HOWS[:2]
    ]


def most_frequent_cases() -> list[Case]:
    """The first of these: one integer as the key."""
    shapes = list(itertools.takewhile(lambda shape: shape.startswith("int64"), SHAPES))
    return [case for case in first_cases() if case.shape in shapes]


def cases() -> list[Case]:
    """Every algorithm with every shape; hows, access and memories take turns."""
    turns = itertools.cycle(itertools.product(MEMORIES, ("mapped", "read", "direct"), HOWS))
    compared = Case(
        FIRST, "int64", MEMORIES[0], "mapped", HOWS[0], where=Compare("n", "!=", "long")
    )
    resident = [
        Case(name, "int64", MEMORIES[0], RESIDENT, HOWS[0]) for name in (FIRST, "inlj")
    ]  # pages of a visit, and frames of a pool
    return [*first_cases(), compared, *resident] + [
        Case(name, shape, *next(turns), options)
        for name in ALGORITHMS
        for options in OPTIONS.get(name, [{}])
        for shape in SHAPES
    ]


def warm_up(progress: Callable[[int, int], None] = lambda done, total: None) -> WarmUp:
    """Compile what the cache does not have; ``progress`` is called with the joins done and all.

    Returns the number of signatures that were compiled; 0 if all were cached.
    """
    from semistream.kernels import cache_folder
    from semistream.kernels.compile import compilations, signatures

    start, before = time.perf_counter(), compilations()
    planned = cases()
    with tempfile.TemporaryDirectory(prefix="semistream-warm-up-") as folder:
        tables = Tables(Path(folder))
        for number, case in enumerate(planned):
            progress(number, len(planned))
            run_case(case, tables)
        for name, shape in itertools.product(WRAPPED, SHAPES):
            run_wrapped(name, shape, tables)
        run_without_key(tables)
    generate_workload()
    progress(len(planned), len(planned))
    cache_folder.mark_as_complete()
    return WarmUp(compilations() - before, signatures(), time.perf_counter() - start)


def run_case(case: Case, tables: Tables) -> int:
    """Returns the number of rows that came out."""
    memory = case.memory
    while True:
        try:
            return sum(_rows(case, tables, memory))
        except BudgetError:
            memory += memory // 2


def _rows(case: Case, tables: Tables, memory: int) -> Iterator[int]:
    shape = SHAPES[case.shape]
    description = join(case.algorithm, memory=memory, how=case.how, **case.options)
    versions = itertools.cycle((1, 2, 3) if shape.changed else (1,))
    mapped = RESIDENT if case.access == RESIDENT else case.access == "mapped"
    table = tables.open(case.shape, mapped=mapped, version=1)
    direct = case.access == "direct" and tables.can_read_directly
    with description.open(table, on=shape.on, direct=direct, where=case.where) as run:
        _, _, output, policy = run.parts
        # Twice, so that the keys that were absent and the rows that were hot are known; and once
        # more as if a few rows were many.
        batches = [*shape.batches()]
        for number, (batch, version) in enumerate(zip(batches * 3, versions, strict=False)):
            run.use(version)
            if number >= 2 * len(batches):
                output.few_rows = 0
            yield from (rows.num_rows for rows in run.push(batch))
            yield from (rows.num_rows for rows in run.flush())
        yield from (rows.num_rows for rows in run.push(batch))
        policy.release(1)  # as load shedding does


def run_wrapped(algorithm: str, name: str, tables: Tables) -> None:
    """Rows in the order of the stream, and tuples that come back after they were shed: their
    buffers cannot be written to, which makes other signatures."""
    shape, table = SHAPES[name], tables.open(name, mapped=False, version=1)
    with tempfile.TemporaryDirectory(prefix="semistream-warm-up-") as folder:
        around: list[dict[str, Any]] = [
            {"order": "stream"},
            {"shedding": Shedding("keep", store=folder), "buffer": "4kB"},
        ]
        for options in around:
            description = join(algorithm, memory="1MB")
            with description.open(table, on=shape.on, **options) as run:
                for batch in shape.batches():
                    for _ in run.push(batch):
                        pass
                for _ in run.flush():
                    pass


def run_without_key(tables: Tables) -> None:
    """MESHJOIN by a comparison alone, whose window is sorted by the compared column."""
    table = tables.open("int64", mapped=False, version=1)
    # A page at a time, so that tuples arrive while others wait.
    description = join("meshjoin", memory="1MB", disk_buffer_pages=1)
    with description.open(table, where=Compare("n", "<=", "long")) as run:
        for batch in SHAPES["int64"].batches():
            for _ in itertools.chain(run.push(batch), run.step()):
                pass
        for _ in run.flush():
            pass


def generate_workload() -> None:
    """Call the generators of tables, streams and arrivals."""
    import numpy as np

    from semistream.workload import arrivals, locality, relations, stream, zipfian

    for shuffled in (True, False):
        for _ in relations.products(100, shuffled=shuffled):
            pass
    relations.price_of(np.arange(10))
    for scattered in (True, False):
        for _ in stream.sales(100, 1000, scattered=scattered, unmatched=0.1, nulls=0.1):
            pass
    zipfian.zipf(10, 100, method="integral")
    locality.shifting(100, scattered=True)(0, 10)
    for kind in ("constant", "poisson", "bursty", "on-off"):
        arrivals.by_name(kind, 10.0)(5)
