"""What the window joins share: taking in, scanning a partition, tuples that are too large."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import STREAM, MemoryPages, binding, context, emitted, pages_of
from harness import size_named_in
from semistream.engine.disk_buffer import Scan
from semistream.engine.plan import output_row_bytes, page_scratch, plan_memory
from semistream.engine.policy import Parts
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.hash_window import RingWindow
from semistream.engine.window.tuple_layout import TupleLayout, WindowSize
from semistream.engine.window_policy import WindowPolicy

KEYS = [[1, 2], [3, 4], [5, 6], [7, 8], [9]]
TEXT = pa.schema([("k", pa.int64()), ("t", pa.string())])


class Scanner(WindowPolicy):
    """Scans the whole table, and notes what ends when."""

    window_kind = RingWindow

    def __init__(self, join: Any, parts: Parts) -> None:
        super().__init__(join, parts)
        self.ended: list[Any] = []

    def begin(self) -> None:
        self.scan = Scan(0, self.table.num_pages - 1)

    def buffer_done(self, scan: Scan) -> None:
        self.ended.append((scan.first, scan.pages))
        self.learn(scan)

    def partition_done(self, scan: Scan) -> None:
        self.ended.append("partition")
        self.context.stats.matched += self.window.count
        self.window.expire(self.window.count)
        self.scan = None


def batch(*keys: int) -> pa.RecordBatch:
    return pa.record_batch({"k": keys, "a": range(len(keys))}, schema=STREAM)


def scanner(
    source: MemoryPages,
    slots: int = 10,
    rows: int = 100,
    stream: pa.Schema = STREAM,
    join: Any = None,
) -> Scanner:
    """With a window of so many slots, and output batches of so many rows."""
    shared = context(binding(source, stream))
    join = join or ss.join("meshjoin", memory=30_000, disk_buffer_pages=2)
    policy = Scanner(join, Parts(shared))
    policy.intake.layout = TupleLayout(shared.binding, stream)
    table = TableShape.of(source, shared.binding)
    shape = StreamShape(policy.intake.layout, widest=100)
    plan = plan_memory(join, table, shape)
    policy.output.allocate(plan.output, rows, output_row_bytes(join, table, shape))
    policy.attach(source, table, plan)
    policy.allocate(replace(plan, window=WindowSize(slots, 1_000, 0)))
    return policy


def scan(policy: Scanner) -> list[dict[str, Any]]:
    out, policy.ended = [], []
    policy.begin()
    while policy.busy:
        policy.resume()
        out += emitted(policy.output)
    return out


def test_tuples_are_taken_in_until_the_window_is_full() -> None:
    policy = scanner(pages_of(KEYS), slots=3)
    policy.intake.push(batch(5, 1, 9, 2), 1)
    policy.take_in()
    assert (policy.held, policy.full) == (3, False)
    policy.take_in()
    assert (policy.held, policy.full, policy.intake.left) == (3, True, 1)
    assert [row["a"] for row in scan(policy)] == [1, 0, 2]
    policy.take_in()
    assert (policy.held, policy.full) == (1, False)


def test_texts_that_find_no_room_make_it_full_as_well() -> None:
    policy = scanner(pages_of(KEYS), stream=TEXT)
    policy.intake.push(pa.record_batch({"k": [1, 2, 3], "t": ["x" * 300] * 3}), 1)
    policy.take_in()
    assert policy.full
    assert 0 < policy.held < 3


def test_a_partition_is_scanned_buffer_by_buffer() -> None:
    policy = scanner(pages_of(KEYS))
    policy.intake.push(batch(9, 4, 4, 0), 1)
    policy.take_in()
    assert not policy.busy
    rows = scan(policy)
    assert [(row["k"], row["v"]) for row in rows] == [(4, "4/1"), (4, "4/1"), (9, "9/0")]
    assert policy.ended == [(0, 2), (2, 2), (4, 1), "partition"]
    assert policy.context.stats.pages_read == 5


def test_no_more_than_one_output_batch_at_a_time() -> None:
    policy = scanner(pages_of(KEYS), rows=2)
    policy.intake.push(batch(*[3] * 5), 1)
    while policy.intake:
        policy.take_in()
    policy.begin()
    sizes = []
    while policy.busy:
        policy.resume()
        sizes.append(len(emitted(policy.output)))
    assert max(sizes) == 2
    assert sum(sizes) == 5
    assert policy.ended == [(0, 2), (2, 2), (4, 1), "partition"]


def test_a_read_that_fails_is_repeated() -> None:
    source = pages_of(KEYS)
    policy = scanner(source)
    policy.intake.push(batch(1, 8), 1)
    policy.take_in()
    source.fail = [3]
    policy.begin()
    with pytest.raises(OSError, match="page 3"):
        while policy.busy:
            policy.resume()
    assert policy.ended == [(0, 2)]
    while policy.busy:
        policy.resume()
    assert [row["k"] for row in emitted(policy.output)] == [1, 8]
    assert policy.ended == [(0, 2), (2, 2), (4, 1), "partition"]


@pytest.mark.parametrize("learns", [True, False])
def test_rows_that_several_tuples_waited_for_enter_the_front_stage(learns: bool) -> None:
    join = ss.join("cmeshjoin", memory=30_000, threshold=2, disk_buffer_pages=2)
    policy = scanner(pages_of(KEYS), join=join)
    policy.learns = learns
    policy.intake.push(batch(4, 1, 4), 1)
    policy.take_in()
    scan(policy)
    assert policy.front is not None
    assert policy.front.count == learns
    assert policy.memory()["front stage"] == policy.front.nbytes


def test_the_front_stage_ages_with_the_pages_and_tuples_that_pass() -> None:
    policy = scanner(pages_of(KEYS), join=ss.join("cmeshjoin", memory=30_000, disk_buffer_pages=2))
    aged: list[tuple[float, int]] = []
    policy.front.age = lambda *passed: aged.append(passed)  # type: ignore[union-attr, assignment]
    for _ in range(2):
        policy.intake.push(batch(1, 2, 3), 1)
        policy.take_in()
        scan(policy)
    # tuples leave at the partition's end, so they are counted with the next pages
    assert aged == [(0.4, 0), (0.4, 0), (0.2, 0), (0.4, 3), (0.4, 0), (0.2, 0)]


def test_memory_before_and_after_a_batch_is_seen() -> None:
    source = pages_of(KEYS)
    policy = scanner(source)
    window, probe = policy.window, policy.probe
    policy.output.emit(batch(1).columns, [pa.array(["v"])])
    assert probe is not None
    assert policy.memory() == {
        "window": window.nbytes,
        "front stage": 0,
        "disk buffer": source.buffer_bytes(2, False) + page_scratch(policy.table, 2),
        "pending output": probe.nbytes + policy.output.nbytes,
    }
    emitted(policy.output)
    policy.window = policy.probe = None
    assert (policy.memory()["window"], policy.memory()["pending output"]) == (0, 0)
    assert policy.held == 0


def test_detaching_closes_the_reader_and_ends_the_scan() -> None:
    source = pages_of(KEYS)
    policy = scanner(source)
    policy.begin()
    policy.detach()
    assert not policy.busy
    assert [reader.is_closed for reader in source.readers] == [True]


def test_a_tuple_that_no_window_of_this_size_holds_is_refused() -> None:
    policy = scanner(pages_of(KEYS), stream=TEXT)
    policy.check_batch(pa.record_batch({"k": [1, 2], "t": ["x" * 500, None]}))
    long = pa.record_batch({"k": [1, 2], "t": ["x", "y" * 2_000]})
    with pytest.raises(ss.BudgetError) as refusal:
        policy.check_batch(long)
    message = str(refusal.value)
    assert message.startswith("memory=30.0 kB (30000 bytes) cannot hold one page and one tuple for")
    assert "meshjoin; the smallest budget that can is" in message
    assert size_named_in(message) > 30_000 + 2 * 2_000
    assert policy.held == 0
