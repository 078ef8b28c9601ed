"""Format the plan of a pipeline, for ``--dry-run``. Values from the environment are redacted."""

from __future__ import annotations

from typing import Any

from semistream.memory import format_size
from semistream.pipeline.document import Document
from semistream.pipeline.following import source_of
from semistream.pipeline.grants import grants
from semistream.pipeline.model import Pipeline


def transfers(pipeline: Pipeline) -> int:
    """Count how often rows are transferred from Spark to Python: once if the sink also joins."""
    joins = bool(pipeline.lookups) + sum(step.table is not None for step in pipeline.steps)
    if pipeline.sink.output == "spark":
        return joins
    if pipeline.waits:
        joins += not pipeline.lookups  # rows are deferred in the same transfer
        return joins + 1 if pipeline.steps else 1
    return joins + 1 if pipeline.steps or pipeline.dead_letter else 1


def describe(pipeline: Pipeline, document: Document, masters: list[Any]) -> str:
    """Return the plan, one line per stage."""
    source, sink = pipeline.source, pipeline.sink
    place = source.path or source.topic or ""
    lines = [f"pipeline {pipeline.name}", f"  source      {source.format} {place}".rstrip()]
    # Not strict: the tables of the steps follow.
    for lookup, master in zip(pipeline.lookups, masters, strict=False):
        on = (
            lookup.on if isinstance(lookup.on, list) else [f"{s}={m}" for s, m in lookup.on.items()]
        )
        what = (
            lookup.master or f"{'.'.join(lookup.sql.table)} (sql)" if lookup.sql else lookup.master
        )
        lines.append(
            f"  look-up     {what}: {master.num_rows:,} rows, {format_size(master.nbytes)}, "
            f"version {master.version}; {lookup.how} on {', '.join(on)}"
        )
        if lookup.mapped is not None:
            lines.append("  mapped      its pages stay mapped, beyond the memory below")
        if lookup.sync is not None:
            lines.append(f"  sync        {source_of(lookup.sync).name}, every {lookup.sync.every}")
        if lookup.max_age is not None:
            lines.append(f"  max. age    {lookup.max_age}, then {lookup.too_old}")
    for step in pipeline.steps:
        lines.append(f"  step        {step.kind}: {_shown(getattr(step, step.kind))}")
    target = sink.path or ".".join(p for p in (sink.db_schema, sink.table) if p) or sink.format
    lines.append(f"  sink        {sink.output} {target}")
    if pipeline.dead_letter is not None:
        lines.append(f"  unmatched   {pipeline.dead_letter.output} {pipeline.dead_letter.path}")
    if pipeline.batch_time is not None:
        topic = pipeline.deferred_topic
        place = "" if topic is None else f" to the topic {topic.topic}"
        lines.append(f"  batch time  {pipeline.batch_time}, then rows are deferred{place}")
    if pipeline.parking is not None:
        limits = [
            f"{name} {value}"
            for name in ("max_age", "max_rows")
            if (value := getattr(pipeline.parking, name)) is not None
        ]
        lines.append(f"  parking     {', '.join([pipeline.parking.path, *limits])}")
    lines += [
        f"  checkpoint  {pipeline.checkpoint}",
        f"  trigger     {pipeline.trigger}",
        f"  memory      {_memory(pipeline, masters)}",
        f"  transfers   {transfers(pipeline)} from Spark to Python",
    ]
    return document.redact("\n".join(lines))


def _memory(pipeline: Pipeline, masters: list[Any]) -> str:
    """Format the budget and its shares."""
    granted = grants(pipeline, masters)
    parts = [f"look-ups {format_size(granted.lookups)}"] if pipeline.lookups else []
    parts += [
        f"{pipeline.steps[number].kind} {format_size(nbytes)}"
        for number, nbytes in granted.steps.items()
    ]
    whole = f"{format_size(int(pipeline.memory))} per executor"
    if pipeline.rate is not None:
        whole += f" (estimated for {pipeline.rate:,.0f} tuples/s)"
    if not parts:
        return f"{whole}, unused: the pipeline has no joins"
    return f"{whole}, using {pipeline.using}" + (f": {', '.join(parts)}" if len(parts) > 1 else "")


def _shown(value: Any) -> str:
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True)
    if isinstance(value, dict):
        return ", ".join(f"{name} = {part}" for name, part in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
