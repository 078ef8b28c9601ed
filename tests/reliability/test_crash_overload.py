"""The stores of shed and parked tuples after a crash at any point: no tuple is lost or invented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reliability.crash_points import QUICK_AND_SLOW, try_all
from reliability.disk import Crash, Loss
from reliability.recorder import recording
from reliability.tally import Tally
from semistream.overload.options import Parking, Shedding
from semistream.overload.parked_store import ParkedStore
from semistream.overload.shed_store import ShedStore


def tuples(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def shed_store(folder: Path, recover: str) -> ShedStore:
    return ShedStore(Shedding("keep", folder / "shed", recover=recover), clock=lambda: 1.0)


def taken_from(store: ShedStore) -> list[int]:
    """All tuples, in the order of their return."""
    found: list[int] = []
    while (batch := store.peek(3)) is not None:
        found += batch.column(0).to_pylist()
        store.take(batch.num_rows)
    return found


OLD = [1, 2, 3, 4, 5]
# What is done, and what a crash may leave: all tuples, those of the checkpoint; the last when done.
SHEDDING: dict[str, tuple[Callable[[ShedStore], Any], list[list[int]], list[list[int]]]] = {
    "append": (lambda store: store.append([tuples(6, 7)]), [OLD, [*OLD, 6, 7]], [OLD]),
    "checkpoint": (lambda store: store.checkpoint(), [OLD], [OLD]),
    "take and checkpoint": (
        lambda store: (store.take(2), store.checkpoint()),
        [OLD, [3, 4, 5]],
        [OLD, [3, 4, 5]],
    ),
    "take a file, append and checkpoint": (
        lambda store: (store.take(3), store.append([tuples(6)]), store.checkpoint()),
        [OLD, [*OLD, 6], [4, 5, 6]],
        [OLD, [4, 5, 6]],
    ),
}


@pytest.mark.parametrize("name", SHEDDING)
@pytest.mark.parametrize("losses", QUICK_AND_SLOW)
def test_shed_tuples(name: str, losses: Sequence[Loss], tmp_path: Path, tally: Tally) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    act, all_states, checkpoint_states = SHEDDING[name]
    store = shed_store(disk, "all")
    store.append([tuples(1, 2, 3)])
    store.append([tuples(4), tuples(5)])
    store.checkpoint()
    with recording(disk) as recorder:
        act(store)
    store.close()

    def check(place: Path, crash: Crash) -> None:
        again = shed_store(place, "all")
        found = taken_from(again)
        again.close()
        assert found == all_states[-1] if crash.is_done else found in all_states
        again = shed_store(place, "checkpoint")
        found = taken_from(again)
        assert found == checkpoint_states[-1] if crash.is_done else found in checkpoint_states
        again.append([tuples(100)])  # the store goes on
        again.checkpoint()
        again.close()
        last = shed_store(place, "checkpoint")
        assert taken_from(last) == [100]
        last.close()

    tally("crash points of stores of shed tuples", try_all(recorder, losses, tmp_path, check))


def test_a_first_store(tmp_path: Path, tally: Tally) -> None:
    """Also the folder is new."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with recording(disk) as recorder:
        store = shed_store(disk, "all")
        store.append([tuples(1, 2)])
    store.close()

    def check(place: Path, crash: Crash) -> None:
        again = shed_store(place, "all")
        found = taken_from(again)
        assert found == [1, 2] if crash.is_done else found in ([], [1, 2])
        again.close()

    losses = QUICK_AND_SLOW[0].values[0]
    tally("crash points of stores of shed tuples", try_all(recorder, losses, tmp_path, check))


def parked_store(folder: Path, recover: str = "all") -> ParkedStore:
    return ParkedStore(Parking(folder / "parked", recover=recover), lambda: 1.0)


def park(store: ParkedStore, *numbers: int) -> None:
    store.append(tuples(*numbers), np.array(numbers) * 10, 1)


def parked_in(store: ParkedStore) -> list[int]:
    rows = [store.read(file, store.with_codes(file, None)) for file in store.files.values()]
    return sorted(n for batch in rows for n in batch.column("n").to_pylist())


def take_one(store: ParkedStore) -> None:
    file = next(iter(store.files.values()))
    store.take(file, store.with_codes(file, np.array([20])))
    store.checkpoint()


def take_all_of_a_file(store: ParkedStore) -> None:
    file = next(iter(store.files.values()))
    store.take(file, store.with_codes(file, None))
    park(store, 6)
    store.checkpoint()


PARKING: dict[str, tuple[Callable[[ParkedStore], None], list[list[int]]]] = {
    "park": (lambda store: park(store, 6, 7), [OLD, [*OLD, 6, 7]]),
    "take one": (take_one, [OLD, [1, 3, 4, 5]]),
    "take all of a file": (take_all_of_a_file, [OLD, [*OLD, 6], [4, 5, 6]]),
}


@pytest.mark.parametrize("name", PARKING)
@pytest.mark.parametrize("losses", QUICK_AND_SLOW)
def test_parked_tuples(name: str, losses: Sequence[Loss], tmp_path: Path, tally: Tally) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    act, states = PARKING[name]
    store = parked_store(disk)
    park(store, 3, 1, 2)
    park(store, 5, 4)
    store.checkpoint()
    with recording(disk) as recorder:
        act(store)
    store.close()

    def check(place: Path, crash: Crash) -> None:
        again = parked_store(place)
        found = parked_in(again)
        assert found == states[-1] if crash.is_done else found in states
        park(again, 100)
        again.checkpoint()
        again.close()
        last = parked_store(place, "checkpoint")
        assert parked_in(last) == [*found, 100]
        last.close()

    tally("crash points of stores of parked tuples", try_all(recorder, losses, tmp_path, check))
