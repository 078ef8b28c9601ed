"""SweepJoin with a budget that lets it map pages: it copies the rows that tuples need."""

from __future__ import annotations

from typing import Any

import pytest

import naive
import semistream as ss
from conformance.test_conditions import CASES as CONDITIONS
from conformance.test_payloads import CASES as PAYLOADS
from conformance.test_recipe import SUITE
from copied import MEMORY
from harness import Case, cut, drive

CASES: list[Case] = [*SUITE, *PAYLOADS, *CONDITIONS]


@pytest.mark.parametrize(
    ("number", "case"),
    [*enumerate(CASES)],
    ids=[f"{i}-{case.name}" for i, case in enumerate(CASES)],
)
def test_rows_are_those_of_the_naive_join(
    number: int, case: Case, master_of: Any, copies: list[int]
) -> None:
    how, master = naive.HOWS[number % len(naive.HOWS)], master_of(case)
    join = ss.SweepJoin(memory=MEMORY, how=how, **case.options)
    for size in (*case.cuts, *case.cuts):  # pages are checked when they are read: not copied from
        with join.open(master, on=case.on, select=case.select, where=case.where) as run:
            out = drive(run, cut(case.stream, size))
        naive.same_rows(naive.rows_of(out), case.expected(how))
    kinds = map(str, case.master.schema.types)
    has_lists = any(word in kind for kind in kinds for word in ("list", "map"))
    if run.stats.pages_read and not has_lists:
        assert copies
