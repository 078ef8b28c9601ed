"""Curves around a plan: the predicted rate by memory, by disk buffer and by front stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semistream.cost import Case, predict
from semistream.errors import BudgetError, ConfigError
from semistream.memory import format_size
from semistream.tuning.plan import TuningPlan
from semistream.tuning.search import settings_of


@dataclass(frozen=True)
class Curve:
    """Points (value, rate), and the value of the plan."""

    title: str
    unit: str
    points: tuple[tuple[float, float], ...]
    chosen: float


def curves(case: Case, plan: TuningPlan) -> list[Curve]:
    """One curve for memory and one for each setting; the others are as in the plan."""
    join = plan.join
    found = [_memory_curve(case, join)]
    page = case.table.max_page_bytes
    for name, values in settings_of(replace(case, join=join)):
        if name == "disk_buffer_pages":
            pages = replace(case, join=join).plan.buffer_pages
            points = _points(case, join, name, values)
            scaled = tuple((value * page / 1e6, rate) for value, rate in points)
            found.append(Curve("disk buffer", "MB", scaled, pages * page / 1e6))
        elif name in ("front_stage", "pinned"):
            chosen = getattr(join, name)
            if not isinstance(chosen, float):
                part = plan.memory.get("pinned pages" if name == "pinned" else "front stage", 0)
                chosen = part / int(join.memory)
            title = "pinned part" if name == "pinned" else "front stage"
            points = _points(case, join, name, values)
            found.append(Curve(title, "of the memory", tuple(points), chosen))
    return found


def _memory_curve(case: Case, join: Any) -> Curve:
    budgets = [int(join.memory * 2 ** (i / 2)) for i in range(-8, 7)]
    points = tuple((value / 1e6, rate) for value, rate in _points(case, join, "memory", budgets))
    return Curve("memory", "MB", points, join.memory / 1e6)


def _points(case: Case, join: Any, name: str, values: Sequence[Any]) -> list[tuple[float, float]]:
    return list(_rates(case, join, name, values))


def _rates(
    case: Case, join: Any, name: str, values: Sequence[Any]
) -> Iterator[tuple[float, float]]:
    for value in values:
        try:
            rate = predict(replace(case, join=replace(join, **{name: value}))).rate
        except BudgetError:
            continue
        yield float(value), rate


def draw(found: Sequence[Curve], plan: TuningPlan, path: Path) -> None:
    """Write the curves as a picture; the plan is marked."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ConfigError(
            "plots need matplotlib, which is not installed; pip install 'semistream[plot]'"
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, places = pyplot.subplots(1, len(found), figsize=(4 * len(found), 3.2), squeeze=False)
    for place, curve in zip(places[0], found, strict=True):
        place.plot([x for x, _ in curve.points], [y / 1e6 for _, y in curve.points], marker=".")
        place.plot([curve.chosen], [plan.rate / 1e6], marker="o", color="tab:red", markersize=9)
        place.set_title(curve.title)
        place.set_xlabel(curve.unit)
        place.set_xscale("log")
        place.set_ylim(bottom=0)
        place.grid(alpha=0.3)
    places[0][0].set_ylabel("predicted, million tuples/s")
    figure.suptitle(f"{plan.join.name}, {format_size(plan.join.memory)}; red: the plan")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
