"""Helpers to run a join: cut a stream, push it, and check the counters after every batch."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss

ALL_AT_ONCE = 1 << 40


@dataclass(frozen=True)
class Case:
    """A stream, a master table and how they are joined; tests are identified by its name."""

    name: str
    stream: pa.Table
    master: pa.Table
    on: str | Sequence[str] | Mapping[str, str] = "k"
    select: Sequence[str] | Mapping[str, str] | None = None
    page_bytes: int = 1024
    options: Mapping[str, Any] = field(default_factory=dict)
    where: Any = None  # conditions, and the same as a function of two rows
    condition: naive.Where = None
    cuts: tuple[int, ...] = (7, ALL_AT_ONCE)

    remembered: dict[str, naive.Rows] = field(default_factory=dict, repr=False, compare=False)

    @property
    def key(self) -> list[str]:
        return list(naive.key_pairs(self.on).values())

    def expected(self, how: str) -> naive.Rows:
        """The expected rows; computed once for all joins."""
        if how not in self.remembered:
            rows = naive.join(self.stream, self.master, self.on, how, self.select, self.condition)
            self.remembered[how] = rows
        return self.remembered[how]

    def columns(self, how: str) -> list[str]:
        return naive.columns(self.stream, self.master, self.on, how, self.select)


every_join_and_how = pytest.mark.parametrize(
    ("algorithm", "how"),
    [
        pytest.param(name, how, marks=[] if (a + h) % 4 == 0 else [pytest.mark.slow])
        for a, name in enumerate(ss.ALGORITHMS)
        for h, how in enumerate(naive.HOWS)
    ],
)
"""The quick run takes one ``how`` for each join, the slow run the others."""


def cut(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    """The table in record batches of ``size`` rows; a table without rows is one empty batch."""
    batch = table.combine_chunks().to_batches()
    whole = batch[0] if batch else pa.RecordBatch.from_pylist([], schema=table.schema)
    return [whole.slice(start, size) for start in range(0, len(whole), size)] or [whole]


def check_books(run: Any) -> None:
    """The two invariants of a run: no tuple is lost, and memory is within the budget."""
    stats, memory = run.stats, run.memory
    accounted = stats.matched + stats.unmatched + stats.shed + stats.waiting
    assert stats.tuples_in == accounted, f"a tuple is lost: {stats.as_dict()}"
    assert min(stats.matched, stats.unmatched, stats.waiting) >= 0, stats.as_dict()
    sizes = list(memory.values())
    assert memory.total == sum(sizes), f"memory does not add up: {dict(memory)}"
    assert min(sizes) >= 0, f"a size is negative: {dict(memory)}"
    assert memory.total <= memory.budget, f"{memory.total} > {memory.budget}: {dict(memory)}"


def watched(run: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with :func:`check_books` after each and at the end."""
    for rows in batches:
        check_books(run)
        yield rows
    check_books(run)


def drive(run: Any, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Push all batches, flush, and return the output."""
    rows_before = run.stats.rows_out
    out: list[pa.RecordBatch] = []
    for batch in batches:
        out += watched(run, run.push(batch))
    out += watched(run, run.flush())
    assert run.stats.waiting == 0, f"flush leaves tuples waiting: {run.stats.as_dict()}"
    assert run.stats.rows_out - rows_before == sum(rows.num_rows for rows in out)
    return out


def drain_by_steps(run: Any, most: int = 10_000) -> list[pa.RecordBatch]:
    """Step until nothing waits."""
    out: list[pa.RecordBatch] = []
    for _ in range(most):
        if run.stats.waiting == 0:
            return out
        out += watched(run, run.step())
    raise AssertionError(f"still waiting after {most} steps: {run.stats.as_dict()}")


def build(path: Path, table: pa.Table, key: Sequence[str], **options: Any) -> Any:
    """A master table with small pages."""
    options = {"unique": False, "page_bytes": 1024, **options}
    return ss.MasterTable.build(table, path, key=list(key), **options)


def smallest_memory(
    algorithm: str, master: Any, batches: Sequence[pa.RecordBatch], on: Any, **options: Any
) -> int:
    """About the smallest budget with which the join serves this stream.

    Another test checks that the budget in an error message suffices; here a join that names too
    little gets slightly more.
    """
    select, where = options.pop("select", None), options.pop("where", None)
    memory = 100
    for _ in range(60):
        join = ss.join(algorithm, memory=memory, **options)
        try:
            with join.open(master, on=on, select=select, where=where) as run:
                for batch in batches:
                    run.push(batch)  # raises before it joins anything
            return memory
        except ss.BudgetError as error:
            memory = max(size_named_in(str(error)), int(1.2 * memory))
    raise AssertionError(f"{algorithm} refuses every budget")


def size_named_in(message: str) -> int:
    """The last "... bytes" of an error message: the budget that would suffice."""
    sizes = re.findall(r"(\d+) bytes", message)
    assert sizes, f"no size in: {message}"
    return int(sizes[-1])


def takes(algorithm: str, option: str) -> bool:
    """Whether the join has this option."""
    return option in {field.name for field in dataclasses.fields(ss.ALGORITHMS[algorithm])}


def soon(algorithm: str, **options: Any) -> dict[str, Any]:
    """These options; a join that observes the stream before it pins pages observes few."""
    return {**options, "observe": 20} if takes(algorithm, "observe") else options


def check_pinned(run: Any) -> None:
    """If the join pins observed hot pages, assert that some are pinned by now."""
    if takes(run.join.name, "observe"):
        held = run.memory.get("pinned pages", 0) or run.stats.front_stage_hits
        assert held, f"{run.join.name} has pinned nothing: {run.memory!r}"


def needs_direct_io(folder: Path) -> None:
    """Skip the test if the file system does not support direct I/O."""
    (folder / "probe").write_bytes(b"x" * 4096)
    try:
        os.close(os.open(folder / "probe", os.O_RDONLY | os.O_DIRECT))
    except (OSError, AttributeError):
        pytest.skip("no direct I/O here")
