"""Results of the load shedding benchmark: on the terminal, in docs/overload.md, and verdicts."""

from __future__ import annotations

from statistics import median
from typing import Any

from rich.console import Console

from lab.shedding.batch_times import BURSTS
from lab.tables import Grid

STRATEGIES = {
    "considering, tuned": ("considering", None),
    "considering, untuned": ("considering", 1.0),
    "keep": ("keep", 1.0),
    "none": ("none", 1.0),
}
CLOCK_NAMES = {
    "2011": "a modelled disk of 2011",
    "this": "this disk",
    "cached": "this machine with R in the page cache",
}
LEAST_READY = 0.95
MOST_OVERTIME = 0.25  # of batch_time
Report = dict[str, Any]


def grids(report: Report) -> list[tuple[str, Grid]]:
    """The tables of a report, with their titles."""
    found: list[tuple[str, Grid]] = []
    if "figure6" in report:
        found += [_processing(report["figure6"], clock) for clock in ("2011", "this")]
    for clock, name in CLOCK_NAMES.items():
        if clock in report:
            found += [_positions(report[clock], name), _arrivals(report[clock], name)]
    if "ready" in report:
        found_ready = report["ready"]
        rows = [
            [kind, f"{ratio:.3f}", f"{found_ready['best'][kind]:.3f}"]
            for kind, ratio in found_ready["ratios"].items()
        ]
        title = "The rate when ready for overload that does not come, over the rate without"
        found.append((title, Grid(["configured", "median of the turns", "best turns"], rows)))
    if "batches" in report:
        found.append(_batches(report["batches"]))
    return found


def _processing(figure: Report, clock: str) -> tuple[str, Grid]:
    cells = {(c["join"], c["rows"]): c for c in figure["cells"] if c["clock"] == clock}
    sizes = sorted({rows for _, rows in cells})
    joins = list(dict.fromkeys(join for join, _ in cells))
    rows = [[join, *(_time(cells[join, size]["seconds"]) for size in sizes)] for join in joins]
    title = f"Mean time of a tuple in the join, by the rows of R, on {CLOCK_NAMES[clock]}"
    return title, Grid(["join", *(f"{size:,}" for size in sizes)], rows)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.1f} ms"


def _positions(figure: Report, name: str) -> tuple[str, Grid]:
    cells = {(c["ranks"], c["position"]): c["service"] for c in figure["positions"]}
    positions = sorted({position for _, position in cells})
    rows = [
        [f"{ranks} ranks", *(f"{cells[ranks, position]:,.0f}" for position in positions)]
        for ranks in dict.fromkeys(ranks for ranks, _ in cells)
    ]
    heads = ["tuples/s at position", *(f"{position:g}" for position in positions)]
    return f"Look-up position, arrivals at four times the rate, on {name}", Grid(heads, rows)


def _arrivals(figure: Report, name: str) -> tuple[str, Grid]:
    cells = {(c["strategy"], c["load"]): c["service"] for c in figure["arrivals"]}
    loads = sorted({load for _, load in cells})
    rows = [
        [_named(strategy, figure), *(f"{cells[strategy, load]:,.0f}" for load in loads)]
        for strategy in STRATEGIES
    ]
    title = f"Service rate by arrival rate (1 x = {figure['none']:,.0f} tuples/s), on {name}"
    return title, Grid(["strategy", *(f"{load:g} x" for load in loads)], rows)


def _named(strategy: str, figure: Report) -> str:
    mode, position = STRATEGIES[strategy]
    if mode != "considering":
        return strategy
    return f"{strategy} (position {figure['best'] if position is None else position:g})"


def _batches(cell: Report) -> tuple[str, Grid]:
    rows = [
        [str(n), *(f"{one[name]:,.0f}" for name in ("rows", "served", "deferred")),
         f"{one['deferred_oldest_seconds']:.1f}", f"{one['seconds']:.2f}"]
        for n, one in enumerate(cell["batches"])
    ]  # fmt: skip
    heads = ["batch", "rows", "served", "deferred", "oldest (s)", "seconds"]
    return f"Micro-batches with batch_time {cell['batch_time']:g} s", Grid(heads, rows)


def sentences(report: Report) -> list[str]:
    """What the figures say, computed from them."""
    found = []
    for clock, name in CLOCK_NAMES.items():
        if clock in report:
            found.append(_claim(report[clock], name))
    if "burst" in report:
        burst = report["burst"]
        share = burst["served_in_burst"] / burst["arrived_in_burst"]
        found.append(
            f"On {CLOCK_NAMES[burst['clock']]}, a burst of 10 x {burst['service']:,.0f} tuples/s "
            f"for {burst['seconds']:g} s: "
            f"{burst['arrived_in_burst'] / 1e6:.1f} million tuples, {share:.0%} served at once, "
            f"accepted at most {burst['most_behind'] / burst['service'] / 10:.1f} s after they "
            f"arrived, caught up {burst['caught_up_after']:.0f} s after it; peak memory "
            f"{burst['peak_memory'] / 1e6:.1f} of {burst['budget'] / 1e6:.1f} MB, the process "
            f"grew by {burst['resident_growth'] / 1e6:.0f} MB, "
            f"{burst['overload']['dropped']} tuples lost."
        )
    return found


def _claim(figure: Report, name: str) -> str:
    """Claim C16, as measured."""
    cells = {(c["strategy"], c["load"]): c["service"] for c in figure["arrivals"]}
    tuned, untuned, keep = (
        cells[strategy, 4.0] for strategy in ("considering, tuned", "considering, untuned", "keep")
    )
    best = {
        ranks: max(
            (c for c in figure["positions"] if c["ranks"] == ranks), key=lambda c: c["service"]
        )
        for ranks in ("scattered", "clustered")
    }
    return (
        f"C16 on {name}, at four times the rate: considering serves {tuned / keep:.2f} times as "
        f"much as keep (003: 3.1), tuned {tuned / untuned:.2f} times as much as untuned (003: "
        f"1.33); the best position is {best['scattered']['position']:g} with scattered ranks and "
        f"{best['clustered']['position']:g} with clustered ones (003: 0.15)."
    )


def show(report: Report, console: Console) -> None:
    for title, grid in grids(report):
        grid.show(console, title)
    for sentence in sentences(report):
        console.print(sentence)
    for claim, is_met in verdicts(report).items():
        console.print(f"{'PASS' if is_met else 'FAIL'}: {claim}")


def verdicts(report: Report) -> dict[str, bool]:
    """What was to be shown, and whether it was. Lost tuples end the benchmark with an error."""
    found: dict[str, bool] = {}
    if "burst" in report:
        burst = report["burst"]
        lost = burst["samples"][-1]["arrived"] - burst["samples"][-1]["served"]
        found["memory stays within the budget during a burst"] = (
            burst["peak_memory"] <= burst["budget"]
        )
        found["after the burst every tuple has been served, none was dropped"] = (
            lost == 0 and burst["overload"]["dropped"] == 0
        )
    if "ready" in report:
        for kind, ratio in report["ready"]["ratios"].items():
            found[f"{kind}: at least {LEAST_READY} of the rate without"] = ratio >= LEAST_READY
    if "batches" in report:
        cell = report["batches"]
        # The first two bring more rows than fit, which must be written; the last has few.
        settled = [one["seconds"] for one in cell["batches"][BURSTS:-1]]
        claim = f"batches that serve the backlog take at most {1 + MOST_OVERTIME:g} x batch_time"
        limit = (1 + MOST_OVERTIME) * cell["batch_time"]
        found[claim] = bool(settled) and median(settled) <= limit
    return found


def markdown(report: Report) -> str:
    """The part of docs/overload.md that these results make."""
    machine = report["machine"]
    parts = [
        f"R = {report['rows']:,} rows, {machine['time']}, {report['seconds']:.0f} s, load "
        f"{machine['load'][0]:.1f} at the beginning; {machine['processor']}, {machine['cores']} "
        "cores."
    ]
    parts += [f"{title}:\n\n{grid.markdown()}" for title, grid in grids(report)]
    parts += sentences(report)
    parts += [
        f"{'Met' if is_met else '**Missed**'}: {c}." for c, is_met in verdicts(report).items()
    ]
    return "\n" + "\n\n".join(parts) + "\n\n"
