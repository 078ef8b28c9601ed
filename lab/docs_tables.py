"""Writes the figures of earlier measurements into the pages of docs/, from lab/results/.

    python -m lab.docs_tables                  # part of `make bench-tables`
    python -m lab.docs_tables --docs copy/     # other pages

Every part is between two markers of its page, ``<!-- name -->`` and ``<!-- end name -->``. The
tables of the shapes and drain benchmarks are written by :mod:`lab.bench_tables`, those of the
comparison with other tools by ``python -m lab.bench_rivals --publish``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import semistream as ss
from lab.tables import Grid, grouped, insert

ROOT = Path(__file__).resolve().parent
POLICIES = {"sweepjoin": "counts over a sweep (kept)", "papers' threshold": "the papers' threshold"}
PEERS = {
    "lru+lmdb": "LRU dictionary in front of LMDB, rows decoded",
    "lru+lmdb packed": "the same, rows kept as packed bytes",
}
PIPELINES = {
    "read and discard": "read and discard",
    "ceiling": "ceiling: a `mapInArrow` that only appends constant columns",
    "enrich": "`enrich`, rows discarded",
    "enrich + Parquet sink": "`enrich`, then Spark's Parquet sink",
    "one-crossing sink": "`to_warehouse` with Parquet, which joins in the sink",
    "Spark, sort-merge": "Spark's join: sort-merge, its default choice",
    "Spark, shuffled hash of the batch": "Spark's join: shuffled hash of the batch, with a hint",
    "Spark, broadcast of the batch": "Spark's join: broadcast of the batch, with a hint",
    "Spark, broadcast of R": "Spark's join: broadcast of R",
}
BATCH_CEILINGS = {"ceiling": "enrich", "sink with constants": "one-crossing sink"}


def cache(report: dict[str, Any]) -> str:
    """Hit rates by cache policy; the best of each stream is bold."""
    rates = report["hit_rates"]
    streams = list(next(iter(rates.values())))
    best = {stream: max(found[stream] for found in rates.values()) for stream in streams}
    rows = []
    for policy, found in rates.items():
        shown = [f"{found[s]:.3f}" for s in streams]
        shown = [
            f"**{text}**" if found[s] == best[s] else text
            for s, text in zip(streams, shown, strict=True)
        ]
        rows.append([POLICIES.get(policy, policy), *shown])
    return _table(["policy", *streams], rows)


def engine(report: dict[str, Any]) -> str:
    """Rates of all joins by budget, with a warm page cache and with direct I/O."""
    found = grouped(
        (cell for cell in report["cells"] if cell.get("scattered", True)
         and cell["push"] == 50_000 and cell.get("exponent", 1.0) == 1.0),
        "join", "direct", "percent",
    )  # fmt: skip
    columns = [(direct, percent) for direct in (False, True) for percent in (1.0, 5.0, 10.0)]
    rows = []
    for join in (*PEERS, *ss.ALGORITHMS):
        cells = [found.get((join, *column)) for column in columns]
        if any(cells):
            rates = ["" if cell is None else _small(cell["rate"]) for cell in cells]
            rows.append([PEERS.get(join, join), *rates])
    heads = ["1 % of R", "5 %", "10 %", "1 %, direct I/O", "5 %", "10 %"]
    return _table(["memory", *heads], rows)


def sweep(report: dict[str, Any]) -> str:
    """SweepJoin beside the best of the published joins."""
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    ours = {}
    for cell in report["cells"]["result"]:
        place = cell["percent"], cell["exponent"], cell["scattered"]
        if cell["join"] == "sweepjoin":
            ours[place] = cell["rate"]
        elif "rate" in cell and cell["rate"] > best.get(place, {"rate": 0})["rate"]:
            best[place] = cell
    rows = []
    for (percent, exponent, scattered), rate in sorted(ours.items()):
        peer = best[percent, exponent, scattered]
        rows.append(
            [
                f"{percent:g} %",
                f"{exponent:g}",
                "scattered" if scattered else "clustered",
                _million(rate),
                f"{_million(peer['rate'])} ({peer['join']})",
                f"{rate / peer['rate']:.1f}",
            ]
        )
    heads = ["memory", "exponent", "ranks", "SweepJoin", "best published", "ratio"]
    return _table(heads, rows, names=3)


def peers(report: dict[str, Any]) -> str:
    rate = {name: cell["rate"] for name, cell in report["peers"]["result"].items()}
    return (
        "Compared with other tools at 10 % and exponent 1, batches of 100,000, one core: SweepJoin "
        f"{_million(rate['sweepjoin'])};\nan LRU dictionary of equal memory in front of LMDB in a "
        f"warm page cache, rows decoded, {_million(rate['lru+lmdb'])}; DuckDB with\nall of R "
        f"loaded {_million(rate['duckdb'])}; Polars with all of R loaded "
        f"{_million(rate['polars'])}.\n"
    )


def limit(report: dict[str, Any]) -> str:
    """The larger of the two bounds on the time, as a rate, and our share of it."""
    rows = []
    for cell in report["limit"]["result"]:
        bound = min(cell["processor_floor"], cell["disk_floor"])
        which = "CPU" if bound == cell["processor_floor"] else "disk"
        bounded = f"{which}, {_million(bound)}"
        rows.append(
            [f"{cell['percent']:g} %", _million(cell["rate"]), bounded, f"{cell['share']:.2f}"]
        )
    return _table(["memory", "SweepJoin", "limit", "share"], rows)


def sizes(report: dict[str, Any]) -> str:
    found = ", ".join(
        f"{cell['rows'] / 1e6:g} M {cell['rate'] / 1e6:.1f}" for cell in report["size"]["result"]
    )
    return (
        f"Size of R, with memory for 5 %, exponent 1, million tuples/s: R = {found}.\n"
        "A small R is slower, because its window is small and a visit has few tuples.\n"
    )


def wait(report: dict[str, Any]) -> str:
    rows = []
    for kind, shown in (("bursty", "bursty"), ("trickling", "low-rate")):
        for place, (join, cell) in enumerate(report["wait"]["result"][kind].items()):
            bound = "" if cell["bound"] is None else f" of {cell['bound']:,}"
            rows.append(
                [
                    join if place else f"{shown}: {join}",
                    *(f"{cell[f'{name}_seconds']:.2g}" for name in ("p50", "p99", "max")),
                    f"{cell['max_iterations']:,}{bound}",
                ]
            )
    return _table(["", "p50", "p99", "longest", "iterations, of the bound"], rows)


def cores(report: dict[str, Any]) -> str:
    found = report["cores"]["result"]
    first, second = (_million(rate, 1) for rate in found["each_of_two"])
    either = " and ".join(_million(rate) for rate in found["io_bound_on_either_core"])
    return (
        "Two processes on two cores, 5 % each, alternating with one process alone: "
        f"{first} + {second} compared with {_million(found['one_process'], 1)},\n"
        f"{found['two_processes']:.2f} times. One disk-bound run (1 %, exponent 0), alternating "
        f"between either core and both: {either}\ncompared with "
        f"{_million(found['io_bound_on_two_cores'])}, a gain of "
        f"{100 * (found['second_core'] - 1):.0f} % by the second core.\n"
    )


def spark(report: dict[str, Any]) -> str:
    """Rates of the pipelines, and the ratios that the text is about."""
    large, small = (
        {name: cell.get("rate") for name, cell in one["pipelines"].items()}
        for one in report["relations"]
    )
    rows = []
    for name, shown in PIPELINES.items():
        rates = [_small(one[name]) if one.get(name) else "" for one in (large, small)]
        if name == "Spark, broadcast of R" and not rates[0]:
            rates[0] = "does not fit"
        rows.append([shown, *rates])
    heads = [f"R = {one['rows'] / 1e6:g} M" for one in report["relations"]]
    theirs = max(rate for name, rate in large.items() if name.startswith("Spark") and rate)
    return _table(["pipeline", *heads], rows) + (
        f"\nWith the large table `enrich` is {large['enrich'] / large['Spark, sort-merge']:.0f} "
        f"times as fast as Spark's default join, {large['enrich'] / theirs:.1f} times as fast as "
        f"Spark's join\nwith the best hint, and reaches "
        f"{large['enrich'] / large['ceiling']:.2f} of the ceiling. Measured at "
        f"{report['machine']['time']} with\nsemistream "
        f"{report['machine']['packages']['semistream']}, Spark "
        f"{report['machine']['packages']['pyspark']}.\n"
    )


def spark_batches(report: dict[str, Any]) -> str:
    """The time of ``addBatch`` by size of the micro-batch, beside the ceilings."""
    heads: list[str] = []
    for ceiling, ours in BATCH_CEILINGS.items():
        heads += [ceiling, *(n for n in report["micro_batches"][0]["ratios"] if n.startswith(ours))]
    rows = []
    for one in report["micro_batches"]:
        times = [f"{one['pipelines'][name]['median']:.0f}" for name in heads]
        ratios = [f" ({one['ratios'][n]:.2f})" if n in one["ratios"] else "" for n in heads]
        rows.append([f"{one['batch_rows']:,}", *map("".join, zip(times, ratios, strict=True))])
    machine, rounds = report["machine"], report["rounds"]
    taken = "one round" if rounds == 1 else f"the best of {rounds} rounds"
    return _table(["rows of a micro-batch", *heads], rows) + (
        f"\nMeasured at {machine['time']}, {taken}, with Spark {machine['packages']['pyspark']}, "
        f"load average {machine['load'][0]:.1f} before.\n"
    )


class Part(NamedTuple):
    page: str
    name: str  # of its markers
    results: str
    text: Callable[[dict[str, Any]], str]


PARTS = (
    Part("benchmarks.md", "engine", "engine", engine),
    Part("cluster.md", "spark", "spark", spark),
    Part("cluster.md", "spark-batches", "spark-batches", spark_batches),
    Part("laboratory-notes.md", "cache", "cache", cache),
    Part("laboratory-notes.md", "sweep", "sweep", sweep),
    Part("laboratory-notes.md", "peers", "sweep", peers),
    Part("laboratory-notes.md", "limit", "sweep", limit),
    Part("laboratory-notes.md", "sizes", "sweep", sizes),
    Part("laboratory-notes.md", "wait", "sweep", wait),
    Part("laboratory-notes.md", "cores", "sweep", cores),
)


def _table(heads: list[str], rows: list[list[str]], names: int = 1) -> str:
    return Grid(heads, rows, names).markdown() + "\n"


def _million(rate: float, digits: int = 2) -> str:
    return f"{rate / 1e6:.{digits}f}"


def _small(rate: float) -> str:
    """Three digits where two would say nothing."""
    return _million(rate, 2 if rate >= 1e5 else 3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    parser.add_argument("--docs", type=Path, default=ROOT.parent / "docs")
    options = parser.parse_args(arguments)
    for part in PARTS:
        report = json.loads((options.results / f"{part.results}.json").read_text())
        insert(options.docs / part.page, part.name, part.text(report))
    print(f"{len(PARTS)} parts written to {options.docs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
