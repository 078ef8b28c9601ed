"""The engine benchmark's results as tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lab.engine_cell import ALTERNATIVES
from lab.engine_targets import PUSH, REFERENCE, SMALL_PUSH, Rates


def show(report: dict[str, Any], console: Console) -> None:
    """Print the rates by I/O mode, then the targets."""
    rates = Rates(report["cells"])
    for direct in sorted({cell["direct"] for cell in report["cells"]}):
        console.print(rates_table(rates, report["rows"], direct))
    if report["targets"]:
        console.print(targets_table(report))
    else:
        console.print("small size: caches are not warm; targets are evaluated at full size only")


def rates_table(rates: Rates, rows: int, direct: bool) -> Table:
    """Tuples per second, and in brackets the ratio to the alternative of equal memory."""
    mode = "direct I/O" if direct else "warm page cache"
    table = Table(
        title=f"million tuples/s, one core, {mode}, R = {rows:,} rows\n"
        f"in brackets: times the rate of {REFERENCE} of equal memory (warm)",
        caption=None
        if direct
        else f"small pushes: rate of {SMALL_PUSH} at a time / of {PUSH:,}, at the largest budget",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("join", no_wrap=True)
    for percent in rates.percents:
        table.add_column(f"{percent:g} % of R", justify="right", no_wrap=True)
    if not direct:
        table.add_column("small\npushes", justify="right")
    for join in rates.joins:
        row = [join]
        for percent in rates.percents:
            rate = rates.get(join, percent, direct)
            ratio = rates.ratio(rate, rates.get(REFERENCE, percent))
            shown = "" if rate is None else f"{rate / 1e6:.3f} ({ratio or 0:.1f})"
            row.append("refused" if (join, percent, direct) in rates.refused else shown)
        if direct and not any(row[1:]):
            continue
        if not direct:
            largest = rates.percents[-1]
            small = rates.ratio(rates.get(join, largest, push=SMALL_PUSH), rates.get(join, largest))
            row.append("" if small is None else f"{small:.2f}")
        table.add_row(*row, end_section=join == list(ALTERNATIVES)[-1])
    return table


def targets_table(report: dict[str, Any]) -> Table:
    """Every target with its verdict."""
    table = Table(title="targets (warm page cache)", box=box.SIMPLE_HEAD)
    table.add_column("target")
    table.add_column("least", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("")
    for target in report["targets"]:
        ratio = target["ratio"]
        table.add_row(
            target["target"],
            f"{'> ' if target['strictly'] else ''}{target['least']:g}",
            "-" if ratio is None else f"{ratio:.2f}",
            "met" if target["met"] else "[red]missed[/red]",
        )
    return table
