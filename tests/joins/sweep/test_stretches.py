"""Stretches: neighbouring pages, and no key crosses a stretch's end."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import layout, pages_of
from semistream.joins.sweep.stretch_window import StretchWindow, StretchWindowSize
from semistream.joins.sweep.stretches import Stretches, first_pages, stretches_bytes
from semistream.keys import KeyCodec
from semistream.master.changed import ChangedCodes
from semistream.master.delta_codes import Delta, DeltaCodes
from semistream.master.index import PageIndex


def no_keys(*_: object) -> list[pa.Array]:
    raise AssertionError("codes are enough")


@pytest.mark.parametrize("seed", range(50))
def test_no_key_crosses_the_end_of_a_stretch(seed: int) -> None:
    rng = random.Random(seed)
    pages = rng.randint(1, 30)
    continues = np.array([rng.random() < rng.choice([0.1, 0.7]) for _ in range(pages)])
    continues[-1] = False
    most = rng.randint(1, 6)
    deltas = sorted(rng.choices(range(pages + 1), k=rng.choice([0, 0, 1, 3])))
    continues[[delta - 1 for delta in deltas if delta]] = False
    bounds = first_pages(continues, most, deltas).tolist()
    assert bounds[0] == 0
    assert bounds[-1] == pages
    assert set(deltas) <= set(bounds), "a stretch is in one segment"
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
    assert stretches.by_code
    assert len(stretches.of(no_keys)) == 0


def test_changed_codes_map_to_the_stretches_of_their_delta() -> None:
    codes = DeltaCodes(ChangedCodes(np.array([3, 9], np.int64), np.array([True, False])))
    firsts, whole = np.array([1, 5, 9, 3]), np.zeros(4, np.bool_)
    codec = KeyCodec.for_types([pa.int64()])
    index = PageIndex(codec, firsts, whole, boundaries=[3], deltas=[Delta(codes, 3, 4)])
    stretches = Stretches(index, 2)
    assert stretches.first_page.tolist() == [0, 2, 3, 4]
    assert stretches.segment_ends == [2, 3]
    assert len(stretches.of(no_keys)) == 0
    window = StretchWindow(layout(), StretchWindowSize(8, 0, 0, 1), stretches)
    asked = np.array([1, 3, 6, 9, 10])
    assert window.add(asked, [pa.array(asked)], np.arange(5), no_keys) == 5
    found = [window.collect(stretch, stretch + 1, 0)[0] for stretch in range(3)]
    waiting = [sorted(window.codes[slots].tolist()) for slots in found]
    assert waiting == [[1, 6], [10], [3, 9]], "9 is deleted: any stretch will do"


def test_keys_map_to_stretches_when_codes_are_hashes() -> None:
    index = pages_of([["b"], ["d"], ["f"]], pa.string()).index
    stretches = Stretches(index, 2)
    assert not stretches.by_code
    keys = [pa.array(["z", "a", "b", "e", "f"]).cast(pa.large_binary())]
    assert stretches.of(lambda: keys).tolist() == [1, 0, 0, 0, 1]


def test_hashes_map_to_stretches_when_pages_are_in_their_order() -> None:
    source = pages_of([["b"], ["d"], ["f"]], pa.string(), can_address=True)
    stretches = Stretches(source.index, 2)
    assert stretches.by_code
    assert stretches.firsts.tolist() == source.index.firsts[[0, 2]].tolist()
    assert len(stretches.of(no_keys)) == 0


def test_a_table_without_pages_needs_no_keys() -> None:
    index = pages_of([["b"]], pa.string()).index
    empty = PageIndex(index.codec, index.firsts[:0], index.continues[:0], by_code=False)
    assert len(Stretches(empty, 2).of(no_keys)) == 0


@pytest.mark.parametrize("pages", [1, 2, 4])
def test_allocated_bytes_match_the_plan(pages: int) -> None:
    stretches = Stretches(pages_of([[1], [5], [9], [20]]).index, pages)
    assert stretches.nbytes == stretches_bytes(len(stretches))
    in_the_window = 2 * 4 * len(stretches)  # newest chunk, and how full it is
    arrays = stretches.first_page.nbytes + stretches.firsts.nbytes
    assert arrays + in_the_window == stretches.nbytes
