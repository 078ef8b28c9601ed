"""Progress of long writes: a bar for people, a function for programs, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Report = Callable[[str, int, "int | None"], None]
Progress = bool | None | Report
"""``True``: a bar on the terminal. A function gets stage, rows done, rows in all if known."""


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Report]:
    """A function to call with what is done; it does nothing unless somebody watches."""
    if callable(progress):
        yield progress
    elif progress and sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield lambda stage, done, total: None


@contextlib.contextmanager
def _bar() -> Iterator[Report]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description:>8}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, rich.TaskID] = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield report
