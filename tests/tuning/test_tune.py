"""``ss.tune`` and ``ss.predict``: what they return, what they refuse, and that plans open."""

from __future__ import annotations

import json
from itertools import pairwise, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from harness import build
from semistream import workload
from semistream.cost import Machine
from semistream.cost.machine import ACCESS
from semistream.tuning import OutOfReachError
from semistream.tuning import calibration_file as file
from semistream.tuning.calibrate import Measured, speed
from semistream.tuning.hardware import memory_access
from semistream.tuning.plan import TuningPlan
from semistream.tuning.sample import observe
from semistream.tuning.tuner import HEADROOM

ROWS = 40_000
SOME = ["meshjoin", "inlj", "x-hybridjoin", "chybridjoin", "sweepjoin"]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows = workload.products(ROWS, 100, seed=1).read_all()
    folder: Path = tmp_path_factory.mktemp("tune")
    return build(folder / "table", rows, ["product_id"], page_bytes="8KiB")


def sales(n: int = 5_000, exponent: float = 1.0, scattered: bool = True) -> pa.RecordBatch:
    stream = workload.sales(n, ROWS, exponent, 2, scattered=scattered, batch_rows=n)
    return next(iter(stream))


@pytest.fixture(scope="module")
def plan(master: Any) -> TuningPlan:
    return ss.tune(master, sample=sales(), on="product_id", memory="1MB", joins=SOME)


def test_the_plan_is_the_best_of_all_joins_and_opens(plan: TuningPlan, master: Any) -> None:
    assert plan.rate >= max(found.rate for _, found in plan.others)
    assert {plan.join.name, *(join.name for join, _ in plan.others)} == set(SOME)
    assert sum(plan.memory.values()) <= 1_000_000
    assert 0 < plan.wait.expected <= plan.wait.longest
    text = str(plan)
    assert plan.join.name in text
    assert "factors: the package's defaults" in text
    again = eval(plan.code(), {"ss": ss})
    assert again == plan.join
    for join in (plan.join, *(join for join, _ in plan.others)):
        with join.open(master, on="product_id") as run:
            rows = sum(out.num_rows for out in [*run.push(sales(500)), *run.flush()])
        assert rows == 500


@pytest.mark.slow
def test_all_joins_are_compared_and_open(master: Any) -> None:
    for exponent, drained in ((0.0, False), (1.0, True)):
        found = ss.tune(
            master, sample=sales(exponent=exponent), on="product_id", memory="1MB", drained=drained
        )
        assert {found.join.name, *(join.name for join, _ in found.others)} == set(ss.ALGORITHMS)
        for join in (found.join, *(join for join, _ in found.others)):
            with join.open(master, on="product_id") as run:
                out = [*run.push(sales(500)), *run.flush()]
            assert sum(part.num_rows for part in out) == 500


@pytest.mark.slow
def test_less_memory_is_enough_for_a_lower_rate(plan: TuningPlan, master: Any) -> None:
    wanted = plan.rate / 3
    least = ss.tune(master, sample=sales(), on="product_id", rate=wanted, joins=[plan.join.name])
    assert least.join.memory < plan.join.memory
    reached, too_little = (
        ss.tune(
            master, sample=sales(), on="product_id", joins=[plan.join.name],
            memory=int(part * least.join.memory / HEADROOM),
        ).rate
        for part in (1.01, 0.97)
    )  # fmt: skip
    assert too_little < wanted <= reached <= least.rate, "the headroom is in the memory"


@pytest.mark.slow
def test_headroom_for_a_rate_is_no_condition(plan: TuningPlan, master: Any) -> None:
    """The highest rate that is possible at all can be asked for."""
    most = ss.tune(master, sample=sales(), on="product_id", rate=1_000.0, joins=[plan.join.name])
    assert most.rate >= HEADROOM * 1_000
    with pytest.raises(OutOfReachError, match="the most is") as refused:
        ss.tune(master, sample=sales(), on="product_id", rate=1e11, joins=[plan.join.name])
    assert "M tuples/s" in str(refused.value)
    limit = {"memory": plan.join.memory, "joins": [plan.join.name]}
    there = ss.tune(master, sample=sales(), on="product_id", rate=0.95 * plan.rate, **limit)
    assert there.rate >= 0.95 * plan.rate


@pytest.mark.slow
def test_more_memory_never_predicts_less(master: Any) -> None:
    for exponent in (0.0, 1.0):
        rates = [
            ss.tune(
                master, sample=sales(exponent=exponent), on="product_id", memory=memory,
                joins=["meshjoin", "chybridjoin", "sweepjoin"],
            ).rate
            for memory in (600_000, 900_000, 2_000_000, 8_000_000)
        ]  # fmt: skip
        assert all(b >= 0.99 * a for a, b in pairwise(rates)), rates


def test_the_longest_wait_limits_the_choice(master: Any) -> None:
    options = {"sample": sales(), "on": "product_id", "memory": "1MB", "joins": ["meshjoin"]}
    free = ss.tune(master, **options)
    limited = ss.tune(master, **options, max_wait=free.wait.longest * 1.1)
    assert limited.wait.longest <= free.wait.longest * 1.1
    with pytest.raises(OutOfReachError, match="longest wait"):
        ss.tune(master, **options, max_wait=free.wait.longest / 1_000)


def test_predict_is_for_a_join_as_it_is(master: Any) -> None:
    join = ss.HybridJoin(memory="1MB", disk_buffer_pages=2)
    found = ss.predict(join, master, sample=sales(), on="product_id")
    assert found.join == "hybridjoin"
    with join.open(master, on="product_id") as run:
        for _ in range(40):
            list(run.push(sales()))
        measured = run.stats.pages_read / run.stats.rows_out
    assert found.pages_per_tuple == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("scattered", [True, False])
def test_a_sample_shows_where_the_hot_keys_are(master: Any, scattered: bool) -> None:
    seen = observe(master, sales(20_000, scattered=scattered), "product_id")
    assert seen.traffic.clustered is not scattered
    assert seen.traffic.absent == 0.0
    assert not seen.notes


def test_absent_keys_are_found(master: Any) -> None:
    batch = sales(4_000)
    keys = np.where(np.arange(4_000) % 4 == 0, 10_000_000, batch["product_id"].to_numpy())
    batch = batch.set_column(1, batch.schema.field(1), pa.array(keys))
    assert batch.schema.field(1).name == "product_id"
    seen = observe(master, batch, "product_id")
    assert seen.traffic.absent == pytest.approx(0.25, abs=0.08)


# -- bad input -------------------------------------------------------------------------------


def test_a_sample_of_ten_rows_is_used_with_a_note(master: Any) -> None:
    found = ss.tune(
        master, sample=sales(10), on="product_id", memory="1MB", joins=["meshjoin", "sweepjoin"]
    )
    assert "only 10 tuples" in str(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": None}, "needs memory="),
        ({"memory": "20kB"}, "smallest budget that works is"),
        ({"memory": None, "rate": 1e11}, "no join serves .* the most is"),
        ({"memory": None, "rate": 0}, "rate=0"),
        ({"max_wait": "soon"}, "max_wait='soon'"),
        ({"max_wait": 1e-6}, "longest wait below 1 us; the shortest is"),
        ({"joins": ["hybrid"]}, "did you mean 'hybridjoin'"),
        ({"sample": "sales.parquet"}, "give a pyarrow.RecordBatch or Table"),
        ({"sample": sales(10).slice(0, 0)}, "no rows"),
        ({"on": "sale"}, "join on exactly the key"),
    ],
)
def test_errors_say_what_is_possible(change: dict[str, Any], message: str, master: Any) -> None:
    options = {"sample": sales(), "on": "product_id", "memory": "1MB", "joins": ["meshjoin"]}
    with pytest.raises(ss.SemistreamError, match=message):
        ss.tune(master, **{**options, **change})


def test_a_sample_without_a_key_of_the_table_is_refused(master: Any) -> None:
    batch = sales(1_500)
    keys = pa.array(batch["product_id"].to_numpy() + 10_000_000)
    batch = batch.set_column(1, batch.schema.field(1), keys)
    with pytest.raises(ss.ConfigError, match="none of its keys is in the master table"):
        ss.tune(master, sample=batch, on="product_id", memory="1MB")
    nulls = batch.set_column(1, batch.schema.field(1), pa.nulls(1_500, pa.int64()))
    with pytest.raises(ss.ConfigError, match="all its keys are null"):
        observe(master, nulls, "product_id")


# -- calibrations ------------------------------------------------------------------------------


def test_a_calibration_is_found_again(master: Any) -> None:
    assert file.load(master) == file.Found(None)
    slow = Machine(factors={name: 2 * price for name, price in Machine().factors.items()})
    path = file.save(master, slow, now=1e9)
    try:
        found = file.load(master, now=1e9 + 86_400)
        assert found.problem is None
        assert found.machine is not None
        assert found.machine.factors == slow.factors
        assert "2001-09-09" in found.machine.origin
        assert "30 days old" in str(file.load(master, now=1e9 + 40 * 86_400).problem)
        assert not list(path.parent.glob(".calibration*"))
    finally:
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda text: text[:100], "damaged"),
        (lambda text: "[]", "damaged"),
        (lambda text: "[" * 100_000, "damaged"),
        (lambda text: text.replace('"format_version": 2', '"format_version": 9'), "version is 9"),
        (lambda text: text.replace('"cores": ', '"cores": 1'), "another machine"),
        (lambda text: text.replace('"page_bytes": ', '"page_bytes": 1'), "other columns or pages"),
        (lambda text: _with(text, "push", -1.0), "out of range"),
        (lambda text: _with(text, "push", "fast"), "not a number"),
        (lambda text: _with(text, "push", float("nan")), "out of range"),
    ],
)
def test_a_calibration_that_does_not_hold_is_noticed(
    damage: Any, problem: str, master: Any
) -> None:
    path = file.save(master, Machine())
    try:
        path.write_text(damage(path.read_text()))
        found = file.load(master)
        assert found.machine is None
        assert problem in str(found.problem)
    finally:
        path.unlink()


def _with(text: str, factor: str, value: Any) -> str:
    content = json.loads(text)
    content["factors"][factor] = value
    return json.dumps(content)


def test_an_unusable_calibration_is_measured_again(
    master: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.tuning import tuner

    asked = []
    monkeypatch.setattr(tuner, "calibrate", lambda *_, **__: asked.append(1) or Machine())
    assert tuner.machine_for(master).origin == "the package's defaults"
    assert not asked
    path = file.save(master, Machine())
    try:
        path.write_text("{}")
        tuner.machine_for(master)
        assert file.load(master).problem is None
        path.write_text("{}")
        monkeypatch.setattr(Path, "write_text", _refuse)  # a table that others own
        tuner.machine_for(master)
    finally:
        path.unlink()
    assert len(asked) == 2


def _refuse(*_: Any) -> None:
    raise PermissionError("read-only")


def test_a_machine_that_is_half_as_fast() -> None:
    """Accesses to memory have their own price, which is measured."""
    probes = [[Measured(2 * n + 1.0, n, access=1.0)] for n in (1.0, 3.0, 10.0)]
    assert speed(probes) == pytest.approx(2.0)


def test_other_guests_of_the_host_do_not_count() -> None:
    quiet, disturbed = Measured(1.0, 1.0), Measured(3.0, 1.0)
    assert speed([[quiet, disturbed], [disturbed, quiet], [], [quiet]]) == 1.0
    assert speed([[disturbed], [quiet], [quiet]]) == 1.0, "nor a probe that was always disturbed"


def test_a_calibration_without_any_run_keeps_the_defaults() -> None:
    assert speed([[], []]) == 1.0


def test_memory_is_slower_where_an_access_depends_on_the_one_before() -> None:
    found = memory_access()
    assert [size for size, _, _ in found] == [size for size, _, _ in ACCESS]
    for one, other in pairwise(found):
        assert one[1] <= other[1]
        assert one[2] <= other[2], "a larger structure is never faster"
    assert found[-1][2] > 2 * found[-1][1], "independent accesses overlap"
    assert found[-1][2] > 2 * found[0][2], "the processor's caches do not hold the largest one"


def test_work_during_which_a_kernel_was_compiled_is_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the first calibration of an installation is thousands of times too slow."""
    from semistream.tuning import calibrate as module

    compiled = iter([0, 7, 7, 9, 9, 9])  # before and after three attempts
    monkeypatch.setattr(module, "compilations", lambda: next(compiled))
    seconds = iter([12.0, 3.0, 0.2])
    assert module.without_compiling(lambda: next(seconds)) == 0.2


def test_a_window_is_turned_over_on_a_machine_that_is_half_as_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else calibration would leave out the probes with the largest windows there."""
    from semistream.tuning import calibrate as module

    run = SimpleNamespace(
        stats=SimpleNamespace(rows_out=0),
        plan=SimpleNamespace(window=SimpleNamespace(capacity=700)),
    )

    def serve(run: Any, batches: Any, probe: Any, most: float) -> float:
        run.stats.rows_out += 200  # a window of 700 tuples takes more than three warm-ups
        return most

    monkeypatch.setattr(module, "_serve", serve)
    module._warm_up(run, repeat(None), module.PROBES[0])
    assert run.stats.rows_out >= 700
    run.stats.rows_out = -10_000
    module._warm_up(run, repeat(None), module.PROBES[0])  # but not for ever
    assert run.stats.rows_out < 0


@pytest.mark.parametrize("compiling", [0.0, 40.0])
def test_the_time_limit_counts_from_when_the_kernels_are_compiled(
    compiling: float, master: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semistream.tuning import calibrate as module

    clock, until, steps = [100.0], list[float](), list[str]()

    def load(*_: Any) -> None:
        clock[0] += compiling or 1.0

    def probes(*arguments: Any) -> list[Any]:
        until.append(arguments[3])
        return []

    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(module, "compilations", lambda: int(compiling and clock[0] > 100))
    monkeypatch.setattr(module, "is_complete", lambda: not compiling)
    monkeypatch.setattr(module, "load_kernels", load)
    monkeypatch.setattr(module, "key_pool", lambda _: None)
    monkeypatch.setattr(module, "memory_access", lambda: ACCESS)
    monkeypatch.setattr(module, "disk_requests", lambda _: None)
    monkeypatch.setattr(module, "measure_probes", probes)
    module.calibrate(master, lambda _, __, what: steps.append(what), keep=False)
    assert until == [100 + compiling + module.SECONDS]
    assert steps[0].startswith("compiling") == bool(compiling)


@pytest.mark.slow
@pytest.mark.long  # a machine that is half as fast needs longer
def test_a_calibration_takes_less_than_fifteen_seconds(tmp_path: Path) -> None:
    """Of processor time: other tests run beside it."""
    import time

    from semistream.tuning.calibrate import calibrate

    rows = workload.products(200_000, 100, seed=1).read_all()
    table = build(tmp_path / "table", rows, ["product_id"], page_bytes="32KiB")
    steps: list[tuple[int, int, str]] = []
    began = time.process_time()
    machine = calibrate(table, lambda *step: steps.append(step))
    assert time.process_time() - began < 16
    assert steps[-1][0] == steps[-1][1]
    found = file.load(table).machine
    assert found is not None
    assert found.factors == pytest.approx(machine.factors)
    plan = ss.tune(table, sample=sales(), on="product_id", memory="2MB", joins=["sweepjoin"])
    assert "the calibration of" in str(plan)
