"""Nested values stay Arrow arrays, in few chunks, and dead values are dropped."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from semistream.engine.rows.arena import Arena

KIND = pa.list_(pa.int64())


def test_values_are_added_and_removed() -> None:
    rng = random.Random(1)
    arena, held = Arena(KIND, 20), {}
    for _ in range(200):
        new = [slot for slot in range(20) if slot not in held and rng.random() < 0.3]
        values = [rng.choice([None, [], [rng.randrange(9)] * 3]) for _ in range(20)]
        picked = [rng.randrange(20) for _ in new]
        arena.put(pa.array(values, KIND), np.array(picked, np.int64), np.array(new, np.int32))
        held.update({slot: values[row] for slot, row in zip(new, picked, strict=True)})
        wanted = rng.choices([*held], k=5) if held else []
        assert arena.take(np.array(wanted, np.int32)).to_pylist() == [held[s] for s in wanted]
        gone = [slot for slot in held if rng.random() < 0.3]
        arena.free(np.array(gone, np.int32))
        for slot in gone:
            del held[slot]
        assert arena.live_rows == len(held)
        assert arena._rows <= 2 * len(held) + 16
        assert len(arena._chunks) <= 6


def test_an_empty_arena() -> None:
    arena = Arena(KIND, 0)
    assert arena.live_bytes == 0
    assert arena.where.nbytes == 0
    assert arena.take(np.zeros(0, np.int32)).type == KIND


def test_live_bytes_match_the_stored_values() -> None:
    arena = Arena(KIND, 2)
    column = pa.array([[1] * 100, [2] * 100], KIND)
    arena.put(column, np.arange(2), np.arange(2, dtype=np.int32))
    assert arena.live_bytes >= 1600
    arena.free(np.array([0], np.int32))
    assert 800 <= arena.live_bytes < 1600
    arena.free(np.array([1], np.int32))
    assert arena.live_bytes == 0
