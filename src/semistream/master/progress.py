"""Progress of long writes: a progress bar, a callback, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Report = Callable[[str, int, "int | None"], None]
Progress = bool | None | Report
"""``True``: a bar on the terminal. A callback gets stage, rows done, total rows if known."""


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Report]:
    """A callback for progress; a no-op without a callback or a terminal."""
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
