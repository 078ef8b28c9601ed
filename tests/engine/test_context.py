"""What the parts of a run share: counters of an iteration, reported once."""

from __future__ import annotations

from engine.kit import binding, context
from semistream.testing import RecordingObserver


def test_an_iteration_counts_from_its_last_beginning() -> None:
    observer = RecordingObserver()
    shared = context(binding(), observer)  # its clock ticks whenever it is read
    shared.stats.tuples_in = 10
    shared.iteration_begins()
    shared.stats.matched += 3
    shared.iteration_begins()
    shared.stats.unmatched += 2
    assert shared.iteration_ends() == 1.0
    assert observer.named("iterated") == [(0, 2, 5, 1.0)]
    assert shared.stats.iterations == 1
    shared.iteration_begins()
    shared.iteration_ends()
    assert observer.named("iterated")[1] == (0, 0, 5, 1.0)
