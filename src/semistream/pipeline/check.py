"""Check tables, columns, targets and the checkpoint before Spark starts."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semistream.engine.binding import Binding
from semistream.engine.conditions import from_description
from semistream.errors import ConfigError, SemistreamError
from semistream.master.files import Files
from semistream.pipeline.document import Document, Path_
from semistream.pipeline.following import check_source
from semistream.pipeline.model import Lookup, Pipeline
from semistream.sinks import open_sink
from semistream.sinks.disk import make_folders, writing
from semistream.sinks.files import check_writable

CLAIM = "semistream.json"
FORMAT = 1


def open_master(lookup: Lookup) -> Any:
    """Open the master table of a look-up."""
    if lookup.sql is not None:
        from semistream.master.sql import SqlMaster

        sql = lookup.sql
        return SqlMaster(
            sql.url,
            sql.table,
            sql.key,
            columns=sql.columns,
            unique=sql.unique,
            page_bytes=sql.page_bytes,
        )
    assert lookup.master is not None
    return _open_table(lookup.master, lookup.mapped or False)


def _open_table(path: str, mapped: bool | str = False) -> Any:
    from semistream.master import MasterTable

    return MasterTable.open(path, mapped=mapped)


def sink_of(pipeline: Pipeline) -> Any:
    """Return the semistream sink of a pipeline."""
    sink = pipeline.sink
    place: dict[str, Any] = {"path": sink.path, "compression": sink.compression}
    place["durable"] = sink.durable
    if sink.output == "postgresql":
        place = {"uri": sink.url, "table": sink.table, "schema": sink.db_schema}
        place["patience"] = sink.patience
    return open_sink(sink.output, **{n: v for n, v in place.items() if v is not None})


def check(pipeline: Pipeline, document: Document) -> list[Any]:
    """Open every master table; check sink and checkpoint.

    Returns the tables of the look-ups, followed by those of the steps that join.
    """
    masters = []
    for number, lookup in enumerate(pipeline.lookups):
        where: Path_ = ("lookups", number, "sql" if lookup.sql else "master")
        _with_location(document, where, lambda lookup=lookup: _routes_agree(pipeline, lookup))  # type: ignore[misc]
        master = _with_location(document, where, lambda lookup=lookup: open_master(lookup))  # type: ignore[misc]
        _with_location(
            document,
            ("lookups", number, "on"),
            lambda lookup=lookup, master=master: Binding(master, lookup.on, None, lookup.how),  # type: ignore[misc]
        )
        _with_location(
            document,
            ("lookups", number, "select"),
            lambda lookup=lookup, master=master: Binding(  # type: ignore[misc]
                master, lookup.on, lookup.select, lookup.how
            ),
        )
        for field in ("where", "as_of"):
            value = getattr(lookup, field)
            if field == "where":
                value = from_description(value) or None
            _with_location(
                document,
                ("lookups", number, field),
                lambda lookup=lookup, master=master, chosen={field: value}: Binding(  # type: ignore[misc]
                    master, lookup.on, lookup.select, lookup.how, **chosen
                ),
            )
        if lookup.sync is not None:
            kind = next(n for n in ("parquet", "delta", "sql", "kafka") if getattr(lookup.sync, n))
            _with_location(
                document,
                ("lookups", number, "sync", kind),
                lambda lookup=lookup, master=master: check_source(lookup.sync, master),  # type: ignore[misc]
            )
        masters.append(master)
    for number, step in enumerate(pipeline.steps):
        if step.table is not None:
            field, path = step.table
            where = ("steps", number, step.kind, field)
            masters.append(_with_location(document, where, lambda path=path: _open_table(path)))  # type: ignore[misc]
    if pipeline.sink.output != "spark":
        place = "url" if pipeline.sink.url else "path"
        _with_location(document, ("sink", place), lambda: sink_of(pipeline).check())
    dead = pipeline.dead_letter
    if dead is not None:
        _with_location(
            document,
            ("dead_letter", "path"),
            lambda: _dead_letters(pipeline).check(),
        )
    for where, folder in (
        (("parking", "path"), pipeline.parking and pipeline.parking.path),
        (("backlog",), pipeline.backlog),
    ):
        if folder is not None:
            _with_location(document, where, lambda folder=folder: check_writable(Path(folder)))  # type: ignore[misc]
    _with_location(document, ("checkpoint",), lambda: claim_checkpoint(pipeline, write=False))
    return masters


def _routes_agree(pipeline: Pipeline, lookup: Lookup) -> None:
    """Refuse a table without versions: sink and dead letters commit separately, so a replay must
    route every row to the same target."""
    if pipeline.dead_letter is not None and lookup.sql is not None:
        raise ConfigError(
            f"table {'.'.join(lookup.sql.table)!r} has no versions, so a batch replayed after a "
            "crash could match other rows, and a row could be lost or duplicated between sink and "
            "dead_letter; import it into a master table (MasterTable.build(SqlMaster(...).batches()"
            ", path, key=...)) and use that as master, or use how: left without dead_letter"
        )


def _dead_letters(pipeline: Pipeline) -> Any:
    assert pipeline.dead_letter is not None
    dead = open_sink(pipeline.dead_letter.output, path=pipeline.dead_letter.path)
    if dead.target == sink_of(pipeline).target:
        raise ConfigError(
            "the sink writes to this folder, so its readers would read dead letters as rows; "
            "use another folder"
        )
    return dead


def _with_location(document: Document, path: Path_, action: Callable[[], Any]) -> Any:
    try:
        return action()
    except SemistreamError as error:
        shown = document.shown(document.texts.get(path))
        message = f"{shown!r}: {error}" if shown is not None else str(error)
        # "from None", because the text of the cause is not redacted.
        raise type(error)(document.error(path, message)) from None


def claim_checkpoint(pipeline: Pipeline, write: bool = True) -> None:
    """Raise if another pipeline wrote the checkpoint; otherwise claim it for this one.

    Spark would continue from the other pipeline's offsets and silently skip rows.
    """
    folder = Path(pipeline.checkpoint)
    source, sink = pipeline.source, pipeline.sink
    ours = {
        "format": FORMAT,
        "name": pipeline.name,
        "source": [source.format, _absolute(source.path), source.topic],
        "sink": [sink.output, _absolute(sink.path), sink.db_schema, sink.table],
    }
    if folder.exists() and not folder.is_dir():
        raise ConfigError("this is a file; a checkpoint must be a folder")
    claim = folder / CLAIM
    if claim.exists():
        try:
            theirs = json.loads(claim.read_text())
        except ValueError as error:
            raise ConfigError(f"{claim} is damaged: {error}") from error
        version = theirs.get("format") if isinstance(theirs, dict) else None
        if version != FORMAT:
            raise ConfigError(
                f"{claim} has format version {version!r}, this release reads {FORMAT}; use the "
                "release of semistream that wrote it, or a newer one"
            )
        for field, value in ours.items():
            if theirs.get(field) != value:
                raise ConfigError(
                    f"this checkpoint belongs to another pipeline: its {field} is "
                    f"{theirs.get(field)!r}, but here it is {value!r}; use another folder, or "
                    "delete this one to start from the beginning"
                )
    elif (folder / "metadata").exists():
        raise ConfigError(
            "this checkpoint belongs to a query that is not a pipeline; use another folder"
        )
    if write and not claim.exists():
        _publish(claim, json.dumps(ours).encode())


def _publish(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    disk = Files()
    with writing(path):
        make_folders(disk, path.parent)
        draft = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        with disk.create(draft) as file:
            file.write(content)
            disk.sync(file)
        disk.rename(draft, path)
        disk.sync_folder(path.parent)


def _absolute(path: str | None) -> str | None:
    return path if path is None or "://" in path else os.path.abspath(path)
