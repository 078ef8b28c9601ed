"""A run's loop, with a policy of a few lines: what it calls when, and what survives an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import MemoryPages, pages_of
from harness import check_books
from semistream.engine.binding import Binding
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.run import Run
from semistream.testing import FakeClock, RecordingObserver

ROOM = 2


class Shelf(Policy):
    """Tuples wait on a shelf; an iteration looks the oldest one up. ``fail`` names the calls that
    raise next, once each."""

    def __init__(self, join: Any, parts: Parts) -> None:
        super().__init__(join, parts)
        self.calls: list[str] = []
        self.fail: list[str] = []
        self.shelf: list[dict[str, Any]] = []
        self.row: dict[str, Any] | None = None  # that is being served
        self.new_plan = self.grown = False
        self.attached = 0

    def note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fail:
            self.fail.remove(call)
            raise OSError(f"{call} failed")

    def attach(self, source: Any, table: Any, plan: MemoryPlan) -> None:
        self.note(f"attach {source.version}")
        self.attached += 1
        rows = [row for page in source.pages for row in page.to_pylist()]
        self.master = {row["k"]: row["v"] for row in rows}
        self.admission.unique = True

    def detach(self) -> None:
        self.note("detach")
        self.attached -= 1

    def allocate(self, plan: MemoryPlan) -> None:
        self.note("allocate")
        self.new_plan = False

    @property
    def wants_new_plan(self) -> bool:
        return self.new_plan

    def outgrown(self, plan: MemoryPlan, new: MemoryPlan) -> bool:
        return self.grown

    def take_in(self) -> None:
        self.admission.admit(ROOM - len(self.shelf), self._add)
        self.full = len(self.shelf) == ROOM

    def _add(self, part: Any, rows: Any) -> int:
        self.shelf += part.batch.take(pa.array(rows)).to_pylist()
        return len(rows)

    def begin(self) -> None:
        self.context.iteration_begins()
        self.note("begin")
        self.row = self.shelf[0]

    def resume(self) -> None:
        self.note("resume")
        row, self.row = self.shelf.pop(0), None
        found = self.master.get(row["k"])
        self.output.emit([pa.array([value]) for value in row.values()], [pa.array([found])])
        self.context.stats.matched += found is not None
        self.context.stats.unmatched += found is None
        self.iteration_over()

    @property
    def busy(self) -> bool:
        return self.row is not None

    @property
    def held(self) -> int:
        return len(self.shelf)

    def memory(self) -> dict[str, int]:
        return {"window": 100 * len(self.shelf), "pending output": self.output.nbytes}


def batch(*keys: int) -> pa.RecordBatch:
    numbers = pa.array(keys, pa.int64())
    return pa.record_batch({"k": numbers, "a": numbers})


def page(**rows: int) -> pa.RecordBatch:
    """Keys by their values."""
    return pa.record_batch({"k": list(rows.values()), "v": list(rows)})


def open_run(
    source: MemoryPages | None = None, follow: bool = True, memory: int = 100_000
) -> tuple[Run, Any]:
    """A run, and its policy, whose context has a recording observer."""
    source = source or MemoryPages([page(one=1, two=2, three=3)])
    join, made = ss.MeshJoin(memory=memory, how="left"), []

    def shelf(join: Any, parts: Parts) -> Shelf:
        made.append(Shelf(join, parts))
        return made[0]

    binding = Binding(source, "k", None, "left")
    run = Run(join, shelf, source, binding, False, follow, RecordingObserver(), FakeClock())
    return run, made[0]


def values(rows: Iterator[pa.RecordBatch]) -> list[Any]:
    return [row["v"] for one in rows for row in one.to_pylist()]


# -- open, push, step, flush, close ------------------------------------------------------------


def test_a_run_attaches_when_it_opens_and_allocates_at_the_first_batch() -> None:
    run, policy = open_run()
    assert policy.calls == ["attach 1"]
    assert (run.schema, run.version, run.longest_wait) == (None, 1, None)
    assert run.plan.window is None
    list(run.push(batch(1)))
    assert policy.calls[1] == "allocate"
    assert run.schema is not None
    assert run.schema.names == ["k", "a", "v"]
    assert run.plan.window is not None
    list(run.push(batch(2)))
    assert policy.calls.count("allocate") == 1


def test_rows_come_as_soon_as_the_shelf_is_full_and_the_rest_with_flush() -> None:
    run, _ = open_run()
    assert values(run.push(batch(1, 2))) == []
    assert values(run.push(batch(9, 3))) == ["one", "two"]
    assert run.stats.waiting == ROOM
    assert values(run.flush()) == [None, "three"]
    assert values(run.flush()) == []


def test_the_books_balance_after_every_call() -> None:
    run, policy = open_run()
    for keys in ((1, 2, 3), (), (4,), (1, 1, 1, 1)):
        for _ in run.push(batch(*keys)):
            check_books(run)
        check_books(run)
        list(run.step())
        check_books(run)
    list(run.flush())
    check_books(run)
    stats = run.stats
    assert (stats.tuples_in, stats.matched, stats.unmatched, stats.rows_out) == (8, 7, 1, 8)
    observed = policy.context.observer
    assert observed.named("pushed") == [(3,), (0,), (1,), (4,)]
    assert len(observed.named("iterated")) == stats.iterations == 8


def test_a_batch_is_taken_by_the_call_and_not_by_its_iterator() -> None:
    run, _ = open_run()
    run.push(batch(1, 2, 3))
    assert run.stats.waiting == 3
    next(run.push(batch(4)))
    assert run.stats.waiting == 3
    assert values(run.flush()) == ["two", "three", None]


def test_a_step_is_one_iteration() -> None:
    run, policy = open_run()
    assert values(run.step()) == []
    list(run.push(batch(1, 2)))
    assert values(run.step()) == ["one"]
    assert (run.stats.iterations, policy.held) == (1, 1)
    assert values(run.step()) == ["two"]
    assert values(run.step()) == []
    assert run.stats.iterations == 2


def test_what_was_kept_back_is_handed_over_at_the_end_of_every_call() -> None:
    run, policy = open_run()
    policy.hand_over = lambda: policy.calls.append("hand over")
    for call in (run.push(batch(1, 2, 3)), run.step(), run.flush()):
        list(call)
        assert policy.calls.pop() == "hand over"


@pytest.mark.parametrize("call", ["push", "step", "flush", "use"])
def test_a_closed_run_refuses_everything(call: str) -> None:
    run, _ = open_run()
    with run:
        list(run.push(batch(1)))
    arguments = {"push": [batch(1)], "use": [1]}.get(call, [])
    with pytest.raises(ss.ConfigError, match="this run is closed"):
        getattr(run, call)(*arguments)
    assert run.stats.tuples_in == 1
    assert run.memory.total > 0


def test_closing_twice_detaches_once_and_ends_iterators() -> None:
    run, policy = open_run()
    list(run.push(batch(1, 2)))
    rows = run.flush()
    assert values([next(rows)]) == ["one"]
    run.close()
    run.close()
    assert policy.calls.count("detach") == 1
    assert values(rows) == []


def test_a_run_that_is_closed_within_an_iteration_goes_no_further() -> None:
    run, policy = open_run()
    list(run.push(batch(1, 2)))
    policy.begin = run.close  # as a callback may
    policy.hand_over = lambda: pytest.fail("nothing is attached")
    assert list(run.flush()) == []
    assert policy.held == 2


def test_memory_is_the_policys_and_the_index() -> None:
    source = pages_of([[1], [2], [3]])
    run, _ = open_run(source)
    list(run.push(batch(1, 2)))
    index = source.index.nbytes
    assert dict(run.memory) == {"window": 200, "pending output": 0, "page index": index}
    assert run.memory.total == 200 + index
    assert run.memory.budget == 100_000


# -- batches that are refused ------------------------------------------------------------------


@pytest.mark.parametrize("other", [pa.record_batch({"k": [1]}), "no batch"])
def test_a_batch_of_another_schema_is_refused_and_changes_nothing(other: Any) -> None:
    run, _ = open_run()
    list(run.push(batch(1)))
    before = run.stats.as_dict()
    with pytest.raises(ss.SchemaError):
        run.push(other)
    assert run.stats.as_dict() == before
    assert values(run.flush()) == ["one"]


@pytest.mark.parametrize("error", [ss.BudgetError("too long"), MemoryError()], ids=repr)
@pytest.mark.parametrize("method", ["plan", "allocate", "check_batch"])
def test_after_a_first_batch_that_is_refused_the_next_one_is_the_first(
    method: str, error: Exception
) -> None:
    run, policy = open_run()

    def refuse(*_: Any) -> None:
        raise error

    setattr(policy, method, refuse)
    with pytest.raises(type(error)):
        run.push(pa.record_batch({"k": [1], "other": ["x"]}))
    assert (run.schema, run.stats.tuples_in) == (None, 0)
    delattr(policy, method)
    assert values([*run.push(batch(1)), *run.flush()]) == ["one"]
    assert policy.calls.count("allocate") == (2 if method == "check_batch" else 1)


def test_a_tuple_needs_room_for_two_output_rows() -> None:
    run, policy = open_run(memory=20_000)

    def texts(size: int) -> pa.RecordBatch:
        return pa.record_batch({"k": [1], "t": ["x" * size]})

    list(run.push(texts(10)))
    rows, room = policy.output.most_rows, run.plan.output
    list(run.push(texts(room // 8)))
    assert 1 < policy.output.most_rows < rows
    rows = policy.output.most_rows
    with pytest.raises(ss.BudgetError, match="the smallest budget that can is"):
        run.push(texts(room // 2))
    assert policy.output.most_rows == rows
    assert run.stats.tuples_in == 2
    assert values(run.flush()) == ["one", "one"]


# -- errors within the loop --------------------------------------------------------------------


@pytest.mark.parametrize("call", ["begin", "resume"])
def test_an_error_in_an_iteration_loses_nothing(call: str) -> None:
    run, policy = open_run()
    policy.fail = [call]
    with pytest.raises(OSError, match=f"{call} failed"):
        list(run.push(batch(1, 2, 3)))
    check_books(run)
    assert run.stats.waiting == 3
    assert values(run.flush()) == ["one", "two", "three"]


# -- memory that is divided anew ---------------------------------------------------------------


def test_a_new_plan_waits_until_nothing_is_held() -> None:
    run, policy = open_run()
    list(run.push(batch(1, 2)))
    policy.calls.clear()
    policy.new_plan = True
    list(run.push(batch(3)))
    assert "allocate" not in policy.calls
    list(run.flush())
    list(run.push(batch(1)))
    assert policy.calls[-1] == "allocate"


# -- versions ----------------------------------------------------------------------------------


def test_a_run_moves_when_nothing_waits_for_the_version_before() -> None:
    source = MemoryPages([page(one=1, two=2)])
    run, policy = open_run(source)
    list(run.push(batch(1, 2)))
    source.publish([page(uno=1)])
    assert run.version == 1
    policy.calls.clear()
    assert values(run.push(batch(1))) == ["one", "two"]
    assert policy.calls == [*["begin", "resume"] * 2, "detach", "attach 2"]
    assert run.version == 2
    assert values(run.flush()) == ["uno"]
    assert policy.context.observer.named("version_changed") == [(1, 2, 0)]


def test_an_empty_batch_is_enough_to_move() -> None:
    source = MemoryPages([page(one=1)])
    run, _ = open_run(source)
    source.publish([page(uno=1)])
    assert values(run.push(batch())) == []
    assert run.version == 2


def test_a_run_that_does_not_follow_moves_when_it_is_told_to() -> None:
    source = MemoryPages([page(one=1)])
    run, _ = open_run(source, follow=False)
    source.publish([page(uno=1)])
    source.publish([page(eins=1)])
    out = values(run.push(batch(1)))
    run.use(2)
    out += values(run.push(batch(1)))
    run.use(1)
    out += values([*run.push(batch(1)), *run.flush()])
    assert out == ["one", "uno", "one"]


@pytest.mark.parametrize("outgrown", [True, False])
def test_memory_is_divided_anew_if_a_version_has_outgrown_it(outgrown: bool) -> None:
    source = MemoryPages([page(one=1)])
    run, policy = open_run(source)
    list(run.push(batch()))
    policy.grown = outgrown
    source.publish([page(uno=1)])
    list(run.push(batch()))
    assert policy.calls.count("allocate") == (2 if outgrown else 1)


def test_memory_is_divided_anew_if_two_output_rows_no_longer_fit() -> None:
    source = MemoryPages([page(one=1)])
    run, policy = open_run(source)
    list(run.push(batch()))
    wide = source.publish([page(uno=1)])
    wide.max_row_bytes = run.plan.output // 2
    list(run.push(batch()))
    assert policy.calls.count("allocate") == 2
    assert run.plan.output >= 2 * wide.max_row_bytes


@pytest.mark.parametrize(
    ("changed", "dropped", "expected"),
    [
        (None, 3, ["uno", "dos", "tres"]),
        ([], 0, ["one", "two", "three"]),
        ([[2]], 1, ["one", "dos", "three"]),
        ([[3], [1, 9]], 2, ["uno", "two", "tres"]),
    ],
    ids=["unknown", "none", "one", "in several batches"],
)
def test_rows_of_changed_keys_leave_the_front_stage(
    changed: list[list[int]] | None, dropped: int, expected: list[str]
) -> None:
    source = MemoryPages([page(one=1, two=2, three=3)])
    run, policy = open_run(source)
    list(run.push(batch()))
    front = CountingCache([pa.string()], CountingCache.size_for([pa.string()], 5_000, 50.0))
    cached, ones = pa.array(["one", "two", "three"]), np.ones(3, np.int64)
    front.offer(np.array([1, 2, 3]), ones, ones, [cached], np.arange(3))
    policy.admission.front = front
    codes = None if changed is None else [np.array(some, np.int64) for some in changed]
    source.publish([page(uno=1, dos=2, tres=3)], changed=codes)
    rows = pa.Table.from_batches([*run.push(batch(1, 2, 3)), *run.flush()])
    assert rows.sort_by("k")["v"].to_pylist() == expected
    assert policy.context.observer.named("version_changed") == [(1, 2, dropped)]
    assert run.stats.front_stage_hits == 3 - dropped


# -- moves that fail ---------------------------------------------------------------------------


def test_a_version_that_does_not_fit_is_refused_and_the_run_stays() -> None:
    source = MemoryPages([page(one=1)])
    run, policy = open_run(source)
    list(run.push(batch(1)))
    source.publish([pa.record_batch({"k": [1], "w": ["uno"]})])
    with pytest.raises(ss.SchemaError, match="column 'v' is missing"):
        values(run.push(batch(1)))
    assert (run.version, run.stats.waiting) == (1, 1)
    with pytest.raises(ss.SchemaError, match="column 'v' is missing"):
        list(run.flush())
    run.use(1)
    assert values(run.flush()) == ["one"]
    assert "detach" not in policy.calls


@pytest.mark.parametrize("failing", ["attach 2", "allocate"])
def test_a_move_that_fails_leaves_the_run_where_it_was(failing: str) -> None:
    source = MemoryPages([page(one=1)])
    run, policy = open_run(source)
    list(run.push(batch()))
    policy.fail, policy.grown = [failing], True
    source.publish([page(uno=1)])
    with pytest.raises(OSError, match=f"{failing} failed"):
        list(run.push(batch(1)))
    assert (run.version, run.stats.waiting) == (1, 1)
    check_books(run)
    assert values([*run.push(batch(1)), *run.flush()]) == ["uno", "uno"]
    assert run.version == 2
    assert policy.attached == 1


@pytest.mark.parametrize("failing", ["attach 1", "allocate"])
def test_if_the_way_back_fails_too_the_next_call_tries_it_again(failing: str) -> None:
    source = MemoryPages([page(one=1)])
    run, policy = open_run(source)
    list(run.push(batch()))
    policy.fail = ["attach 2", failing, failing]
    source.publish([page(uno=1)])
    for _ in range(2):
        with pytest.raises(OSError, match=f"{failing} failed"):
            list(run.push(batch(1)))
    assert (run.version, run.stats.waiting) == (1, 2)
    run.use(1)
    assert values(run.flush()) == ["one", "one"]
    assert policy.attached == 1
