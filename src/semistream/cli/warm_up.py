"""``semistream warm-up``: compile all kernels, for example when an image is built."""

from __future__ import annotations

from collections.abc import Callable

import typer

from semistream.warmup.compile_all import WarmUp, warm_up

app = typer.Typer(add_completion=False)

__all__ = ["app", "warm_up"]


@app.command()
def command(
    quiet: bool = typer.Option(False, "--quiet", help="Show no progress bar."),
) -> None:
    """Compile all kernels and cache them, so that no join has to.

    Run it when an image is built, with the user or the NUMBA_CACHE_DIR of the image. The cache is
    read even if it is not writable later. Takes about a minute the first time.
    """
    result = warm_up() if quiet else _with_progress(warm_up)
    typer.echo(
        f"{result.compiled} kernels compiled, {result.signatures} in the cache, "
        f"{result.seconds:.1f} s"
    )


def _with_progress(work: Callable[..., WarmUp]) -> WarmUp:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("compiling"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("compiling", total=None)
        return work(lambda done, total: bar.update(task, completed=done, total=total))
