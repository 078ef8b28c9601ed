"""Micro-batches with a time budget and parking, table changes, drains and crashes in any order.

Every tuple ends up in the sink once, joined with one version of the table that was published since
its batch; or it is parked, and no version has its key; or it is a dead letter.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import naive
import semistream as ss
from overload.kit import MASTER

pytest.importorskip("pyspark")

KEYS = st.integers(0, 40)
POINTS = ["staged", "published", "committed", "dead letters", "swept"]


class Killed(Exception):  # noqa: N818
    """The driver dies."""


class Waits(RuleBasedStateMachine):
    """A batch that a crash interrupts is replayed next, with another number of tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.query: Any = None
        self.number = 0
        self.next = 0
        self.interrupted: list[dict[str, Any]] | None = None
        self.keys: dict[int, int | None] = {}
        self.since: dict[int, int] = {}  # tuple -> versions before its batch

    @initialize(
        keys=st.sets(KEYS, max_size=20),
        how=st.sampled_from(["inner", "left", "left_semi"]),
        seconds=st.sampled_from([None, 2, 5, 1000]),
        parking=st.sampled_from([None, {}, {"max_rows": 10}, {"max_age": 30}]),
        output=st.sampled_from(["parquet", "parquet", "delta"]),
    )
    def start(self, keys: set[int], how: str, seconds: Any, parking: Any, output: str) -> None:
        from overload.waiting_kit import Query

        path = Path(self.folder.name)
        self.how, self.parks = how, parking is not None
        self.written = 0
        self.rows = {key: self.new_row(key) for key in sorted(keys)}
        self.versions = [dict(self.rows)]
        table = pa.Table.from_pylist(list(self.rows.values()), MASTER)
        self.master = ss.MasterTable.build(
            table, path / "table", key="k", unique=True, page_bytes=256
        )
        options: dict[str, Any] = {"batch_time": seconds or (None if self.parks else 3)}
        if self.parks:
            options["parking"] = parking
        self.query = Query(path, how, output, **options)

    def new_row(self, key: int) -> dict[str, Any]:
        self.written += 1
        return {"k": key, "v": self.written, "text": f"row {self.written}" * (key % 3)}

    # -- micro-batches ---------------------------------------------------------------------

    @rule(
        keys=st.lists(KEYS | st.none(), max_size=60),
        tasks=st.integers(1, 3),
        size=st.integers(1, 20),
        point=st.sampled_from([None, None, *POINTS]),
    )
    def batch(self, keys: list[int | None], tasks: int, size: int, point: str | None) -> None:
        rows = self.interrupted
        if rows is None:
            rows = [{"n": self.next + i, "k": key} for i, key in enumerate(keys)]
            for row in rows:
                self.keys[row["n"]] = row["k"]
                self.since[row["n"]] = len(self.versions) - 1
            self.next += len(rows)
        from overload.kit import STREAM

        table = pa.Table.from_pylist(rows, STREAM)
        share = -(-table.num_rows // tasks)
        parts = [table.slice(i * share, share).to_batches(size) for i in range(tasks)]
        if self.does(point, lambda: self.query.run(self.number, parts)):
            self.number, self.interrupted = self.number + 1, None
        else:
            self.interrupted = rows

    @precondition(lambda self: self.interrupted is None)
    @rule(point=st.sampled_from([None, None, *POINTS]))
    def drain(self, point: str | None) -> None:
        self.does(point, self.query.drain)

    def does(self, point: str | None, act: Any) -> bool:
        """Whether it was done without a crash."""

        def fault(reached: str) -> None:
            if reached == point:
                raise Killed

        self.query.fault = fault
        try:
            act()
        except Killed:
            self.query.fault = lambda reached: None
            self.query.restart()
            return False
        return True

    # -- the table -------------------------------------------------------------------------

    @rule(keys=st.sets(KEYS, min_size=1, max_size=8))
    def upsert(self, keys: set[int]) -> None:
        changed = {key: self.new_row(key) for key in keys}
        self.rows |= changed
        self.publish(self.master.upsert(pa.Table.from_pylist(list(changed.values()), MASTER)))

    @rule(keys=st.sets(KEYS, min_size=1, max_size=8))
    def delete(self, keys: set[int]) -> None:
        for key in keys:
            self.rows.pop(key, None)
        self.publish(self.master.delete(pa.array(sorted(keys), pa.int64())))

    def publish(self, master: Any) -> None:
        self.master = master
        self.versions.append(dict(self.rows))

    # -- the oracle ------------------------------------------------------------------------

    def teardown(self) -> None:
        if self.query is not None:
            while self.interrupted is not None:
                self.batch([], 2, 7, None)
            self.query.fault = lambda reached: None
            self.query.drain()
            self.check()
        self.folder.cleanup()

    def check(self) -> None:
        query = self.query
        assert query.waiting("deferred") == []
        found: dict[int, naive.Rows] = defaultdict(list)
        for row in query.rows():
            found[row[0]].append(row)
        parked, dead = Counter(query.waiting("parked")), Counter(query.dead())
        for n, key in self.keys.items():
            rows = found.pop(n, [])
            assert len(rows) + parked[n] + dead[n] <= 1, (n, rows, parked[n], dead[n])
            if parked[n]:
                assert key is not None
                assert key not in self.rows, (n, key)
            elif not dead[n]:
                right = [self.expected(n, key, v) for v in self.versions[self.since[n] :]]
                if self.parks and key is not None:
                    right = [one for one in right if one and one[0][2:3] != (None,)]
                assert rows in right, (n, key, rows)
        assert not found
        assert set(parked) | set(dead) <= set(self.keys)

    def expected(self, n: int, key: int | None, version: dict[int, Any]) -> naive.Rows:
        match = version.get(key) if key is not None else None
        if match is not None:
            return [(n, key, match["v"], match["text"])[: 4 if self.how != "left_semi" else 2]]
        return [(n, key, None, None)] if self.how == "left" else []


def test_any_interleaving() -> None:
    run_machine(examples=4, steps=8)


@pytest.mark.slow
def test_many_interleavings() -> None:
    run_machine(examples=15, steps=20)


@pytest.mark.slow
@pytest.mark.long
def test_very_many_interleavings() -> None:
    run_machine(examples=300, steps=25)


def run_machine(examples: int, steps: int) -> None:
    profile = settings(settings.default, max_examples=examples, stateful_step_count=steps)
    with mock.patch("os.fsync"):  # no power fails here
        run_state_machine_as_test(Waits, settings=profile)
