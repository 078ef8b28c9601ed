"""What a policy does unless an algorithm decides otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from engine.kit import STREAM, binding, context, stream_shape, table_shape
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.front.recorder import FrequencyRecorder
from semistream.engine.plan import MemoryPlan, plan_memory
from semistream.engine.policy import Parts, Policy
from semistream.engine.settings import Settings
from semistream.testing import RecordingObserver

BATCH = pa.record_batch({"k": [1, 2], "a": [3, 4]}, schema=STREAM)
TABLE, SEEN = table_shape(), stream_shape(BATCH)


class Idle(Policy):
    """Does nothing at all."""

    busy, held = False, 0

    def attach(self, *_: Any) -> None: ...
    def detach(self) -> None: ...
    def allocate(self, plan: MemoryPlan) -> None: ...
    def take_in(self) -> None: ...
    def begin(self) -> None: ...
    def resume(self) -> None: ...
    def memory(self) -> dict[str, int]:
        return {}


def idle(algorithm: str = "meshjoin", **options: Any) -> Idle:
    shared = context(binding(), RecordingObserver())
    return Idle(ss.join(algorithm, **options), Parts(shared))


def planned(cache: str, front: int) -> MemoryPlan:
    join = ss.join("cmeshjoin", memory=100_000, cache=cache, front_stage=front)
    return plan_memory(join, TABLE, SEEN)


def test_a_policy_that_decides_nothing() -> None:
    policy = idle()
    assert not policy.full
    assert not policy.wants_new_plan
    assert policy.longest_wait is None
    assert policy.front is None
    policy.check_batch(BATCH)
    policy.hand_over()
    assert not policy.output


def test_parts_know_each_other() -> None:
    policy = idle()
    policy.intake.push(BATCH, 1)
    policy.output.allocate(1000, 10, 50)
    policy.intake.layout = SEEN.layout
    taken: list[list[int]] = []

    def add(part: Any, rows: Any) -> int:
        taken.append(part.codes[rows].tolist())
        return len(rows)

    assert policy.admission.admit(10, add) == 2
    assert taken == [[1, 2]]
    assert not policy.intake


def test_the_plan_is_the_joins_with_the_settings_of_the_run() -> None:
    policy = idle(memory=200_000)
    assert policy.plan(TABLE, SEEN) == plan_memory(policy.join, TABLE, SEEN)
    policy.context.settings = Settings(mesh_buffer_bytes=1)
    assert (
        policy.plan(TABLE, SEEN).buffer_pages
        == 1
        < plan_memory(policy.join, TABLE, SEEN).buffer_pages
    )
    with pytest.raises(ss.BudgetError, match="the smallest budget that can is"):
        idle(memory=1_000).plan(TABLE, SEEN)


@pytest.mark.parametrize(("more", "outgrown"), [(-1, False), (0, False), (1, True)])
def test_a_version_whose_pages_need_more_memory_has_outgrown_its_plan(
    more: int, outgrown: bool
) -> None:
    plan = plan_memory(ss.join("meshjoin", memory=200_000), TABLE, SEEN)
    assert idle().outgrown(plan, replace(plan, table=plan.table + more)) is outgrown


@pytest.mark.parametrize(
    ("cache", "kind"), [("recorder", FrequencyRecorder), ("counting", CountingCache)]
)
def test_a_front_stage_as_planned(cache: str, kind: type) -> None:
    policy, plan = idle("cmeshjoin", threshold=5, cache=cache), planned(cache, 20_000)
    policy.make_front_stage(plan, TABLE)
    front = policy.front
    assert type(front) is kind
    assert plan.front is not None
    assert front is policy.admission.front
    assert (front.capacity, front.nbytes) == (plan.front.capacity, plan.front.nbytes)
    assert front.threshold == (5 if cache == "recorder" else 1)


def test_a_front_stage_that_fits_stays_with_its_rows() -> None:
    policy = idle("cmeshjoin")
    policy.make_front_stage(planned("counting", 20_000), TABLE)
    front = policy.front
    assert front is not None
    ones = np.ones(1, np.int64)
    front.offer(ones, ones, ones, [pa.array(["v"])], np.zeros(1, np.int64))
    for nbytes in (20_000, 30_000):
        policy.make_front_stage(planned("counting", nbytes), TABLE)
        assert policy.front is front
    assert front.count == 1
    policy.make_front_stage(planned("counting", 10_000), TABLE)
    assert policy.front is not None
    assert policy.front is not front
    assert (policy.front.count, policy.front.nbytes <= 10_000) == (0, True)


def test_a_plan_without_a_front_stage_removes_it() -> None:
    policy = idle("cmeshjoin")
    policy.make_front_stage(planned("counting", 20_000), TABLE)
    policy.make_front_stage(plan_memory(ss.join("meshjoin", memory=200_000), TABLE, SEEN), TABLE)
    assert policy.front is None


def test_the_end_of_an_iteration_makes_room_and_is_reported() -> None:
    policy = idle()
    policy.full = True
    policy.context.iteration_begins()
    policy.iteration_over()
    assert not policy.full
    assert policy.context.stats.iterations == 1
    assert len(policy.context.observer.named("iterated")) == 1
