"""Searches the sizes of a join's parts for the highest predicted rate.

One setting at a time, the others as they are, until none improves: the curves of the models
rise and fall once (as the papers' figures do), so this finds the maximum without trying every
combination.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from semistream.cost import Case, Prediction, predict
from semistream.errors import BudgetError

SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
_ROUNDS = 3
_BETTER = 1.005  # a setting is changed if that gains half a percent


@dataclass(frozen=True)
class Tuned:
    """A join with its best settings, and what it will do."""

    join: Any
    prediction: Prediction


def tuned(case: Case, max_wait: float | None = None) -> Tuned | None:
    """The best settings of this case's join in its memory; None if none fits or waits too long."""
    best = _try(case, max_wait)
    for _ in range(_ROUNDS):
        before = best
        for name, values in settings_of(case):
            for value in values:
                if best is not None and getattr(best.join, name) == value:
                    continue
                start = best.join if best is not None else case.join
                found = _try(replace(case, join=replace(start, **{name: value})), max_wait)
                if found is not None and (
                    best is None or found.prediction.rate > _BETTER * best.prediction.rate
                ):
                    best = found
        if best is before:
            break
    return best


def _try(case: Case, max_wait: float | None) -> Tuned | None:
    try:
        prediction = predict(case)
    except BudgetError:
        return None
    if max_wait is not None and prediction.wait.longest > max_wait:
        return None
    return Tuned(case.join, prediction)


def settings_of(case: Case) -> Iterator[tuple[str, Sequence[Any]]]:
    """What can be set of a join, and the values to try."""
    names = {field.name for field in fields(case.join)}
    if "front_stage" in names:
        yield "front_stage", SHARES
    if "pinned" in names:
        yield "pinned", SHARES
    if hasattr(case.join, "recent_tuples") or case.join.name == "inlj":
        return  # the pool takes what is left
    page, pages = max(1, case.table.max_page_bytes), max(1, case.table.num_pages)
    most = max(1, min(pages, int(case.join.memory) // 4 // page))
    yield "disk_buffer_pages", [1 << i for i in range(20) if 1 << i <= most]
    if "group_pages" in names:
        yield "group_pages", [1 << i for i in range(4, 16) if 1 << i <= pages]
