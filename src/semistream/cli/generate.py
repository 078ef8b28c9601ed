"""``semistream generate``: write streams and relations as files or master tables, with plots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import typer

from semistream.errors import ConfigError

if TYPE_CHECKING:
    from semistream.workload.arrivals import Counts

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Generate realistic streams and relations.",
)

OnProgress = Callable[[int], None]
STEP_SECONDS = 0.01
PLOT_TUPLES = 2_000_000


@dataclass(frozen=True)
class Generated:
    """Rows and files written, and the time it took."""

    rows: int
    seconds: float
    paths: list[Path] = field(default_factory=list)


def generate_stream(
    out: Path,
    tuples: int,
    options: dict[str, Any],
    arrivals: str | None = None,
    rate: float = 10_000.0,
    plot: Path | None = None,
    on_progress: OnProgress = lambda rows: None,
) -> Generated:
    """Write sales; ``options`` are those of :func:`semistream.workload.sales`."""
    from semistream.workload import files, plots, stream
    from semistream.workload.arrivals import by_name, until

    began = time.perf_counter()
    files.check_ending(out)
    schema, batches = stream.SCHEMA, stream.sales(tuples, **options)
    counts = None
    if arrivals is not None:
        process = by_name(arrivals, rate * STEP_SECONDS, options.get("seed", 0))
        counts = until(tuples, process)
        schema = schema.append(pa.field("arrived_ns", pa.int64()))
        batches = _with_times(batches, counts)
    rows = files.write(batches, schema, out, on_progress)
    paths = [out]
    if plot is not None:
        sample = stream.sales(min(tuples, PLOT_TUPLES), **{**options, "unmatched": 0, "nulls": 0})
        keys = pa.Table.from_batches(sample, stream.SCHEMA)["product_id"].to_numpy()
        law = None if options.get("keys") else options["exponent"]
        picture = plot / "rank_frequency.png"
        paths.append(plots.rank_frequency(keys, picture, options["products"], law))
        if counts is not None:
            picture = plot / "arrivals.png"
            paths.append(plots.arrivals_over_time(counts, picture, STEP_SECONDS))
    return Generated(rows, time.perf_counter() - began, paths)


def generate_relation(
    out: Path, rows: int, options: dict[str, Any], on_progress: OnProgress = lambda rows: None
) -> Generated:
    """Write products as a file or, if ``out`` has no extension, as a master table."""
    from semistream.workload import files
    from semistream.workload.relations import products

    began = time.perf_counter()
    reader = products(rows, **options)
    if out.suffix:
        files.write(reader, reader.schema, out, on_progress)
    else:
        import semistream as ss

        counted = pa.RecordBatchReader.from_batches(reader.schema, _counted(reader, on_progress))
        unique = options.get("copies", 1) == 1
        ss.MasterTable.build(counted, out, key="product_id", unique=unique)
    return Generated(rows, time.perf_counter() - began, [out])


def generate_tpch(
    folder: Path,
    scale: float,
    exponent: float | None,
    seed: int,
    on_progress: OnProgress = lambda rows: None,
) -> Generated:
    """Write Customer and Orders and, if an exponent is given, also Orders with skewed customers."""
    import pyarrow.parquet as pq

    from semistream.workload import files, tpch

    began = time.perf_counter()
    paths = tpch.generate(folder, scale)
    written = list(paths.values())
    rows = sum(pq.read_metadata(path).num_rows for path in written)
    if exponent is not None:
        customers = pq.read_metadata(paths["customer"]).num_rows
        reader = tpch.orders(folder)
        skewed = folder / f"orders-zipf-{exponent:g}.parquet"
        batches = tpch.reskew(reader, customers, exponent, seed)
        rows += files.write(batches, reader.schema, skewed, on_progress)
        written.append(skewed)
    return Generated(rows, time.perf_counter() - began, written)


def generate_flights(folder: Path) -> Generated:
    """Write flights, planes and weather as Parquet files."""
    from semistream.workload import files, flights

    began = time.perf_counter()
    stream, planes, weather = flights.flights(), flights.planes(), flights.weather()
    paths = [folder / f"{name}.parquet" for name in ("flights", "planes", "weather")]
    rows = files.write(stream, stream.schema, paths[0])
    rows += files.write(planes.to_batches(), planes.schema, paths[1])
    rows += files.write(weather.to_batches(), weather.schema, paths[2])
    return Generated(rows, time.perf_counter() - began, paths)


def _counted(
    batches: Iterable[pa.RecordBatch], on_progress: OnProgress
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        on_progress(rows)


def _with_times(batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
    from semistream.workload import arrivals

    times, start = arrivals.timestamps(counts, STEP_SECONDS), 0
    for batch in batches:
        stop = start + batch.num_rows
        yield batch.append_column("arrived_ns", pa.array(times[start:stop]))
        start = stop


@app.command("stream")
def stream_command(
    out: Path = typer.Argument(..., help="File to write, .parquet or .arrow."),
    tuples: int = typer.Option(1_000_000, help="Number of sales."),
    products: int = typer.Option(2_000_000, help="Number of keys in the master relation."),
    exponent: float = typer.Option(1.0, help="Zipf exponent; 0 is uniform."),
    scattered: bool = typer.Option(True, help="Spread hot keys over the key space."),
    unmatched: float = typer.Option(0.0, help="Fraction of keys without a match."),
    nulls: float = typer.Option(0.0, help="Fraction of null keys."),
    stride: int = typer.Option(1, help="Distance between consecutive keys of the relation."),
    intervals: int = typer.Option(0, help="Temporal locality: number of intervals; 0 is none."),
    shift_every: int = typer.Option(0, help="Tuples between shifts of the hot set; 0 is never."),
    shift_by: int = typer.Option(1_000, help="Number of keys by which a shift moves the hot set."),
    arrivals: str = typer.Option(
        None, help="Add arrival times: constant, poisson, bursty or on-off."
    ),
    rate: float = typer.Option(10_000.0, help="Arrivals per second (on-off: while on)."),
    seed: int = typer.Option(0, help="Random seed; the same seed gives the same bytes."),
    plot: Path = typer.Option(None, help="Folder for plots of the stream."),
) -> None:
    """Write a stream of sales."""
    from semistream.workload import locality

    keys = None
    if intervals and shift_every:
        raise ConfigError("--intervals and --shift-every are mutually exclusive; give one of them")
    if intervals:
        length = max(1, -(-tuples // intervals))
        keys = locality.intervals(products, length, intervals, exponent, seed, scattered)
    elif shift_every:
        keys = locality.shifting(products, shift_every, shift_by, exponent, seed, scattered)
    options = {
        "products": products,
        "exponent": exponent,
        "seed": seed,
        "scattered": scattered,
        "unmatched": unmatched,
        "nulls": nulls,
        "stride": stride,
        "keys": keys,
    }
    with _progress("writing sales", tuples) as on_progress:
        made = generate_stream(out, tuples, options, arrivals, rate, plot, on_progress)
    _print(made)


@app.command("relation")
def relation_command(
    out: Path = typer.Argument(
        ..., help="A .parquet or .arrow file; without extension, a master table."
    ),
    rows: int = typer.Option(2_000_000, help="Total number of rows."),
    row_bytes: int = typer.Option(113, help="Bytes per row in Arrow memory."),
    shuffled: bool = typer.Option(False, help="Write rows in random order, not key order."),
    stride: int = typer.Option(1, help="Distance between consecutive keys; above 1 leaves gaps."),
    copies: int = typer.Option(1, help="Rows per key."),
    seed: int = typer.Option(0, help="Random seed; the same seed gives the same bytes."),
) -> None:
    """Write a catalogue of products."""
    options = {
        "row_bytes": row_bytes,
        "shuffled": shuffled,
        "stride": stride,
        "copies": copies,
        "seed": seed,
    }
    with _progress("writing products", rows) as on_progress:
        made = generate_relation(out, rows, options, on_progress)
    _print(made)


@app.command("tpch")
def tpch_command(
    folder: Path = typer.Argument(..., help="Folder for the Parquet files."),
    scale: float = typer.Option(1.0, help="Scale factor; 1 is 150,000 customers."),
    exponent: float = typer.Option(
        None, help="Also write Orders with customers drawn by this Zipf exponent."
    ),
    seed: int = typer.Option(0, help="Random seed of the skewed Orders."),
) -> None:
    """Write the TPC-H tables Customer and Orders."""
    with _progress("writing orders", int(1_500_000 * scale)) as on_progress:
        made = generate_tpch(folder, scale, exponent, seed, on_progress)
    _print(made)


@app.command("flights")
def flights_command(
    folder: Path = typer.Argument(..., help="Folder for the Parquet files."),
) -> None:
    """Write the flights, planes and weather of New York City in 2013."""
    _print(generate_flights(folder))


@contextmanager
def _progress(what: str, total: int) -> Iterator[OnProgress]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn()) as bars:
        task = bars.add_task(what, total=total)
        yield lambda rows: bars.update(task, completed=rows)


def _print(made: Generated) -> None:
    lines = [f"{made.rows:,} rows in {made.seconds:.1f} s", *(f"  {path}" for path in made.paths)]
    typer.echo("\n".join(lines))
