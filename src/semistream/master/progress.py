"""Progress of long writes: a progress bar, a callback, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec

Report = Callable[[str, int, "int | None"], None]
Progress = bool | None | Report
"""``True``: a bar on the terminal, or a line of text where rich is not installed. A callback gets
stage, rows done, total rows if known."""


@contextlib.contextmanager
def reporting(progress: Progress) -> Iterator[Report]:
    """A callback for progress; a no-op without a callback or a terminal."""
    if callable(progress):
        yield progress
    elif progress and sys.stderr.isatty():
        with _bar() if find_spec("rich") else _line() as report:
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


@contextlib.contextmanager
def _line() -> Iterator[Report]:
    """The same in plain text: rich belongs to the command line, which need not be installed."""

    def report(stage: str, done: int, total: int | None) -> None:
        of = "" if total is None else f" of {total:,}"
        print(f"\r\x1b[2K{stage:>8} {done:,}{of}", end="", file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
