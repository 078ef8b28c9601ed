"""Bursts, pauses, shedding, return, parking, table changes, full disks, restarts and crashes in any
order.

Every tuple is joined with one version of the table that was published since it was offered; with
parking, with one that has its key. After a crash the caller does what a checkpoint is for: it drops
the rows since the checkpoint and offers the tuples since then again.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections import defaultdict
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
    invariant,
    rule,
    run_state_machine_as_test,
)

import naive
import semistream as ss
from harness import build, check_books, soon, watched
from overload.kit import MASTER, STREAM, crash
from semistream.master.files import Files

KEYS = st.integers(0, 60)
MODES = st.sampled_from(["considering", "keep", "random", "off"])


class Overloaded(RuleBasedStateMachine):
    sheds = parks = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.run: Any = None
        self.written = 0
        self.offered: list[pa.RecordBatch] = []
        self.since: dict[int, int] = {}  # tuple -> number of versions before it was offered
        self.keys: dict[int, int | None] = {}
        self.found: naive.Rows = []
        self.kept = (0, 0)  # rows and batches at the checkpoint
        self.is_repeated = False  # a crash without a checkpoint of both stores

    @initialize(
        keys=st.sets(KEYS, max_size=30),
        how=st.sampled_from(["inner", "left", "left_semi"]),
        mode=MODES,
        algorithm=st.sampled_from(list(ss.ALGORITHMS)),
        position=st.sampled_from([0.0, 0.15, 1.0]),
    )
    def start(self, keys: set[int], how: str, mode: str, algorithm: str, position: float) -> None:
        self.rows = {key: self.new_row(key) for key in sorted(keys)}
        self.versions = [dict(self.rows)]
        path = Path(self.folder.name)
        table = pa.Table.from_pylist(list(self.rows.values()), MASTER)
        self.master = build(path / "table", table, ["k"], unique=True, page_bytes=256)
        self.how = how
        self.deltas = 0
        self.join = ss.join(algorithm, **soon(algorithm, memory=120_000, how=how))
        recover = "all" if self.sheds and self.parks else "checkpoint"
        if self.parks and mode == "random":
            mode = "keep"
        self.options: dict[str, Any] = {}
        if self.sheds:
            store = None if mode == "off" else path / "shed"
            shedding = ss.Shedding(
                mode, store=store, position=position, recover=recover, seed=1, rate=0.5
            )
            self.options |= {"shedding": shedding, "buffer": 12_000}
        if self.parks:
            parking = ss.Parking(path / "parked", buffer=8_000, recover=recover)
            self.options |= {"unmatched": "park", "parking": parking}
        self.open()

    def open(self) -> None:
        self.run = self.join.open(self.master, on="k", **self.options)

    def new_row(self, key: int) -> dict[str, Any]:
        self.written += 1
        return {"k": key, "v": self.written, "text": f"row {self.written}" * (key % 3)}

    def take(self, rows: Any) -> None:
        self.found += naive.rows_of(watched(self.run, rows))

    # -- the stream ------------------------------------------------------------------------

    @rule(keys=st.lists(KEYS | st.none(), max_size=120), times=st.integers(1, 5))
    def burst(self, keys: list[int | None], times: int) -> None:
        for _ in range(times):
            first = sum(batch.num_rows for batch in self.offered)
            rows = [{"n": first + i, "k": key} for i, key in enumerate(keys)]
            self.offered.append(pa.RecordBatch.from_pylist(rows, STREAM))
            self.offer(self.offered[-1])

    def offer(self, batch: pa.RecordBatch) -> None:
        self.note(batch)
        if self.sheds:
            while not self.run.offer(batch):
                assert self.run.options.mode == "off"
                self.take(self.run.step())
        else:
            self.take(self.run.push(batch))

    def note(self, batch: pa.RecordBatch) -> None:
        for n, key in zip(*batch.to_pydict().values(), strict=True):
            self.keys[n] = key
            if not self.is_repeated or n not in self.since:
                self.since[n] = len(self.versions) - 1

    @rule(steps=st.integers(1, 4))
    def serve(self, steps: int) -> None:
        for _ in range(steps):
            self.take(self.run.step())

    @rule()
    def serve_and_walk_away(self) -> None:
        for rows in self.run.step():
            self.found += naive.rows_of([rows])
            break

    @rule(keys=st.lists(KEYS | st.none(), min_size=1, max_size=120), times=st.integers(1, 5))
    def full_disk(self, keys: list[int | None], times: int) -> None:
        """No file can be written for a while: a batch is accepted, or an error says that not."""
        with mock.patch.object(Files, "sync", side_effect=OSError(errno.ENOSPC, "full")):
            for _ in range(times):
                first = sum(batch.num_rows for batch in self.offered)
                rows = [{"n": first + i, "k": key} for i, key in enumerate(keys)]
                batch = pa.RecordBatch.from_pylist(rows, STREAM)
                with contextlib.suppress(ss.SemistreamError):
                    accept = self.run.offer if self.sheds else self.run.push
                    if accept(batch):
                        self.offered.append(batch)
                        self.note(batch)
                with contextlib.suppress(ss.SemistreamError):
                    for rows_out in self.run.step():
                        self.found += naive.rows_of([rows_out])
                check_books(self.run)

    @rule()
    def flush(self) -> None:
        self.take(self.run.flush())
        assert self.run.stats.waiting == 0
        assert self.run.stats.shed == (self.run.parked if self.parks else 0)
        self.check()

    # -- crashes ---------------------------------------------------------------------------

    @rule()
    def checkpoint(self) -> None:
        self.take(self.run.checkpoint())
        assert self.run.stats.waiting == 0
        self.kept = len(self.found), len(self.offered)

    @rule()
    def restart(self) -> None:
        """The process ends in good order: no tuple is served twice."""
        self.checkpoint()
        self.run.close()
        self.open()

    @rule()
    def crash(self) -> None:
        crash(self.run)
        rows, batches = self.kept
        if self.sheds and self.parks:
            self.is_repeated = True
        else:
            self.found = self.found[:rows]
        self.open()
        for batch in self.offered[batches:]:
            self.offer(batch)

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
        self.deltas += 1
        if self.deltas > 4:
            self.master, self.deltas = self.master.compact(), 0

    # -- the oracle ------------------------------------------------------------------------

    def check(self) -> None:
        found: dict[int, naive.Rows] = defaultdict(list)
        for row in self.found:
            found[row[0]].append(row)
        for n, key in self.keys.items():
            rows = found.pop(n, [])
            if self.is_repeated:
                rows = list(dict.fromkeys(rows))
            assert self.is_right(n, key, rows), (n, key, rows)
        assert not found

    def is_right(self, n: int, key: int | None, rows: naive.Rows) -> bool:
        right = [self.expected(n, key, version) for version in self.versions[self.since[n] :]]
        if not self.parks or key is None:
            return rows in right or (self.is_repeated and all([row] in right for row in rows))
        if not rows:  # it is parked
            return key not in self.rows
        matches = [one for one in right if one and one[0][2:3] != (None,)]
        return rows in matches or (self.is_repeated and all([row] in matches for row in rows))

    def expected(self, n: int, key: int | None, version: dict[int, Any]) -> naive.Rows:
        match = version.get(key) if key is not None else None
        if match is not None:
            return [(n, key, match["v"], match["text"])[: 4 if self.how != "left_semi" else 2]]
        return [(n, key, None, None)] if self.how == "left" else []

    @invariant()
    def books_are_in_order(self) -> None:
        if self.run is not None:
            check_books(self.run)

    def teardown(self) -> None:
        if self.run is not None:
            self.flush()
            self.run.close()
        self.folder.cleanup()


class OnlyShedding(Overloaded):
    parks = False


class OnlyParking(Overloaded):
    sheds = False


@pytest.mark.parametrize("machine", [OnlyShedding, OnlyParking, Overloaded])
def test_any_interleaving(machine: Any) -> None:
    run_machine(machine, examples=6, steps=15)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [OnlyShedding, OnlyParking, Overloaded])
def test_many_interleavings(machine: Any) -> None:
    run_machine(machine, examples=60, steps=30)


def run_machine(machine: Any, examples: int, steps: int) -> None:
    profile = settings(settings.default, max_examples=examples, stateful_step_count=steps)
    with mock.patch("os.fsync"):  # no power fails here
        run_state_machine_as_test(machine, settings=profile)
