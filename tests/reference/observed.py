"""Our joins as black boxes: what an observer, the counters and the returned rows show.

Nothing here accesses a run's internals. What a reference must know (the size of the window, the
pages of the pool) is inferred from when the run starts to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from harness import size_named_in
from reference.trace import Call, Relation, Row, Tuple

MOST_TUPLES = 5_000  # a window of these tests is far smaller


class Watcher(ss.Observer):
    """Notes reads, iterations and changes of the front stage in the form of ``visible``."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def page_read(self, first: int, count: int, nbytes: int, seconds: float) -> None:
        self.events += [("read", page) for page in range(first, first + count)]

    def iterated(self, matched: int, unmatched: int, waiting: int, seconds: float) -> None:
        self.events.append(("iterated", matched, unmatched))

    def front_stage_changed(self, admitted: int, evicted: int, rows: int, threshold: int) -> None:
        self.events.append(("front stage", admitted, evicted, rows, threshold))

    def reads(self) -> list[int]:
        return [event[1] for event in self.events if event[0] == "read"]


class Watched:
    """A run of one of our joins, with the calls of a reference."""

    def __init__(self, name: str, master: Any, *, padding: int = 0, **options: Any) -> None:
        self.watcher = Watcher()
        self.padding = padding
        self.largest_batch = 0
        options = {"how": "left", **options}
        self.run = ss.join(name, **options).open(master, on="k", observer=self.watcher)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.close()

    def push(self, tuples: Sequence[Tuple]) -> Call:
        return self._record(self.run.push(batch_of(tuples, self.padding)))

    def step(self) -> Call:
        return self._record(self.run.step())

    def flush(self) -> Call:
        return self._record(self.run.flush())

    def _record(self, batches: Iterable[pa.RecordBatch]) -> Call:
        before, hits = len(self.watcher.events), self.run.stats.front_stage_hits
        call = Call()
        for batch in batches:
            self.largest_batch = max(self.largest_batch, batch.num_rows)
            columns = [batch.column("n").to_pylist()]
            if "v" in batch.schema.names:
                columns.append(batch.column("v").to_pylist())
            call.rows += zip(*columns, strict=True)
        call.events = self.watcher.events[before:]
        call.hits = self.run.stats.front_stage_hits - hits
        call.waiting = self.run.stats.waiting
        return call


def batch_of(tuples: Sequence[Tuple], padding: int) -> pa.RecordBatch:
    """The tuples with ``padding`` bytes each: wide tuples make a small window."""
    numbers = pa.array([tuple_.number for tuple_ in tuples], pa.int64())
    keys = pa.array([tuple_.key for tuple_ in tuples], pa.int64())
    columns = {"n": numbers, "k": keys}
    if padding:
        columns["padding"] = pa.array([bytes(padding)] * len(tuples), pa.binary(padding))
    return pa.record_batch(columns)


def as_stream(tuples: Sequence[Tuple]) -> pa.Table:
    return pa.Table.from_batches([batch_of(tuples, 0)])


def as_table(rows: Sequence[Row]) -> pa.Table:
    keys = pa.array([row.key for row in rows], pa.int64())
    return pa.table({"k": keys, "v": pa.array([row.value for row in rows], pa.int64())})


def build(path: Path, keys: Sequence[int], page_bytes: int) -> Any:
    unique = len(set(keys)) == len(keys)
    table = as_table([Row(key, value) for value, key in enumerate(keys)])
    return ss.MasterTable.build(table, path, key="k", unique=unique, page_bytes=page_bytes)


def relation_of(master: Any) -> Relation:
    """The pages of a master table as plain rows."""
    pages = []
    reader = master.reader(1)
    for number in range(master.num_pages):
        page = reader.read(number)[0]
        columns = page.column("k").to_pylist(), page.column("v").to_pylist()
        pages.append([Row(*row) for row in zip(*columns, strict=True)])
    reader.close()
    return Relation(pages)


# -- what can be found out by watching -----------------------------------------------------------


def smallest_memory(name: str, master: Any, **options: Any) -> int:
    """The smallest budget that this join accepts here, as its error message says."""
    memory = 100
    while True:
        try:
            with Watched(name, master, memory=memory, **options) as run:
                run.push([Tuple(0, 0)])
                return memory
        except ss.BudgetError as error:
            memory = max(memory + 1, size_named_in(str(error)))


def absent(number: int) -> Tuple:
    """A tuple that no master table of these tests matches, each time with another key."""
    return Tuple(number, -1000 - number)


def tuples_before_each_iteration(
    name: str, master: Any, iterations: int, **options: Any
) -> list[int]:
    """How many absent tuples, pushed one by one, find room before each of these iterations."""
    counts: list[int] = []
    with Watched(name, master, **options) as run:
        for number in range(MOST_TUPLES):
            call = run.push([absent(number)])
            counts += [number] * sum(event[0] == "iterated" for event in call.events)
            if len(counts) >= iterations:
                return counts[:iterations]
    raise AssertionError(f"{name} takes in {MOST_TUPLES} tuples without an iteration")


def window_of(name: str, master: Any, **options: Any) -> int:
    """Slots of the window of a join whose iterations begin when it is full."""
    return tuples_before_each_iteration(name, master, 1, **options)[0]


def chunk_and_window_of(name: str, master: Any, partitions: int, **options: Any) -> tuple[int, int]:
    """w, and the slots of the window, which is full before the first chunk has met all of R."""
    counts = tuples_before_each_iteration(name, master, partitions, **options)
    return counts[0], counts[-1]


def output_batch_of(name: str, master: Any, window: int, **options: Any) -> int:
    """The most rows that this join puts into one batch: a window full of one absent key leaves."""
    with Watched(name, master, **options) as run:
        run.push([Tuple(number, absent(0).key) for number in range(window)])
        run.flush()
        return run.largest_batch


def pool_pages_of(name: str, master: Any, relation: Relation, **options: Any) -> int:
    """Pages of the buffer pool: the size with which least-recently-used replacement reads the
    same pages for look-ups to and fro between neighbours, and then all over R downwards."""
    held = {row.key for page in relation.pages for row in page}
    # Absent keys, too: where all keys are in several pages, only these are in a single one.
    keys = sorted({key + beside for key in held for beside in (-1, 0, 1)})
    keys = sorted({relation.pages_of(key): key for key in keys}.values())  # one for each place
    neighbours = [*pairwise(keys), *zip(keys, keys[2:], strict=False)]
    to_and_fro = [key for pair in neighbours for key in pair * 2]
    keys = [*to_and_fro, *keys[::-1], *keys[:1]]
    with Watched(name, master, **options) as run:
        for number, key in enumerate(keys):
            run.push([Tuple(number, key)])
        reads = run.watcher.reads()
    for size in range(1, len(relation) + 1):
        if least_recently_used(size, relation, keys) == reads:
            return size
    assert not relation.pages, f"{name} reads {reads} for {keys}"
    return 1


def least_recently_used(size: int, relation: Relation, keys: Sequence[int]) -> list[int]:
    """The pages that a pool of this size reads for these look-ups."""
    pool: list[int] = []
    reads = []
    for key in keys:
        low, high = relation.pages_of(key)
        for page in range(low, high + 1):
            if page in pool:
                pool.remove(page)
            else:
                reads.append(page)
                pool = pool[max(0, len(pool) - size + 1) :]
            pool.append(page)
    return reads


def front_rows_of(name: str, master: Any, relation: Relation, **options: Any) -> int:
    """Rows of the front stage: with a threshold of 1 it fills up. All keys must differ."""
    most = 0
    keys = [row.key for page in relation.pages for row in page]
    with Watched(name, master, **{**options, "threshold": 1}) as run:
        for number, key in enumerate(keys * 3):
            run.push([Tuple(number, key)])
            run.step()
        for event in run.watcher.events:
            if event[0] == "front stage":
                most = max(most, event[3])
    return most
