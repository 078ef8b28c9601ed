"""``semistream run``: run a pipeline from a YAML file."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import typer

from semistream.errors import ConfigError, SemistreamError

app = typer.Typer(add_completion=False)

_JAVA_CLASS = re.compile(r"^: [\w.$]+: ")
# Where a query plan or a traceback begins.
_DETAILS = re.compile(r"\s+at |\s*[+:]- |'?\w+ \[|Traceback|==|JVM stacktrace")


def plan_of(file: Path) -> tuple[Any, Any, list[Any], str]:
    """Return the validated pipeline, its document, its master tables, and the plan as text."""
    try:
        from semistream.pipeline import check, describe, load, with_memory
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"pipelines need {error.name}: pip install 'semistream[spark,pipeline]'"
        ) from error
    pipeline, document = load(file)
    masters = check(pipeline, document)
    pipeline = with_memory(pipeline, masters)
    return pipeline, document, masters, describe(pipeline, document, masters)


def run_pipeline(
    file: Path,
    once: bool,
    metrics_file: Path | None = None,
    prometheus: int | None = None,
    show: Any = lambda figures: None,
    ui: bool = False,
    port: int | None = None,
    on_url: Any = lambda url: None,
) -> int:
    """Run until stopped or, with ``once``, until all input is processed. Returns the rows read.

    ``ui`` serves the live page while it runs; ``on_url`` receives its address.
    """
    pipeline, document, masters, _ = plan_of(file)
    try:
        from semistream.pipeline import Following
        from semistream.spark.dashboard import dashboard
        from semistream.spark.errors import original
        from semistream.spark.interrupts import deferred_interrupts
        from semistream.spark.listener import Metrics
        from semistream.spark.pipeline import drain_pipeline, start
        from semistream.spark.session import open_session
        from semistream.spark.start_workers import start_workers
        from semistream.spark.watch import watch
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"running a pipeline needs {error.name}: pip install 'semistream[spark,pipeline]'"
        ) from error
    session = None
    try:
        with deferred_interrupts():
            session = open_session(pipeline)
            start_workers(session)
        with contextlib.ExitStack() as open_until_end:
            following = open_until_end.enter_context(Following(pipeline, _reporter(document)))
            metrics = open_until_end.enter_context(
                Metrics(session, metrics_file, prometheus, document.redact)
            )
            if ui:
                page = open_until_end.enter_context(dashboard(session, port, metrics))
                on_url(page.url)
            with deferred_interrupts():
                query = start(session, pipeline, masters, once)
            rows = watch(query, metrics, show, following.check)
            if pipeline.waits and (once or pipeline.trigger == "once"):
                drain_pipeline(pipeline, masters, session)  # no later batch would serve them
            return rows
    except SemistreamError as error:
        raise type(error)(document.redact(str(error))) from None
    except Exception as error:
        found = original(str(error))
        if found is not None:
            raise type(found)(document.redact(str(found))) from None
        raise SemistreamError(said_by_spark(document.redact(str(error)))) from None
    finally:
        if session is not None:
            with deferred_interrupts():
                session.stop()


def _reporter(document: Any) -> Any:
    """Prints problems that do not stop the query, without secrets."""

    def report(text: str) -> None:
        print(f"\nwarning: {document.redact(text)}", file=sys.stderr, flush=True)

    return report


def said_by_spark(text: str) -> str:
    """Spark's message, without Java's traceback and the query plan.

    >>> print(said_by_spark("[NOT_FOUND] no column `prise`; line 1 pos 11;\\n'Project [a]\\n+- b"))
    [NOT_FOUND] no column `prise`; line 1 pos 11
    for Spark's own messages set spark.log.level: ERROR under spark
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        lines = [_JAVA_CLASS.sub("", lines[1])]
    said = list(itertools.takewhile(lambda line: not _DETAILS.match(line), lines))[:3]
    said = said or lines[:1]
    said[-1] = said[-1].rstrip("; ")
    return "\n".join([*said, "for Spark's own messages set spark.log.level: ERROR under spark"])


@app.command()
def run(
    file: Path = typer.Argument(..., help="Pipeline file (YAML)."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Validate, print the plan and exit."),
    once: bool = typer.Option(False, "--once", help="Process the available data, then stop."),
    metrics: Path | None = typer.Option(None, help="Append one JSON line per batch to this file."),
    prometheus: int | None = typer.Option(None, help="Serve metrics on 127.0.0.1:PORT."),
    ui: bool = typer.Option(False, "--ui", help="Serve a live page on 127.0.0.1 while it runs."),
    port: int | None = typer.Option(
        None,
        min=0,
        max=65535,
        help="Port of the live page. Default: 4141, or a free one if it is in use.",
    ),
) -> None:
    """Run the pipeline (source, look-ups, steps, sink) that a YAML file describes."""
    try:
        _, _, _, plan = plan_of(file)
        print(plan, flush=True)
        if dry_run:
            return
        rows = run_pipeline(
            file,
            once,
            metrics,
            prometheus,
            _line(sys.stdout),
            ui or port is not None,
            port,
            lambda url: print(f"live page: {url}", flush=True),
        )
    except SemistreamError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    print(f"\nstopped after {rows:,} rows" if sys.stdout.isatty() else f"done: {rows:,} rows")


def _line(stream: Any) -> Any:
    """On a terminal, update one line; otherwise, write one line per batch."""
    live = stream.isatty()

    def show(figures: Any) -> None:
        stream.write(f"\r\x1b[2K{figures}" if live else f"{figures}\n")
        stream.flush()

    return show
