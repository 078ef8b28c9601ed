"""Writes the results of the cost benchmark into docs/tuning.md: tables, and a plot beside it.

python -m lab.cost_docs
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lab.cost_report import errors, plot

HOME = Path(__file__).resolve().parent.parent
FILES = ("cost-small.json", "cost-small-again.json", "cost.json")
# Each of one commit; the second has what was measured again after some prices were changed.
BEGIN, END = "<!-- results of the cost benchmark -->", "<!-- end of the results -->"
_PICTURE = "images/cost-rates.png"


def section(reports: list[dict[str, Any]]) -> str:
    """The text between the marks."""
    lines = []
    for report in reports:
        lines += [_origin(report), "", "| target | value | limit | |", "|---|---|---|---|"]
        for target in report["summary"]["targets"]:
            verdict = "met" if target["met"] else "missed"
            value, limit = f"{target['value']:.2f}", f"{target['limit']:.2f}"
            if value == limit:  # which of them is larger?
                value = f"{target['value']:.3f}"
            lines.append(f"| {target['target']} | {value} | {limit} | {verdict} |")
        lines.append("")
        if report["rates"]:
            lines += [*_by_join(report["rates"]), ""]
        if report["moved"]:
            lines += [*_moved(report["moved"]), ""]
    if any(report["rates"] for report in reports):
        lines += [f"![predicted against measured rates]({_PICTURE})", ""]
    return "\n".join(lines)


def _origin(report: dict[str, Any]) -> str:
    made = report["machine"]
    rows = sorted({cell["rows"] for cell in report["rates"]})
    size = " and ".join(f"{n:,}" for n in rows)
    of = f"Rates: R = {size} rows, {len(report['rates'])} cells. " if rows else ""
    others = ("grid", "auto", "least")
    of += "".join(f"{part}: {len(report[part])} cells. " for part in others if report[part])
    load = made.get("load_after") or made["load"]
    return f"{of}Commit `{report['commit'][:10]}`, {made['processor']}, load {load[0]}."


def _by_join(cells: list[dict[str, Any]]) -> list[str]:
    lines = ["| join | cells | median error | nine in ten within |", "|---|---|---|---|"]
    for name in sorted({cell["join"] for cell in cells}):
        found = errors([cell for cell in cells if cell["join"] == name])
        if len(found):
            middle, most = np.median(found), np.quantile(found, 0.9)
            lines.append(f"| {name} | {len(found)} | {middle:.0%} | {most:.0%} |")
    return lines


def _moved(entries: list[dict[str, Any]]) -> list[str]:
    lines = ["| change | of the tuned rate | within 10 % after |", "|---|---|---|"]
    for entry in sorted(entries, key=lambda entry: str(entry["name"])):
        soon = entry["seconds_until"]
        when = "never" if soon is None else f"{soon:g} s"
        lines.append(f"| {entry['name']} | {entry['last'] / entry['tuned']:.2f} | {when} |")
    return lines


def write(reports: list[dict[str, Any]], page: Path) -> None:
    """Replace what is between the marks of the page, and draw the picture beside it."""
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{section(reports)}\n{END}{after}")
    cells = [cell for report in reports for cell in report["rates"]]
    if cells:
        (page.parent / _PICTURE).parent.mkdir(exist_ok=True)
        plot({"rates": cells}, page.parent / _PICTURE)


def main() -> int:
    found = [path for name in FILES if (path := HOME / "lab" / "results" / name).exists()]
    if not found:
        print("no results: run python -m lab.bench_cost first", file=sys.stderr)
        return 1
    write([json.loads(path.read_text()) for path in found], HOME / "docs" / "tuning.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
