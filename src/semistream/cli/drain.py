"""``semistream drain``: serve the rows of a stopped pipeline that wait."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from semistream.cli.run import plan_of
from semistream.errors import ConfigError, SemistreamError

app = typer.Typer(add_completion=False)


def drain(file: Path) -> dict[str, float]:
    """Returns what still waits."""
    pipeline, document, masters, _ = plan_of(file)
    try:
        from semistream.spark.pipeline import drain_pipeline
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"draining a pipeline needs {error.name}: pip install 'semistream[spark,pipeline]'"
        ) from error
    try:
        return drain_pipeline(pipeline, masters)
    except SemistreamError as error:
        raise type(error)(document.redact(str(error))) from None


@app.command()
def command(file: Path = typer.Argument(..., help="Pipeline file (YAML).")) -> None:
    """Serve deferred rows, and parked rows whose key has arrived, of a pipeline that is stopped."""
    try:
        left = drain(file)
    except SemistreamError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    print(f"done: no row is deferred, {left['parked']:,.0f} are parked")
