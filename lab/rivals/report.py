"""The rivals' results as tables: on the screen, and as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.table import Table

from lab import rivals
from lab.rivals.grid import Point, Size
from lab.rivals.launch import KILLED

REFERENCE = ("semistream", "sweepjoin")
BEGIN, END = "<!-- table -->", "<!-- end -->"
SHORT = {
    KILLED: "killed",
    "out of memory within its own limit": "out of memory",
}


class Held(Protocol):
    """The part of the results that the tables use."""

    cells: dict[str, dict[str, Any]]
    runs: list[dict[str, Any]]
    left_out: dict[str, str]


def is_wrong(cell: dict[str, Any]) -> bool:
    return bool(cell["outcome"].startswith(("wrong", "failed")))


def said(cell: dict[str, Any]) -> str:
    """One cell in one line."""
    parts = []
    if cell.get("rate") is not None:
        parts.append(f"{cell['rate'] / 1e6:.3f} M tuples/s")
    if cell.get("interval"):
        low, high = cell["interval"]
        parts.append(f"({low / 1e6:.3f} to {high / 1e6:.3f})")
    parts.append(f"{cell['outcome']}, {cell['peak_anonymous'] >> 20} MiB at most")
    return " ".join(parts)


def entry(cell: dict[str, Any] | None) -> str:
    """A cell's entry in the table: its rate, or why there is none."""
    if cell is None:
        return ""
    outcome = cell["outcome"]
    rate = f"{cell['rate'] / 1e6:.3g}" if cell.get("rate") is not None else ""
    if rate and not cell.get("steady", True):
        return f"{rate}*"
    if outcome == "right":
        return rate
    if outcome.startswith("cut"):
        return f"{rate} (cut)" if rate else "too slow"
    if outcome.startswith("refused"):
        return "refused"
    return SHORT.get(outcome, outcome.split(":")[0].upper())


def lookup(results: Held) -> dict[tuple[str, str, Point], dict[str, Any]]:
    """Cells by rival, variant and point."""
    return {
        (
            cell["rival"],
            cell["variant"],
            Point(cell["rows"], cell["memory"], cell["exponent"], cell["batch"], cell["cold"]),
        ): cell
        for cell in results.cells.values()
    }


def variants() -> list[tuple[str, str]]:
    """All rivals and variants, in the order of the tables."""
    return [(name, variant) for name in rivals.ADAPTERS for variant in rivals.rival(name).variants]


def columns(results: Held, size: Size) -> dict[str, Point]:
    """The points that were measured, by a heading with the difference from the centre."""
    centre = size.centre
    found = {point for _, _, point in lookup(results)}
    headings = {f"centre: {_memory(centre)}": centre}
    for name, points in size.slices().items():
        for point in points:
            what = {
                "memory": _memory(point),
                "rows": f"R = {point.rows / 1e6:g} M rows",
                "batch": f"batches of {point.batch:,}",
                "exponent": f"exponent {point.exponent:g}",
                "cold": "cold reads",
            }
            if name in what and point in found:
                headings[what[name]] = point
    return headings


def _memory(point: Point) -> str:
    return "all of R" if point.memory == "all" else f"{point.memory} % of R"


def show(results: Held, size: Size, console: Console) -> None:
    """All rates, then the details of the centre."""
    heads, rows = rates(results, size)
    table = Table(title=f"million tuples/s; {_centre(size)}", box=box.SIMPLE_HEAD)
    _fill(table, heads, rows, console)
    heads, rows = details(results, size)
    table = Table(title="the centre in detail", box=box.SIMPLE_HEAD)
    _fill(table, heads, rows, console)
    for line in left_out(results):
        console.print(line)


def _fill(table: Table, heads: list[str], rows: list[list[str]], console: Console) -> None:
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number > 1 else "left", no_wrap=number < 2)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _centre(size: Size) -> str:
    centre = size.centre
    return (
        f"R = {centre.rows / 1e6:g} M rows of 113 bytes, memory {_memory(centre)}, "
        f"exponent {centre.exponent:g}, batches of {centre.batch:,}, warm page cache, one core"
    )


def rates(results: Held, size: Size) -> tuple[list[str], list[list[str]]]:
    """Every variant at every point that was measured."""
    points, found = columns(results, size), lookup(results)
    rows = []
    for name, variant in variants():
        shown = [entry(found.get((name, variant, point))) for point in points.values()]
        if any(shown):
            rows.append([rivals.rival(name).name, variant, *shown])
    return ["", "", *points], rows


def details(results: Held, size: Size) -> tuple[list[str], list[list[str]]]:
    """The centre: rate with its interval, ratio, memory, limit, page cache."""
    found, centre = lookup(results), size.centre
    reference = found.get((*REFERENCE, centre), {}).get("rate")
    rows = []
    for name, variant in variants():
        cell = found.get((name, variant, centre))
        if cell is None:
            continue
        interval, rate = cell.get("interval"), cell.get("rate")
        rows.append(
            [
                rivals.rival(name).name,
                variant,
                entry(cell),
                f"{interval[0] / 1e6:.3g} to {interval[1] / 1e6:.3g}" if interval else "",
                f"{rate / reference:.2g}" if rate and reference else "",
                f"{cell['peak_anonymous'] / 2**20:,.0f}",
                f"{cell['limit'] / 2**20:,.0f} ({cell['limit_kind']})" if cell["limit"] else "none",
                f"{cell['open_seconds']:.1f}" if "open_seconds" in cell else "",
                cell["page_cache"].split(":")[0].split(",")[0],
                cell["outcome"],
            ]
        )
    heads = [
        "",
        "",
        "M tuples/s",
        "interval",
        f"times {REFERENCE[1]}",
        "peak MiB",
        "limit MiB",
        "s to open",
        "page cache",
        "outcome",
    ]
    return heads, rows


def left_out(results: Held) -> list[str]:
    return [f"{name} is skipped, {why}" for name, why in sorted(results.left_out.items())]


def markdown(results: Held, size: Size) -> str:
    """Both tables, the versions and the machine."""
    lines = [f"Million tuples/s. The centre is {_centre(size)}.", ""]
    lines += _markdown_table(*rates(results, size))
    lines += ["", "\\* The cache or the window was still filling when the time for it was over."]
    lines += ["", "The centre in detail:", ""]
    lines += _markdown_table(*details(results, size))
    lines += ["", *left_out(results)] if results.left_out else []
    if results.runs:
        last = results.runs[-1]
        versions = ", ".join(f"{name} {version}" for name, version in last["packages"].items())
        loads = [cell["load"][0] for cell in results.cells.values() if cell.get("load")]
        lines += [
            "",
            f"Machine: {last['processor']}, {last['cores']} cores, {last['memory']}. "
            f"Python {last['python']}, {versions}. "
            f"Load average when a cell began: {min(loads):.1f} to {max(loads):.1f}."
            if loads
            else "",
        ]
    return "\n".join(lines) + "\n"


def publish(results: Held, size: Size, page: Path) -> None:
    """Replace the text between the page's markers by the tables."""
    before, rest = page.read_text().split(BEGIN, 1)
    _, after = rest.split(END, 1)
    page.write_text(f"{before}{BEGIN}\n{markdown(results, size)}{END}{after}")


def _markdown_table(heads: list[str], rows: Iterable[list[str]]) -> list[str]:
    rule = ["---", "---", *["---:"] * (len(heads) - 2)]
    return ["| " + " | ".join(row) + " |" for row in (heads, rule, *rows)]
