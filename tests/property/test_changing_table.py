"""A run and its master table, used concurrently in any order.

A run follows its table: it moves to the newest version when a push begins, after it has served
everything that waits. So every tuple joins the version that was the newest when it was pushed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import naive
import semistream as ss
from harness import build, check_books, soon, watched

KEYS = st.integers(0, 30)
MASTER = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("text", pa.string())])
STREAM = pa.schema([("n", pa.int64()), ("k", pa.int64())])


class ChangingTable(RuleBasedStateMachine):
    algorithm: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.written = self.pushed = self.deltas = 0
        self.expected: naive.Rows = []
        self.found: naive.Rows = []
        self.run: Any = None

    @initialize(
        keys=st.sets(KEYS),
        how=st.sampled_from(naive.HOWS),
        memory=st.sampled_from([80_000, 150_000, 1_000_000]),
        page_bytes=st.sampled_from([128, 512]),
    )
    def start(self, keys: set[int], how: str, memory: int, page_bytes: int) -> None:
        self.rows = {key: self.new_row(key) for key in sorted(keys)}
        path = Path(self.folder.name) / "table"
        self.master = build(path, self.as_table(), ["k"], unique=True, page_bytes=page_bytes)
        self.how = how
        options = soon(self.algorithm, memory=memory, how=how)
        self.run = ss.join(self.algorithm, **options).open(self.master, on="k")

    def new_row(self, key: int) -> dict[str, Any]:
        self.written += 1
        return {"k": key, "v": self.written, "text": f"row {self.written}" * (key % 3)}

    def as_table(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows.values()), MASTER)

    def arrived(self, keys: list[int | None]) -> pa.RecordBatch:
        rows = [{"n": self.pushed + i, "k": key} for i, key in enumerate(keys)]
        self.pushed += len(keys)
        batch = pa.RecordBatch.from_pylist(rows, STREAM)
        stream = pa.Table.from_batches([batch])
        self.expected += naive.join(stream, self.as_table(), "k", self.how)
        return batch

    @rule(keys=st.lists(KEYS | st.none(), max_size=60))
    def push(self, keys: list[int | None]) -> None:
        self.found += naive.rows_of(watched(self.run, self.run.push(self.arrived(keys))))
        assert self.run.version == self.master.version

    @rule(keys=st.lists(KEYS | st.none(), max_size=60))
    def push_and_walk_away(self, keys: list[int | None]) -> None:
        for rows in self.run.push(self.arrived(keys)):
            self.found += naive.rows_of([rows])
            break

    @rule()
    def step(self) -> None:
        self.found += naive.rows_of(watched(self.run, self.run.step()))

    @rule()
    def flush(self) -> None:
        self.found += naive.rows_of(watched(self.run, self.run.flush()))
        assert self.run.stats.waiting == 0
        naive.same_rows(self.found, self.expected)

    @rule(keys=st.sets(KEYS, min_size=1, max_size=8))
    def upsert(self, keys: set[int]) -> None:
        self.fold_many_deltas()
        changed = {key: self.new_row(key) for key in keys}
        self.rows |= changed
        self.master = self.master.upsert(pa.Table.from_pylist(list(changed.values()), MASTER))

    @rule(keys=st.sets(KEYS, min_size=1, max_size=8))
    def delete(self, keys: set[int]) -> None:
        self.fold_many_deltas()
        for key in keys:
            self.rows.pop(key, None)
        self.master = self.master.delete(pa.array(sorted(keys), pa.int64()))

    @rule()
    def compact(self) -> None:
        self.master = self.master.compact()
        self.deltas = 0

    def fold_many_deltas(self) -> None:
        """Each delta needs one more page buffer; the budgets here are small."""
        self.deltas += 1
        if self.deltas > 4:
            self.compact()

    @invariant()
    def books_are_in_order(self) -> None:
        if self.run is not None:
            check_books(self.run)
            assert self.run.stats.tuples_in == self.pushed

    def teardown(self) -> None:
        if self.run is not None:
            self.flush()
            self.run.close()
        self.folder.cleanup()


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_a_table_that_changes(algorithm: str) -> None:
    run_machine(algorithm, examples=8, steps=20)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_a_table_that_changes_long_run(algorithm: str) -> None:
    run_machine(algorithm, examples=60, steps=60)


def run_machine(algorithm: str, examples: int, steps: int) -> None:
    machine = type(f"ChangingTable_{algorithm}", (ChangingTable,), {"algorithm": algorithm})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps)
    )
