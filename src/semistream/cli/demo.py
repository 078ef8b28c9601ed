"""``semistream demo``: a pipeline that joins sales with products, or the join alone."""

from __future__ import annotations

from pathlib import Path

import typer

from semistream.cli._demo_engine import run_demo, show_engine

app = typer.Typer(add_completion=False)

__all__ = ["app", "run_demo"]


@app.command()
def demo(
    engine: bool = typer.Option(False, "--engine", help="Only the join, without Spark."),
    rows: int = typer.Option(2_000_000, min=1, help="Products in the master table."),
    tuples: int = typer.Option(1_000_000, min=1, help="Sales in the stream."),
    memory: str | None = typer.Option(
        None, help="Memory budget of the join. Default: 256MB; 50MB with --engine."
    ),
    join: str = typer.Option("auto", help="Name of the join; auto chooses one for the table."),
    exponent: float = typer.Option(
        1.0, min=0.0, help="Skew of the sales: 0 is uniform, 1 is Zipf."
    ),
    output: str = typer.Option("delta", help="Format of the warehouse: delta or parquet."),
    folder: Path | None = typer.Option(None, help="Keep everything in this folder."),
) -> None:
    """Stream skewed sales through a pipeline that looks up products, and query the warehouse."""
    if engine:
        show_engine(rows, tuples, memory or "50MB", join, exponent)
        return
    from semistream.cli._demo_pipeline import show_pipeline

    show_pipeline(rows, tuples, memory or "256MB", join, exponent, output, folder)
