"""Hashes of key columns against Python's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from semistream.kernels import hashing

WORD = 2**64 - 1
SEED, MUL_A, MUL_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(word: int) -> int:
    word = (word ^ word >> 30) * MUL_A & WORD
    word = (word ^ word >> 27) * MUL_B & WORD
    return word ^ word >> 31


def fold_bytes(value: bytes, running: int) -> int:
    running ^= len(value) * MUL_B & WORD
    for start in range(0, len(value), 8):
        word = int.from_bytes(value[start : start + 8], "little")
        running = mix((running ^ word) + SEED & WORD)
    return mix(running + SEED & WORD)


def folded_bytes(values: list[bytes], hashes: list[int]) -> list[int]:
    offsets = np.cumsum([0, *map(len, values)])
    running = np.array(hashes, np.uint64)
    hashing.fold_bytes(offsets, np.frombuffer(b"".join(values), np.uint8), running)
    return running.tolist()


def test_words_of_several_columns_are_folded_one_after_the_other() -> None:
    rng = random.Random(1)
    columns = [[rng.getrandbits(64) for _ in range(300)] for _ in range(2)]
    columns[0][:3] = [0, 1, WORD]
    running, expected = np.zeros(300, np.uint64), [0] * 300
    for words in columns:
        hashing.fold_words(np.array(words, np.uint64), running)
        expected = [mix((h ^ w) + SEED & WORD) for h, w in zip(expected, words, strict=True)]
    assert running.tolist() == expected


@pytest.mark.parametrize("length", range(25))
def test_byte_strings_of_every_length(length: int) -> None:
    rng = random.Random(length)
    values = [rng.randbytes(length) for _ in range(10)]
    hashes = [rng.getrandbits(64) for _ in values]
    expected = [fold_bytes(v, h) for v, h in zip(values, hashes, strict=True)]
    assert folded_bytes(values, hashes) == expected


def test_byte_strings_that_do_not_begin_at_the_buffers_start() -> None:
    data = np.frombuffer(b"skip-abc-defghijklm", np.uint8)
    running = np.zeros(2, np.uint64)
    hashing.fold_bytes(np.array([5, 8, 19]), data, running)
    assert running.tolist() == [fold_bytes(b"abc", 0), fold_bytes(b"-defghijklm", 0)]


def test_string_boundaries_affect_the_hash() -> None:
    """Trailing zeros and moved column boundaries change the hash."""
    plain = folded_bytes([b"", b"\0", b"\0\0", b"a", b"a\0"], [0] * 5)
    assert len(set(plain)) == 5
    assert folded_bytes([b"b"], folded_bytes([b"a"], [0])) != folded_bytes(
        [b""], folded_bytes([b"ab"], [0])
    )


def test_no_values() -> None:
    empty = np.zeros(0, np.uint64)
    hashing.fold_words(empty, empty)
    assert folded_bytes([], []) == []
