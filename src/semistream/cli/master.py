"""``semistream master build | sync | info | head | get | verify``: build and inspect a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from semistream.durations import format_duration
from semistream.errors import ConfigError, SemistreamError
from semistream.memory import PAGE_BYTES, format_size

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(help="Build, inspect and verify master tables.", no_args_is_help=True)
_out = Console()
Result = TypeVar("Result")


@dataclass(frozen=True)
class SegmentLine:
    """A segment in the output of ``info``."""

    name: str
    kind: str
    rows: int
    pages: int
    nbytes: int


@dataclass(frozen=True)
class Info:
    """The description of one version of a table."""

    path: str
    version: int
    versions: tuple[int, ...]
    created: str
    key: tuple[str, ...]
    unique: bool
    rows: int
    rows_without_key: int
    pages: int
    nbytes: int
    row_bytes: float
    max_page_bytes: int
    columns: tuple[tuple[str, str], ...]
    segments: tuple[SegmentLine, ...]
    deltas: int
    delta_share: float  # changed rows per row of the base
    source: str | None = None  # what it follows
    age: float | None = None  # seconds since it was in step with the source


@dataclass(frozen=True)
class Verdict:
    """The result of ``verify``; ``problems`` is empty if the table is intact."""

    path: str
    version: int
    pages: int
    problems: tuple[str, ...]


def build_table(
    source: Sequence[Path],
    path: Path,
    key: Sequence[str],
    unique: bool = False,
    page_bytes: str = PAGE_BYTES,
    memory: str = "512MB",
    overwrite: bool = False,
    progress: bool = False,
    history: str | None = None,
    valid_to: str | None = None,
) -> Info:
    """Build a table from Parquet files or folders, and describe it."""
    from semistream.master import MasterTable

    MasterTable.build(
        list(source),
        path,
        key=list(key),
        unique=unique,
        page_bytes=page_bytes,
        memory=memory,
        overwrite=overwrite,
        progress=progress,
        history=history,
        valid_to=valid_to,
    )
    return describe(path)


def describe(path: Path, version: int | None = None) -> Info:
    """Describe a table; reads manifests and page indexes, but no pages."""
    from semistream.master import MasterTable
    from semistream.master.manifest import list_versions

    table = MasterTable.open(path, version)
    return Info(
        path=str(path),
        version=table.version,
        versions=tuple(list_versions(table.store)),
        created=table.created,
        key=table.key,
        unique=table.unique,
        rows=table.num_rows,
        rows_without_key=table.rows_without_key,
        pages=table.num_pages,
        nbytes=table.nbytes,
        row_bytes=table.row_bytes,
        max_page_bytes=table.max_page_bytes,
        columns=tuple((field.name, str(field.type)) for field in table.schema),
        segments=tuple(
            SegmentLine(s.name, s.kind, s.rows, s.pages, s.bytes) for s in table.manifest.segments
        ),
        deltas=len(table.manifest.deltas),
        delta_share=table.manifest.delta_share,
        source=None if table.synced is None else table.synced.source,
        age=table.age,
    )


def check(path: Path, version: int | None = None) -> Verdict:
    """Read and verify every page of one version."""
    from semistream.master.manifest import read_manifest
    from semistream.master.store import LocalStore
    from semistream.master.verify import verify

    manifest = read_manifest(LocalStore(path), version)
    problems = verify(path, manifest.version)
    pages = sum(segment.pages for segment in manifest.segments)
    return Verdict(str(path), manifest.version, pages, tuple(map(str, problems)))


def first_rows(
    path: Path, rows: int, columns: Sequence[str] | None = None, version: int | None = None
) -> pa.Table:
    """The first rows in the order of their codes, which is key order for most types."""
    from semistream.master import MasterTable

    return MasterTable.open(path, version).read(columns, rows)


def rows_of_keys(
    path: Path,
    keys: Sequence[str],
    columns: Sequence[str] | None = None,
    version: int | None = None,
) -> pa.Table:
    """The rows of keys that are written as text; the parts of a composite key by commas."""
    import pyarrow as pa

    from semistream.master import MasterTable

    table = MasterTable.open(path, version)
    kinds = [table.schema.field(name).type for name in table.key]
    parts = [key.split(",", len(kinds) - 1) for key in keys]
    for key, values in zip(keys, parts, strict=True):
        if len(values) != len(kinds):
            raise ConfigError(
                f"{key!r}: the key has the columns {', '.join(table.key)}; "
                "separate their values by commas"
            )
    try:
        typed = {
            name: pa.array([values[i] for values in parts], pa.string()).cast(kind)
            for i, (name, kind) in enumerate(zip(table.key, kinds, strict=True))
        }
    except pa.ArrowInvalid as error:
        kinds_of = ", ".join(f"{n}: {k}" for n, k in zip(table.key, kinds, strict=True))
        raise ConfigError(f"cannot read the key ({kinds_of}): {error}") from error
    return table.lookup(pa.table(typed), columns)


@app.command("build")
def build_command(
    source: list[Path] = typer.Argument(..., help="Parquet files or folders."),
    path: Path = typer.Argument(..., help="Folder to write the table to."),
    key: list[str] = typer.Option(
        ..., "--key", "-k", help="Key column; repeat it for a composite key."
    ),
    unique: bool = typer.Option(False, "--unique", help="Fail on duplicate keys."),
    page_bytes: str = typer.Option(PAGE_BYTES, help="Size of a page."),
    memory: str = typer.Option("512MB", help="Memory for sorting; larger data spills to disk."),
    overwrite: bool = typer.Option(
        False, "--overwrite", help="Publish a new version of an existing table."
    ),
    history: str | None = typer.Option(
        None, help="Column from whose time on a row is valid, for as-of joins."
    ),
    valid_to: str | None = typer.Option(
        None, help="Column with the end of a row's validity; default: the next row's begin."
    ),
) -> None:
    """Sort Parquet data by its key and write it as a master table."""
    info = _or_exit(
        lambda: build_table(
            source, path, key, unique, page_bytes, memory, overwrite, True, history, valid_to
        )
    )
    _show(info)


@app.command("sync")
def sync_command(
    path: Path = typer.Argument(..., help="Folder of the table."),
    source: str | None = typer.Argument(
        None, help="Parquet files, a Delta table, a database URL, or kafka://host:9092."
    ),
    table: str | None = typer.Option(None, help="Table of a database, also schema.table."),
    version_column: str | None = typer.Option(
        None, help="Column that grows with every change; without it, all rows are compared."
    ),
    overlap: str | None = typer.Option(
        None, help="Read rows again that are this much older: a number, or 10s for timestamps."
    ),
    find_deletes: str = typer.Option("always", help="always, never, or at most every 1h."),
    topic: str | None = typer.Option(None, help="Topic of changes."),
    value: str = typer.Option("json", help="Values of messages: json or arrow."),
    key: list[str] | None = typer.Option(
        None, "--key", "-k", help="Key column(s), to build the table if it does not exist."
    ),
    full: bool = typer.Option(False, "--full", help="Compare all rows; follow another source."),
    every: str | None = typer.Option(
        None, help="Sync at this interval, such as 30s, until Ctrl-C."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would change."),
    memory: str = typer.Option("512MB", help="Memory for sorting changes."),
) -> None:
    """Bring a table in step with its source of truth, reading only what changed."""
    from semistream.cli import _master_sync as command

    options = command.SyncOptions(
        source, table, version_column, overlap, find_deletes, topic, value
    )
    opened = _or_exit(lambda: command.source_of(options))
    code = command.run(
        lambda: command.sync_once(path, opened, key or (), full, dry_run, memory, True),
        every,
    )
    if code:
        raise typer.Exit(code)


@app.command("info")
def info_command(
    path: Path = typer.Argument(..., help="Folder of the table."),
    version: int | None = typer.Option(None, help="Version number. Default: the newest."),
) -> None:
    """Show rows, pages, versions, key, schema and segments of a master table."""
    _show(_or_exit(lambda: describe(path, version)))


_COLUMNS = typer.Option(None, "--column", "-c", help="Column to show; repeat it for several.")
_JSON = typer.Option(False, "--json", help="Print one JSON object per row.")


@app.command("head")
def head_command(
    path: Path = typer.Argument(..., help="Folder of the table."),
    rows: int = typer.Option(10, "--rows", "-n", help="Number of rows."),
    column: list[str] | None = _COLUMNS,
    as_json: bool = _JSON,
    version: int | None = typer.Option(None, help="Version number. Default: the newest."),
) -> None:
    """Show the first rows of a master table."""
    _show_rows(_or_exit(lambda: first_rows(path, rows, column or None, version)), as_json)


@app.command("get")
def get_command(
    path: Path = typer.Argument(..., help="Folder of the table."),
    keys: list[str] = typer.Argument(..., help="Keys; separate the parts of one by commas."),
    column: list[str] | None = _COLUMNS,
    as_json: bool = _JSON,
    version: int | None = typer.Option(None, help="Version number. Default: the newest."),
) -> None:
    """Show the rows of some keys. Exits with code 1 if none of them is in the table.

    Put -- in front of negative numbers: semistream master get products -- -5
    """
    found = _or_exit(lambda: rows_of_keys(path, keys, column or None, version))
    _show_rows(found, as_json)
    if not found.num_rows:
        raise typer.Exit(1)


@app.command("verify")
def verify_command(
    path: Path = typer.Argument(..., help="Folder of the table."),
    version: int | None = typer.Option(None, help="Version number. Default: the newest."),
) -> None:
    """Read every page and report damaged, truncated, missing or unsorted data."""
    verdict = _or_exit(lambda: check(path, version))
    for problem in verdict.problems:
        _out.print(problem, style="red", markup=False, highlight=False, soft_wrap=True)
    if verdict.problems:
        raise typer.Exit(1)
    _out.print(f"version {verdict.version} of {verdict.path}: {verdict.pages} pages, no problems")


def _or_exit(logic: Callable[[], Result]) -> Result:
    """Return the result; a user error prints one line and exits with code 2."""
    try:
        return logic()
    except SemistreamError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from error


def _show_rows(rows: pa.Table, as_json: bool) -> None:
    if as_json:
        for row in rows.to_pylist():
            print(json.dumps(row, default=str, ensure_ascii=False))
        return
    shown = Table(box=None, pad_edge=False)
    for field in rows.schema:
        shown.add_column(field.name, overflow="fold")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        shown.add_row(*("null" if value is None else escape(str(value)) for value in row))
    _out.print(shown if rows.num_rows else "no rows")


def _deltas(info: Info) -> str:
    if not info.deltas:
        return "none"
    return f"{info.deltas}, with {info.delta_share:.1%} of the base's rows; compact() merges them"


def _followed(info: Info) -> str:
    if info.source is None or info.age is None:
        return "none"
    return f"{info.source}, in step {format_duration(info.age)} ago"


def _show(info: Info) -> None:
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    others = [str(version) for version in info.versions if version != info.version]
    rows = (
        ("table", info.path),
        ("version", f"{info.version}, created {info.created}"),
        ("other versions", ", ".join(others) or "none"),
        ("key", ", ".join(info.key) + (" (unique)" if info.unique else "")),
        ("rows", f"{info.rows:,}, {info.row_bytes:.0f} bytes per row"),
        ("rows without key", f"{info.rows_without_key:,} (not stored: null keys never match)"),
        ("pages", f"{info.pages:,}, up to {format_size(info.max_page_bytes)}"),
        ("bytes", format_size(info.nbytes)),
        ("deltas", _deltas(info)),
        ("source", escape(_followed(info))),
        ("columns", "\n".join(f"{name}: {kind}" for name, kind in info.columns)),
    )
    for row in rows:
        facts.add_row(*row)
    segments = Table(box=None, pad_edge=False)
    segments.add_column("segment")
    segments.add_column("kind")
    for heading in ("rows", "pages", "bytes"):
        segments.add_column(heading, justify="right")
    for line in info.segments:
        segments.add_row(
            line.name, line.kind, f"{line.rows:,}", f"{line.pages:,}", format_size(line.nbytes)
        )
    _out.print(facts)
    _out.print()
    _out.print(segments)
