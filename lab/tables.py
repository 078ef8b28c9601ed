"""Tables of results: on the terminal, as Markdown, and between the markers of a page in docs/."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table

# Why a cell has no figures, as results have it and as tables show it.
TROUBLES = {
    "wrong": "WRONG ANSWER",
    "error": "FAILED",
    "refused": "refused",
    "too_slow": "too slow",
}


@dataclass(frozen=True)
class Grid:
    """A table of text; the first ``names`` columns are aligned to the left."""

    heads: list[str]
    rows: list[list[str]]
    names: int = 1

    def show(self, console: Console, title: str) -> None:
        table = Table(title=title, box=box.SIMPLE_HEAD)
        for place, head in enumerate(self.heads):
            justify: JustifyMethod = "left" if place < self.names else "right"
            table.add_column(head, justify=justify, no_wrap=True)
        for row in self.rows:
            table.add_row(*[f"[red]{cell}[/red]" if _is_bad(cell) else cell for cell in row])
        wide = console.options.update(max_width=1_000)
        needed = Measurement.get(console, wide, table).maximum
        if needed > console.width:  # wrapped cells are hard to read; a terminal can scroll
            console = Console(file=console.file, width=needed)
        console.print(table)

    def markdown(self) -> str:
        rule = ["---" if place < self.names else "---:" for place in range(len(self.heads))]
        return "\n".join("| " + " | ".join(row) + " |" for row in (self.heads, rule, *self.rows))


def _is_bad(cell: str) -> bool:
    return cell.endswith("(missed)") or cell in ("WRONG ANSWER", "FAILED")


def grouped(cells: Iterable[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Cells by the values of these fields."""
    return {tuple(cell[name] for name in names): cell for cell in cells}


def about(report: dict[str, Any]) -> str:
    """The machine, the versions and the load of a run, in a sentence each."""
    machine = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    loads = [cell["load"][0] for cell in report["cells"]]
    return (
        f"Measured at {machine['time']} in {report['seconds'] / 60:.0f} minutes. "
        f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory']}. "
        f"Python {machine['python']}, {versions}. "
        f"Load average when a cell began: {min(loads):.1f} to {max(loads):.1f}."
    )


def save(report: dict[str, Any], path: Path) -> None:
    """Write the results atomically: a benchmark that is stopped keeps those of the cells before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    os.replace(unfinished, path)


def insert(page: Path, name: str, text: str) -> None:
    """Replace what is between ``<!-- name -->`` and ``<!-- end name -->`` of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    before, found, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no {begin} ... {end}")
    page.write_text(f"{before}{begin}\n{text}{end}{after}")
