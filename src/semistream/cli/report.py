"""``semistream report``: a file of metrics as an HTML file."""

from __future__ import annotations

from pathlib import Path

import typer

from semistream.errors import ConfigError

app = typer.Typer(add_completion=False)


def write_report(metrics: Path, output: Path, last: int = 0) -> int:
    """Write the report and return the number of its batches; ``last`` 0 takes all."""
    from semistream.live.report import read_records, report

    records = read_records(metrics)[-last:]
    try:
        output.write_text(report(records, metrics.name), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written: {error.strerror}") from error
    return len(records)


@app.command()
def command(
    metrics: Path = typer.Argument(..., help="JSON lines that semistream run --metrics wrote."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="Default: the metrics file with the suffix .html."
    ),
    last: int = typer.Option(5000, min=0, help="At most this many of the newest batches; 0: all."),
) -> None:
    """Write the charts of a finished query to one HTML file that needs nothing else."""
    target = output or metrics.with_suffix(".html")
    count = write_report(metrics, target, last)
    print(f"{target}: {count:,} batches")
