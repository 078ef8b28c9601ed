"""CONTRIBUTING's recipe is true: a join of a few lines, defined here, passes the suite of cases.

BLOCKJOIN, a block nested loop join: fill the window, scan the whole table once, empty the window.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

import naive
import semistream as ss
from conformance.suite import conform
from conformance.test_columns import CASES as COLUMNS
from conformance.test_keys import COMPOSITE, SAME_TYPE, WIDENED
from conformance.test_shapes import CASES as SHAPES
from semistream.engine.disk_buffer import Scan
from semistream.engine.plan import MemoryPlan, buffer_pages, plan_window_join
from semistream.engine.window.hash_window import RingWindow
from semistream.engine.window_policy import WindowPolicy
from semistream.joins.base import Join
from semistream.kernels import states


@dataclass(frozen=True, kw_only=True)
class BlockJoin(Join):
    """Fill the window, scan the table, empty the window."""

    name: ClassVar[str] = "blockjoin"
    needs_order: ClassVar[bool] = False

    def plan(self, table: Any, stream: Any, settings: Any) -> MemoryPlan:
        pages = buffer_pages(self, table, settings.buffer_share, settings.mesh_buffer_bytes)
        return plan_window_join(self, table, stream, settings, window=RingWindow, pages=pages)

    def policy(self, join: Join, parts: Any) -> WindowPolicy:
        return Block(join, parts)


class Block(WindowPolicy):
    window_kind = RingWindow
    leaving = False

    @property
    def longest_wait(self) -> int:
        return 1  # everyone in the window leaves with the next iteration

    def begin(self) -> None:
        self.context.iteration_begins()
        scan = Scan(0, self.table.num_pages - 1)
        if not scan.ended:
            self.buffer.fill(scan)
        self.scan, self.leaving = scan, scan.ended

    def resume(self) -> None:
        if self.leaving:
            self.leave()
        else:
            super().resume()

    def buffer_done(self, scan: Scan) -> None:
        self.learn(scan)

    def partition_done(self, scan: Scan) -> None:
        self.leaving = True

    def leave(self) -> None:
        window, stats = self.window, self.context.stats
        slots = window.oldest(min(window.count, self.output.most_rows))
        absent = slots[window.state[slots] != states.MATCHED]
        self.output.emit_unmatched(window.take(absent), len(absent))
        stats.unmatched += len(absent)
        stats.matched += len(slots) - len(absent)
        window.expire(len(slots))
        if not window.count:
            self.scan, self.leaving = None, False
            self.iteration_over()


SUITE = [*SHAPES, *COLUMNS, *COMPOSITE, *(keys.case() for keys in [*SAME_TYPE, *WIDENED])]


def test_the_recipe_is_short() -> None:
    lines = [inspect.getsource(part) for part in (BlockJoin, Block)]
    assert len("".join(lines).splitlines()) <= 60


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    ss.ALGORITHMS[BlockJoin.name] = BlockJoin
    yield
    del ss.ALGORITHMS[BlockJoin.name]


@pytest.mark.parametrize(
    ("case", "how"),
    [
        pytest.param(
            case,
            how,
            id=f"{how}-{case.name}",
            marks=[] if c < len(SHAPES) and (c + h) % len(naive.HOWS) == 0 else [pytest.mark.slow],
        )
        for c, case in enumerate(SUITE)
        for h, how in enumerate(naive.HOWS)
    ],
)
def test_a_new_join_passes_the_suite(case: Any, how: str, master_of: Any) -> None:
    conform(BlockJoin.name, how, case, master_of(case))
