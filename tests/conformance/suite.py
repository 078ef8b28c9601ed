"""The conformance suite: every join, every ``how``, every case returns the rows of the naive join.

``every_join(cases)`` makes a test per join, how and case; a failing test is named by the three.
A join that is added to ``semistream.ALGORITHMS`` is in the suite automatically.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import naive
import semistream as ss
from harness import Case, cut, drive, smallest_memory, soon

ROOMY = "4MB"

every_algorithm = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
every_how = pytest.mark.parametrize("how", naive.HOWS)


def every_join(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """A test per join, how and case. The quick run takes every case with a third of the joins
    and SweepJoin, one how each, in turn; the slow run takes two hows with every join, the long one
    the others.
    """
    return pytest.mark.parametrize(
        ("algorithm", "how", "case"),
        [
            pytest.param(
                algorithm,
                how,
                case,
                id=f"{algorithm}-{how}-{case.name}",
                marks=_marks(c, a, h, algorithm),
            )
            for c, case in enumerate(cases)
            for a, algorithm in enumerate(ss.ALGORITHMS)
            for h, how in enumerate(naive.HOWS)
        ],
    )


def _marks(case: int, join: int, how: int, algorithm: str) -> list[pytest.MarkDecorator]:
    turn = (case + join + how) % len(naive.HOWS)
    if turn == 0 and (algorithm == "sweepjoin" or (case // 4 + join) % 3 == 0):
        return []
    return [pytest.mark.slow] if turn % 2 == 0 else [pytest.mark.slow, pytest.mark.long]


_least: dict[tuple[str, int], int] = {}


def conform(algorithm: str, how: str, case: Case, master: Any) -> None:
    """For any batch sizes and any memory, the rows are those of the naive join.

    Some budgets are so small that windows fill, rows are evicted and cycles wrap; with another
    one everything fits.
    """
    expected = case.expected(how)
    least = least_memory(algorithm, case, master)
    budgets = [least + 300, 2 * least, ROOMY]
    for turn, size in enumerate(case.cuts):
        memory = budgets[turn % len(budgets)]
        options = {**soon(algorithm), **case.options}
        join = ss.join(algorithm, memory=memory, how=how, **options)
        with join.open(master, on=case.on, select=case.select, where=case.where) as run:
            out = drive(run, cut(case.stream, size))
            naive.same_rows(naive.rows_of(out), expected)
            assert run.schema.names == case.columns(how)
            assert all(rows.schema == run.schema for rows in out)
            check_counters(run.stats, case)


def least_memory(algorithm: str, case: Case, master: Any) -> int:
    """The smallest budget for the ``how`` that needs most; searched once."""
    identity = (algorithm, id(case))
    if identity not in _least:
        batches = cut(case.stream, len(case.stream) + 1)
        options = {"how": "left", "select": case.select, "where": case.where, **case.options}
        _least[identity] = smallest_memory(algorithm, master, batches, case.on, **options)
    return _least[identity]


def check_counters(stats: Any, case: Case) -> None:
    matched = len(case.expected("left_semi"))
    assert stats.tuples_in == len(case.stream)
    assert stats.matched == matched
    assert stats.unmatched == len(case.stream) - matched
    assert stats.shed == 0
