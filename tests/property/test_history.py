"""As-of joins while the table changes: a tuple meets the row that was valid at its time."""

from __future__ import annotations

import tempfile
from datetime import date, datetime, timedelta
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

KEYS, TIMES = st.integers(0, 9), st.integers(0, 20)
NOON = datetime(2024, 1, 1, 12)
# The type of times in the table, the type in the stream, and a value of each
KINDS: dict[str, tuple[Any, ...]] = {
    "number": (pa.int64(), pa.int32(), int, int),
    "date": (pa.date32(), pa.date32(), *[lambda n: date(2024, 1, 1) + timedelta(days=n)] * 2),
    "time": (pa.timestamp("us"), pa.timestamp("ns"), *[lambda n: NOON + timedelta(hours=n)] * 2),
}


class ChangingHistory(RuleBasedStateMachine):
    algorithm: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.written = self.pushed = self.deltas = 0
        self.expected: naive.Rows = []
        self.found: naive.Rows = []
        self.run: Any = None

    @initialize(
        rows=st.sets(st.tuples(KEYS, TIMES), max_size=40),
        how=st.sampled_from(naive.HOWS),
        kind=st.sampled_from(list(KINDS)),
        has_end=st.booleans(),
        is_text=st.booleans(),
        select=st.sampled_from([None, ["v"]]),
        memory=st.sampled_from([120_000, 1_000_000]),
        order=st.sampled_from([None, "stream"]),
    )
    def start(
        self,
        rows: Any,
        how: str,
        kind: str,
        has_end: bool,
        is_text: bool,
        select: Any,
        memory: int,
        order: str | None,
    ) -> None:
        begins, times, self.begin, self.time = KINDS[kind]
        self.key_of: Any = str if is_text else int
        key_type = pa.string() if is_text else pa.int64()
        self.schema = pa.schema(
            [("k", key_type), ("v", pa.int64()), ("since", begins), ("until", begins)]
        )
        self.stream = pa.schema([("n", pa.int64()), ("k", key_type), ("t", times)])
        self.end = "until" if has_end else None
        self.how, self.select = how, select
        self.rows = {row: self.new_row(*row) for row in sorted(rows)}
        path = Path(self.folder.name) / "table"
        self.master = build(
            path, self.as_table(self.rows), ["k"], page_bytes=256, history="since",
            valid_to=self.end,
        )  # fmt: skip
        assert self.master.schema.names == self.schema.names
        join = ss.join(self.algorithm, **soon(self.algorithm, memory=memory, how=how))
        self.run = join.open(self.master, on="k", as_of="t", select=select, order=order)
        self.is_ordered = order is not None

    def new_row(self, key: int, since: int) -> dict[str, Any]:
        self.written += 1
        lasts = (self.written * 7) % 11
        until = None if lasts > 5 else self.begin(since + lasts)
        row = {"k": self.key_of(key), "v": self.written, "since": self.begin(since)}
        return {**row, "until": until}

    def as_table(self, rows: dict[Any, Any]) -> pa.Table:
        return pa.Table.from_pylist(list(rows.values()), self.schema)

    @rule(tuples=st.lists(st.tuples(KEYS | st.none(), TIMES | st.none()), max_size=50))
    def push(self, tuples: list[Any]) -> None:
        rows = [
            {
                "n": self.pushed + i,
                "k": None if key is None else self.key_of(key),
                "t": None if time is None else self.time(time),
            }
            for i, (key, time) in enumerate(tuples)
        ]
        self.pushed += len(rows)
        batch = pa.RecordBatch.from_pylist(rows, self.stream)
        master = self.as_table(self.rows)
        condition = naive.as_of(master, "k", "t", "since", self.end)
        stream = pa.Table.from_batches([batch])
        self.expected += naive.join(stream, master, "k", self.how, self.select, condition)
        self.found += naive.rows_of(watched(self.run, self.run.push(batch)))

    @rule()
    def flush(self) -> None:
        self.found += naive.rows_of(watched(self.run, self.run.flush()))
        naive.same_rows(self.found, self.expected)
        if self.is_ordered:
            assert [row[0] for row in self.found] == [row[0] for row in self.expected]

    @rule(rows=st.sets(st.tuples(KEYS, TIMES), min_size=1, max_size=8))
    def upsert(self, rows: Any) -> None:
        self.fold_many_deltas()
        changed = {row: self.new_row(*row) for row in sorted(rows)}
        self.rows |= changed
        self.master = self.master.upsert(self.as_table(changed))
        assert self.master.num_rows == len(self.rows)

    @rule(keys=st.sets(KEYS, min_size=1, max_size=3))
    def delete(self, keys: set[int]) -> None:
        self.fold_many_deltas()
        self.rows = {row: values for row, values in self.rows.items() if row[0] not in keys}
        self.master = self.master.delete([self.key_of(key) for key in sorted(keys)])
        assert self.master.num_rows == len(self.rows)

    @rule()
    def compact(self) -> None:
        self.master = self.master.compact()
        self.deltas = 0

    def fold_many_deltas(self) -> None:
        self.deltas += 1
        if self.deltas > 4:
            self.compact()

    @invariant()
    def books_are_in_order(self) -> None:
        if self.run is not None:
            check_books(self.run)

    def teardown(self) -> None:
        if self.run is not None:
            self.flush()
            self.run.close()
            naive.same_rows(
                naive.rows_of([self.master.to_table()]), naive.rows_of([self.as_table(self.rows)])
            )
        self.folder.cleanup()


@pytest.mark.parametrize("algorithm", ["cinlj", "chybridjoin", "sweepjoin"])
def test_as_of_a_table_that_changes(algorithm: str) -> None:
    run_machine(algorithm, examples=8, steps=12)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_as_of_a_table_that_changes_long_run(algorithm: str) -> None:
    run_machine(algorithm, examples=15, steps=25)


def run_machine(algorithm: str, examples: int, steps: int) -> None:
    machine = type(f"ChangingHistory_{algorithm}", (ChangingHistory,), {"algorithm": algorithm})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps)
    )
