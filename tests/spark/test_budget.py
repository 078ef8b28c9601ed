"""The budget is per executor, for any number of workers: the ledger's sum never exceeds it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import naive
import semistream as ss
from semistream.errors import BudgetError, ConfigError
from semistream.spark.leases import Ledger
from semistream.spark.registry import Registry
from spark.streams import Sink, feed, joined, master, products, sales, stream_of, wait_until

BUDGET = 12_000_000


def held(folder: Path) -> dict[int, int]:
    """The bytes that every worker holds; a new file is still empty."""
    with open(folder / "lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = {int(p.stem): p.read_text().split() for p in folder.glob("*.worker")}
        return {pid: int(words[-1]) if words else 0 for pid, words in said.items()}


class Worker:
    """A process with a registry, which opens a run on request and keeps it."""

    CODE = """
import sys, pathlib
from semistream.spark.registry import Registry
class Run:
    def __init__(self, nbytes): self.nbytes = nbytes
    def close(self): pass
registry = Registry(pathlib.Path(sys.argv[1]))
for line in sys.stdin:
    with registry.checkout("b", int(sys.argv[2]), int(sys.argv[3]), Run) as (run, warm):
        print(run.nbytes, int(warm), flush=True)
        sys.stdin.readline()
    print("done", flush=True)
"""

    def __init__(self, root: Path, slots: int) -> None:
        command = [sys.executable, "-c", self.CODE, str(root), str(BUDGET), str(slots)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self) -> tuple[int, bool]:
        self._say()
        nbytes, warm = self._hear().split()
        return int(nbytes), warm == "1"

    def end(self) -> None:
        self._say()
        assert self._hear() == "done"

    def task(self) -> tuple[int, bool]:
        result = self.begin()
        self.end()
        return result

    def _say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait()


@pytest.fixture
def workers(tmp_path: Path) -> Any:
    started: list[Worker] = []

    def start(slots: int) -> Worker:
        started.append(Worker(tmp_path, slots))
        return started[-1]

    yield start
    for worker in started:
        worker.stop()


def test_workers_share_and_a_new_one_gets_its_share(workers: Any, tmp_path: Path) -> None:
    two = [workers(2), workers(2)]
    assert [worker.task() for worker in two] == [(BUDGET // 2, False)] * 2
    assert [worker.task() for worker in two] == [(BUDGET // 2, True)] * 2
    third = workers(2)
    assert third.task() == (BUDGET // 3, False)  # an idle worker released its half
    assert sum(held(tmp_path / "b").values()) <= BUDGET
    for _ in range(2):
        for worker in [*two, third]:
            assert worker.task()[0] == BUDGET // 3
            assert sum(held(tmp_path / "b").values()) <= BUDGET
    # On a busy machine a worker may answer an earlier request to release its memory only now.
    rounds = ([worker.task() for worker in [*two, third]] for _ in range(5))
    assert [(BUDGET // 3, True)] * 3 in rounds


def test_the_share_of_a_dead_worker_is_freed(workers: Any, tmp_path: Path) -> None:
    first, second, third = workers(1), workers(1), workers(1)
    for worker in (first, second, third, first, second, third):
        worker.task()
    assert set(held(tmp_path / "b").values()) == {BUDGET // 3}
    first.begin()
    first.stop(signal.SIGKILL)
    third.stop(signal.SIGKILL)
    assert second.task() == (BUDGET, False)  # reopened: its share has tripled


def test_acquire_waits_for_a_busy_worker(workers: Any, tmp_path: Path) -> None:
    busy, other = workers(1), workers(1)
    assert busy.begin()[0] == BUDGET
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(other.task()))
    thread.start()
    time.sleep(0.3)
    assert not answer
    busy.end()
    thread.join(20)
    assert answer == [(BUDGET // 2, False)]
    assert busy.task() == (BUDGET // 2, False)
    assert sum(held(tmp_path / "b").values()) <= BUDGET


def test_the_error_without_room_states_who_holds_the_memory(workers: Any, tmp_path: Path) -> None:
    busy = workers(1)
    busy.begin()
    ledger = Ledger(tmp_path / "b", BUDGET, 1)
    with pytest.raises(BudgetError, match="held by 1 other workers"):
        ledger.acquire(patience=0.1)
    ledger.close()


def test_ledger_entries_of_another_release_are_refused(workers: Any, tmp_path: Path) -> None:
    busy = workers(1)
    busy.begin()
    (file,) = (tmp_path / "b").glob("*.worker")
    assert file.read_text().startswith("semistream-share 1 ")
    ledger = Ledger(tmp_path / "b", BUDGET, 1)
    for unknown in ("semistream-share 2 17", "17", "semistream-share 1 x"):
        file.write_text(unknown)
        with pytest.raises(ConfigError, match="use the same release in all Python workers"):
            ledger.acquire(patience=0.1)
    ledger.close()


def test_a_failed_task_releases_its_run(tmp_path: Path) -> None:
    class Run:
        closed = False

        def close(self) -> None:
            self.closed = True

    registry = Registry(tmp_path)
    with (
        pytest.raises(RuntimeError),
        registry.checkout("b", BUDGET, 1, lambda _: Run()) as (run, warm),
    ):
        raise RuntimeError("the task fails")
    assert run.closed
    assert not warm
    assert registry.held() == {"b": 0}
    with registry.checkout("b", BUDGET, 1, lambda _: Run()) as (again, warm):
        assert again is not run
        assert registry.held() == {"b": BUDGET}
    assert not again.closed


@pytest.mark.slow
def test_two_enrichments_in_one_task_stay_within_their_budgets(
    spark: Any, sessions: Any, tmp_path: Path
) -> None:
    """Each task needs two Python workers; Spark uses four, and each of them gets both runs."""
    first, second = master(tmp_path / "first"), master(tmp_path / "second")
    parts = [sales(120, 120 * i) for i in range(6)]
    stream = stream_of(spark, tmp_path / "in").repartition(2)
    once = ss.enrich(stream, first, on="product_id", select=["price"], how="left", memory=BUDGET)
    twice = ss.enrich(
        once, second, on="product_id", select=["name"], how="left_semi", memory=BUDGET
    )
    most: dict[str, int] = {}
    seen: dict[str, set[int]] = {}
    local = Path(os.path.join(sessions.folder, "local"))
    before = {path for path in local.glob("*/semistream/*") if path.is_dir()}

    def look() -> None:
        for folder in set(local.glob("*/semistream/*")) - before:
            if folder.is_dir():
                shares = held(folder)
                most[folder.name] = max(most.get(folder.name, 0), sum(shares.values()))
                seen.setdefault(folder.name, set()).update(shares)

    sink = Sink(tmp_path / "out")
    query = sink.start(twice, once=False)
    for part in parts:
        feed(tmp_path / "in", part)
        for _ in range(10):
            look()
            time.sleep(0.05)
    wait_until(lambda: (look(), len(list((tmp_path / "first/pins").glob("*"))) == 6)[1])
    query.processAllAvailable()
    query.stop()
    look()
    assert len(most) == 2
    assert max(most.values()) <= BUDGET
    assert len(set.union(*seen.values())) > 2
    half = naive.join(joined(parts), products(), "product_id", "left", ["price"])
    has = set(products()["product_id"].to_pylist())
    naive.same_rows(sink.read(spark), [row for row in half if row[1] in has])


class Run:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def close(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("broken")])
def test_idle_runs_are_still_closed_after_an_error(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The thread that evicts them logs the first error, and continues."""
    monkeypatch.setattr("semistream.spark.registry.IDLE_SECONDS", 0.05)
    registry = Registry(tmp_path)
    for name in "abc":
        with registry.checkout(name, BUDGET, 1, lambda _: Run(error)):
            pass
        wait_until(lambda: not registry.held(), 10)
        assert not list(tmp_path.glob("*/*.worker"))
    ledger = Ledger(tmp_path / "c", BUDGET, 1)
    assert ledger.acquire(0) == BUDGET  # nothing is held now
    ledger.close()
    assert caplog.text.count("Traceback") == 1
    assert str(error) in caplog.text


def test_a_ledger_that_cannot_be_written_does_not_stop_eviction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Something deletes the folder under a worker; a full disk looks the same."""
    import shutil

    monkeypatch.setattr("semistream.spark.registry.IDLE_SECONDS", 0.05)
    registry = Registry(tmp_path)
    for _ in range(2):
        with registry.checkout("a", BUDGET, 1, lambda _: Run()) as (_, warm):
            assert not warm
            shutil.rmtree(tmp_path / "a")
        wait_until(lambda: not registry.held(), 10)
    assert caplog.text.count("Traceback") == 1


def test_a_task_that_cannot_read_its_ledger_leaves_nothing_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(tmp_path)
    with registry.checkout("a", BUDGET, 1, lambda _: Run()):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "fair_share", lambda _: (_ for _ in ()).throw(OSError(5, "EIO")))
        with (
            pytest.raises(OSError, match="EIO"),
            registry.checkout("a", BUDGET, 1, lambda _: Run()),
        ):
            pass
    monkeypatch.setattr("semistream.spark.registry.IDLE_SECONDS", 0.05)
    registry._expire_idle()
    wait_until(lambda: not registry.held() or registry._expire_idle(), 10)
    assert not registry.held()
