"""The memory plan: a pure function of the join, the table's shape and the stream's."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import Side, stream_shape, table_shape
from harness import build, check_books, cut, size_named_in
from semistream.engine.plan import MemoryPlan, plan_memory
from semistream.engine.shape import StreamShape, TableShape

NUMBERS = pa.record_batch({"k": [1, 2], "a": [3, 4]})
TEXTS = pa.record_batch({"k": [1, 2], "t": ["x" * 30, "y" * 3000]})
NESTED = pa.record_batch({"k": ["a", "b"], "l": [[1, 2], [3] * 50]})
STREAMS = {
    "unseen": StreamShape(),
    "numbers": stream_shape(NUMBERS),
    "texts": stream_shape(TEXTS),
    "nested": stream_shape(NESTED, Side(pa.schema([("k", pa.string()), ("v", pa.string())]))),
}
TABLES = {
    "usual": table_shape(),
    "empty": table_shape(pages=0, index_bytes=0),
    "one page": table_shape(pages=1),
    "large pages": table_shape(pages=50, page_bytes=1 << 16),
    "many pages": table_shape(pages=20_000, page_bytes=1024),
    "mapped": table_shape(mapped=True),
    "direct": table_shape(direct=True),
    "hashed keys": table_shape(
        exact=False, by_code=False, unique=False, cached_types=(pa.string(), pa.string())
    ),
    "nothing to add": table_shape(output_types=(), cached_types=()),
}
every_join = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
every_table = pytest.mark.parametrize("table", TABLES)
BUDGETS = [20_000, 65_000, 300_000, 3_000_000, 1_000_000_000]


def plan(
    algorithm: str, memory: int, table: TableShape, stream: StreamShape, **options: Any
) -> MemoryPlan | None:
    try:
        return plan_memory(ss.join(algorithm, memory=memory, **options), table, stream)
    except ss.BudgetError:
        return None


@every_join
@every_table
def test_components_are_within_the_budget(algorithm: str, table: str) -> None:
    made = 0
    for memory, stream in product(BUDGETS, STREAMS.values()):
        planned = plan(algorithm, memory, TABLES[table], stream)
        if planned is None:
            continue
        made += 1
        assert planned.total <= planned.budget == memory
        parts = [planned.table, planned.output, planned.front_bytes, planned.pinned_bytes]
        assert min(parts) >= 0
        assert sum(parts) <= planned.total
        assert planned.smallest <= memory
        assert planned.output_rows >= 1
        assert planned.buffer_pages >= 1
        if planned.front is not None:
            assert 0 < planned.front.nbytes <= planned.front_bytes
        if planned.window is not None:
            assert planned.window.capacity >= 1
    assert made >= 2 * len(STREAMS)


@every_join
@every_table
def test_the_smallest_budget_in_the_error_works(algorithm: str, table: str) -> None:
    """And a byte less does not."""
    for stream in STREAMS.values():
        shapes = TABLES[table], stream
        with pytest.raises(ss.BudgetError) as refusal:
            plan_memory(ss.join(algorithm, memory=100), *shapes)
        smallest = size_named_in(str(refusal.value))
        planned = plan(algorithm, smallest, *shapes)
        assert planned is not None
        assert planned.total <= smallest
        with pytest.raises(ss.BudgetError, match=f"is {smallest} bytes"):
            plan_memory(ss.join(algorithm, memory=smallest - 1), *shapes)


@every_join
@pytest.mark.parametrize("stream", ["numbers", "texts", "nested"])
def test_more_memory_never_gives_a_smaller_window(algorithm: str, stream: str) -> None:
    """Except if the disk buffer takes it; not with twice the memory."""
    before: MemoryPlan | None = None
    for memory in range(20_000, 400_000, 3_001):
        planned = plan(algorithm, memory, TABLES["usual"], STREAMS[stream])
        if planned is None:
            continue
        twice = plan(algorithm, 2 * memory, TABLES["usual"], STREAMS[stream])
        assert twice is not None
        assert room(twice) >= room(planned)
        if before is not None and before.table == planned.table:
            assert room(planned) >= room(before)
        before = planned
    assert before is not None


def room(planned: MemoryPlan) -> int:
    """Slots of the window, or frames of a join without a window."""
    return planned.window.capacity if planned.window else planned.buffer_pages


@every_join
def test_an_explicit_size_is_respected(algorithm: str) -> None:
    options: dict[str, Any] = {"disk_buffer_pages": 3}
    for name in ("front_stage", "pinned"):
        if name in ss.ALGORITHMS[algorithm].__dataclass_fields__:
            options[name] = 50_000
    planned = plan(algorithm, 300_000, TABLES["usual"], STREAMS["numbers"], **options)
    assert planned is not None
    if planned.window is not None:  # a pool uses all memory
        assert planned.buffer_pages == 3
    if len(options) > 1:
        assert 50_000 in (planned.front_bytes, planned.pinned_bytes)


@every_join
def test_planning_is_a_pure_function(algorithm: str) -> None:
    """No table is opened, and the same shapes give the same plan."""
    asked: list[int] = []

    def buffer_bytes(pages: int) -> int:
        asked.append(pages)
        return 4096 * pages

    table = replace(TABLES["usual"], buffer_bytes=buffer_bytes)
    plans = [plan(algorithm, 500_000, table, STREAMS["texts"]) for _ in range(2)]
    assert plans[0] == plans[1]
    assert plans[0] == plan(algorithm, 500_000, TABLES["usual"], STREAMS["texts"])
    assert asked


STREAM = pa.table({"k": [i * 7 % 400 for i in range(3_000)], "t": ["x" * 20] * 3_000})


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    table = pa.table({"k": range(300), "v": [f"value {i}" for i in range(300)]})
    path = tmp_path_factory.mktemp("plan") / "table"
    return build(path, table, ["k"], unique=True)


@every_join
@pytest.mark.parametrize("memory", [40_000, 200_000])
def test_a_run_stays_within_its_plan(algorithm: str, memory: int, master: Any) -> None:
    options = {"observe": 20} if "hybridjoin" in algorithm and "x-" in algorithm else {}
    with ss.join(algorithm, memory=memory, how="left", **options).open(master, on="k") as run:
        assert run.memory.total <= run.plan.total
        held = 0
        for batch in cut(STREAM, 500):
            for _ in run.push(batch):
                check_books(run)
                held = max(held, check_plan(run))
        for _ in run.flush():
            held = max(held, check_plan(run))
        assert held > 0.3 * run.plan.total


def check_plan(run: Any) -> int:
    """Component by component; returns the bytes held."""
    memory, planned = run.memory, run.plan
    assert memory["disk buffer"] + memory["page index"] <= planned.table
    assert memory["front stage"] <= planned.front_bytes + planned.extra_bytes
    if planned.window is not None:
        assert memory["window"] <= planned.window.nbytes
    assert memory.total <= planned.total <= planned.budget
    return int(memory.total)
