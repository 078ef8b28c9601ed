"""``semistream demo``: a pipeline that joins sales with products, or the join alone."""

from __future__ import annotations

from pathlib import Path

import typer

from semistream.cli._demo_engine import run_demo, show_engine

app = typer.Typer(add_completion=False)

__all__ = ["app", "run_demo"]


@app.command()
def demo(
    engine: bool = typer.Option(False, "--engine", help="Run only the join, without Spark."),
    rows: int = typer.Option(5_000_000, min=1, help="Number of products in the master table."),
    tuples: int = typer.Option(2_000_000, min=1, help="Number of sales in the stream."),
    memory: str | None = typer.Option(
        None, help="Memory budget of the join. Default: 128MB; 50MB with --engine."
    ),
    join: str = typer.Option("auto", help="Name of the join; auto selects one for the table."),
    exponent: float = typer.Option(1.0, min=0.0, help="Zipf exponent of the sales; 0 is uniform."),
    output: str = typer.Option("delta", help="Warehouse format: delta or parquet."),
    folder: Path | None = typer.Option(
        None, help="Folder of all files. Default: ~/.cache/semistream/demo, replaced by every demo."
    ),
    burst: bool = typer.Option(
        False, "--burst", help="Run only the join, overload it, and show how it recovers."
    ),
) -> None:
    """Join sales with products in a pipeline, beside Spark's own join, and query the warehouse."""
    if burst:
        from semistream.cli._demo_burst import show_burst

        show_burst(rows, memory or "50MB", "chybridjoin" if join == "auto" else join, exponent)
        return
    if engine:
        show_engine(rows, tuples, memory or "50MB", join, exponent)
        return
    from semistream.cli._demo_story import show_pipeline

    show_pipeline(rows, tuples, memory or "128MB", join, exponent, output, folder)
