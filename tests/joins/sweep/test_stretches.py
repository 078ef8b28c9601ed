"""Stretches: neighbouring pages, and no key crosses a stretch's end."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import pages_of
from semistream.joins.sweep.stretches import Stretches, first_pages, stretches_bytes


@pytest.mark.parametrize("seed", range(50))
def test_no_key_crosses_the_end_of_a_stretch(seed: int) -> None:
    rng = random.Random(seed)
    pages = rng.randint(1, 30)
    continues = np.array([rng.random() < rng.choice([0.1, 0.7]) for _ in range(pages)])
    continues[-1] = False
    most = rng.randint(1, 6)
    bounds = first_pages(continues, most).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == pages
    for begin, end in pairwise(bounds):
        assert begin < end
        assert not continues[end - 1]
        if end - begin > most:  # only where a single key runs through all of it
            assert continues[begin : end - 1].all()


def test_pages_without_shared_keys_are_cut_evenly() -> None:
    assert first_pages(np.zeros(7, np.bool_), 3).tolist() == [0, 3, 6, 7]
    assert first_pages(np.zeros(1, np.bool_), 3).tolist() == [0, 1]


def test_a_table_without_pages_has_one_stretch_of_nothing() -> None:
    assert first_pages(np.zeros(0, np.bool_), 3).tolist() == [0, 0]


def test_codes_that_are_keys_map_to_stretches() -> None:
    stretches = Stretches(pages_of([[1], [5], [9], [20]]).index, 2)
    assert stretches.firsts.tolist() == [1, 9]
    assert len(stretches.of(np.arange(1), [pa.array([7])])) == 0


def test_keys_map_to_stretches_when_codes_are_hashes() -> None:
    index = pages_of([["b"], ["d"], ["f"]], pa.string()).index
    stretches = Stretches(index, 2)
    keys = [pa.array(["a", "b", "c", "e", "f", "z"]).cast(pa.large_binary())]
    assert stretches.of(np.array([5, 0, 1, 3, 4]), keys).tolist() == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("pages", [1, 2, 4])
def test_allocated_bytes_match_the_plan(pages: int) -> None:
    stretches = Stretches(pages_of([[1], [5], [9], [20]]).index, pages)
    assert stretches.nbytes == stretches_bytes(len(stretches))
    in_the_window = 2 * 4 * len(stretches)  # newest chunk, and how full it is
    arrays = stretches.first_page.nbytes + stretches.firsts.nbytes
    assert arrays + in_the_window == stretches.nbytes
