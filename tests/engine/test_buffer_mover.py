"""The disk buffer moves to the size whose reads cost a waiting tuple the least."""

from __future__ import annotations

import math

import pytest

from semistream.engine.buffer_mover import BufferMover

PAGE, FIXED, TABLE, BUDGET, TUPLE = 16_384, 1 << 20, 10_000, 12_000_000, 50
FIXED_PAGES = FIXED / PAGE


def slots(pages: int) -> float:
    """Window and disk buffer share the budget; a quarter of it is the largest buffer."""
    return (BUDGET - pages * PAGE) / TUPLE if 4 * pages * PAGE <= BUDGET else 0.0


class Engine:
    """A join that serves ``served(pages)`` waiting tuples per read, and takes as long as the model
    says."""

    def __init__(self, pages: int, least: float = 0.0, waiting: float = math.inf) -> None:
        self.pages, self.least, self._waiting = pages, least, waiting
        self.mover = BufferMover(FIXED, 0.3e-6, least)
        self._waited = 0.0
        self.sizes = [pages]

    def served(self) -> float:
        return self.least + min(slots(self.pages), self._waiting) * self.pages / TABLE

    def round(self) -> None:
        reads = TABLE // self.pages
        for _ in range(reads):
            self.mover.note_read()
            served = self.served()
            self._waited += served
            self.mover.note_seconds((FIXED_PAGES + self.pages) * 5e-6 + served * 0.3e-6)
        full = slots(self.pages)
        self.mover.note_window(int(min(full, self._waiting)), self._waiting >= full)
        self.mover.round_done(int(self._waited), self.pages, PAGE, slots)
        if self.mover.moves:
            assert self.mover.pages is not None
            self.pages = self.mover.pages
            self.sizes.append(self.pages)
            self.mover.moved()

    def cost(self, pages: int) -> float:
        share = min(slots(pages), self._waiting) * pages / TABLE
        return (FIXED_PAGES + pages) / max(self.least + share, 1e-9)


@pytest.mark.parametrize("start", [1, 8, 45, 180])
@pytest.mark.parametrize("least", [0.0, 1.0])
def test_it_comes_to_rest_near_the_best_size(start: int, least: float) -> None:
    engine = Engine(start, least)
    for _ in range(60):
        engine.round()
    possible = [pages for pages in range(1, TABLE) if slots(pages)]
    best = min(possible, key=engine.cost)
    assert 1.3 < math.sqrt(FIXED_PAGES * BUDGET / PAGE) / best < 2.0  # near the closed formula
    assert engine.cost(engine.pages) < 1.2 * engine.cost(best)
    at_rest = len(engine.sizes)
    for _ in range(200):
        engine.round()
    assert len(engine.sizes) == at_rest


def test_a_tuple_that_is_read_for_alone_wants_a_small_buffer() -> None:
    """Where hardly two tuples wait for the same partition, neighbours are read in vain."""
    engine = Engine(40, least=1.0, waiting=20)
    for _ in range(60):
        engine.round()
    assert engine.pages <= 2


def test_batches_that_never_fill_the_window_let_the_scan_have_memory() -> None:
    engine = Engine(10, waiting=1_000)
    for _ in range(60):
        engine.round()
    assert engine.pages == 160, "a larger one takes more than a quarter of the budget"
    assert not engine.mover.drains


def test_nothing_moves_while_the_window_is_being_filled_or_for_a_small_gain() -> None:
    engine = Engine(45)
    for _ in range(3):
        engine.round()
    assert engine.sizes == [45]
    cheap = BufferMover(FIXED, 0.3e-6, 0.0)
    for number in range(20):
        cheap.note_read()
        cheap.note_window(1_000, True)
        cheap.note_seconds(100 * 0.31e-6)  # reading is a thirtieth of what a tuple costs
        cheap.round_done(100 * number, 45, PAGE, slots)
        assert not cheap.moves


def test_a_size_that_it_came_from_is_not_taken_again() -> None:
    engine = Engine(45)
    while len(engine.sizes) == 1:
        engine.round()
    before, now = engine.sizes
    engine.least = engine.mover._least = 1.0
    engine._waiting = 20
    for _ in range(400):
        engine.round()
        assert engine.pages == now or before not in engine.sizes[1:]


def test_after_a_change_it_decides_soon_again() -> None:
    engine = Engine(45)
    for _ in range(100):
        engine.round()
    moves = len(engine.sizes)
    engine.least = engine.mover._least = 1.0
    engine._waiting = 20
    engine.mover.start_again()
    for _ in range(6):
        engine.round()
    assert len(engine.sizes) > moves
    engine.mover.too_large()
    assert engine.mover.pages is None
