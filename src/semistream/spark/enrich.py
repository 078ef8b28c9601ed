"""``ss.enrich``: adds columns of master tables to a DataFrame."""

from __future__ import annotations

import dataclasses
import os
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from semistream.engine.age_limit import AgeLimit
from semistream.engine.binding import Binding, On, Select, key_pairs
from semistream.engine.conditions import Where, conditions_of, has_functions
from semistream.engine.ordered_run import ORDERS
from semistream.errors import ConfigError
from semistream.joins import Join, open_source
from semistream.master import MasterTable
from semistream.master.mapped_reader import RESIDENT
from semistream.master.pages import PageSource
from semistream.memory import parse_size
from semistream.spark.batch_version import hold_version, in_foreach_batch
from semistream.spark.metrics import task_metrics
from semistream.spark.schema import check_key_collations, output_schemas, stream_schema
from semistream.spark.worker import BoundLookup, Enrichment
from semistream.spark.worker_python import check_worker_python
from semistream.tuning.auto import choose, join
from semistream.warmup.background import warm_up_in_background

MEMORY = "256MB"
Master = PageSource | str | os.PathLike[str]


@dataclass(frozen=True)
class Lookup:
    """One master table of a star join; the fields are the parameters of :func:`enrich`."""

    master: Master
    on: On
    how: str = "inner"
    select: Select | None = None
    where: Where | None = None
    as_of: str | None = None
    max_age: float | str | None = None
    too_old: str = "warn"


def enrich(
    df: DataFrame,
    master: Master | Sequence[Lookup],
    on: On | None = None,
    how: str | None = None,
    select: Select | None = None,
    memory: int | str | None = None,
    using: str | Join = "auto",
    rate: float | None = None,
    where: Where | None = None,
    as_of: str | None = None,
    max_age: float | str | None = None,
    too_old: str = "warn",
    order: str | None = None,
) -> DataFrame:
    """Join a DataFrame, batch or streaming, with a master table that need not fit into memory.

    Lazy, like every transformation: only schemas are read. Also works as
    ``orders.transform(ss.enrich, master, on="product_id")``.

    A micro-batch of a streaming query reads one version of the master table: the newest when it
    first started. A replay reads the same version. A batch query reads the version that was the
    newest when ``enrich`` was called. A master table opened at an explicit version stays at it.
    The driver protects these versions from vacuum until it exits: for each table the two newest
    that batch queries use, and all that were opened explicitly.

    Parameters
    ----------
    df
        The stream: any DataFrame.
    master
        A master table or its path; or a list of :class:`Lookup`, whose tables are joined in
        order with one transfer of the rows to Python. Workers leave the pages of a table that was
        opened with ``mapped="resident"`` mapped, beyond ``memory``.
    on
        The key: a column name, a list of names, or ``{"stream column": "master column"}``.
    how
        ``inner`` (default), ``left``, ``left_semi`` or ``left_anti``.
    select
        The master's columns to add, or a mapping to their new names. Default: all columns.
    memory
        The budget per executor, shared by its Python workers. Default: 256 MB. ``"auto"``: an
        estimate of the least that serves ``rate``.
    using
        ``"auto"``, the name of a join, or a join.
    rate
        With ``memory="auto"``: tuples per second that each executor must serve.
    where
        A condition that pairs with equal keys must also pass, or a list of them: ``ss.Between``,
        ``ss.Compare``, ``ss.Predicate``.
    as_of
        The stream's time column, for a table with history: a row meets the master's row that was
        valid at its time.
    max_age
        Of the data, such as ``"10m"``: the time since the table was last in step with its source.
    too_old
        Where it is older: ``"warn"`` in the worker's log (default), or ``"raise"``, which fails the
        task.
    order
        ``"stream"``: the rows of each partition stay in the order that they have in it. Partitions
        have no order among each other, and a shuffle after the join keeps none.
    """
    check_worker_python(df.sparkSession)
    warm_up_in_background()
    if order is not None and order not in ORDERS:
        raise ConfigError(f"order={order!r} is unknown; choose {' or '.join(ORDERS)}")
    lookups = _lookups(master, on, how, select, using, where, as_of, max_age, too_old)
    budget = _budget(memory, using, rate, lookups, task_slots(df.sparkSession))
    session = df.sparkSession
    incoming = stream_schema(df.schema, session)
    schema = incoming
    bound = []
    for lookup in lookups:
        source = open_source(lookup.master)
        binding = Binding(source, lookup.on, lookup.select, lookup.how, lookup.where, lookup.as_of)
        binding.bind(schema)
        if lookup.max_age is not None:  # wrong options are found here, not in a task
            AgeLimit(source, lookup.max_age, lookup.too_old, time.time)
        check_key_collations(df.schema, list(key_pairs(lookup.on)))
        assert binding.schema is not None
        schema = binding.schema
        chosen = choose(join_named(using), source, lookup.how, drained=True)
        bound.append(_held(bound_lookup(lookup, source, chosen, order), df))
    declared, arrow_schema = output_schemas(df.schema, incoming, schema)
    task = Enrichment(
        name=uuid.uuid4().hex,
        lookups=tuple(bound),
        memory=budget,
        slots=task_slots(session),
        schema=arrow_schema,
        metrics=task_metrics(session),
    )
    return df.mapInArrow(task, declared)


def _lookups(
    master: Any,
    on: On | None,
    how: str | None,
    select: Select | None,
    using: str | Join,
    where: Where | None = None,
    as_of: str | None = None,
    max_age: float | str | None = None,
    too_old: str = "warn",
) -> list[Lookup]:
    if isinstance(master, Lookup):
        master = [master]
    if isinstance(master, (list, tuple)):
        if any(value is not None for value in (on, how, select, where, as_of, max_age)):
            raise ConfigError(
                "on, how, select, where, as_of and max_age cannot be combined with a list of "
                "look-ups; set them in each ss.Lookup"
            )
        if not master or not all(isinstance(item, Lookup) for item in master):
            raise ConfigError(f"master={master!r}: give a master table, or a list of ss.Lookup")
        return list(master)
    if on is None:
        raise ConfigError("enrich needs on=: the column to join on, a list, or a mapping")
    if how is None:
        how = using.how if isinstance(using, Join) else "inner"
    return [Lookup(master, on, how, select, where, as_of, max_age, too_old)]


def _budget(
    memory: int | str | None,
    using: str | Join,
    rate: float | None,
    lookups: Sequence[Lookup],
    slots: int | None,
) -> int:
    if (rate is not None) != (memory == "auto"):
        raise ConfigError('memory="auto" and rate= (tuples per second) must be given together')
    if rate is not None:
        from semistream.tuning.for_rate import memory_for_rate

        name = using.name if isinstance(using, Join) else using
        masters = [open_source(lookup.master) for lookup in lookups]
        on = [lookup.on for lookup in lookups]
        return memory_for_rate(masters, rate, name, slots or os.cpu_count() or 1, on)[0]
    if memory is None:
        memory = using.memory if isinstance(using, Join) else MEMORY
    return parse_size(memory)


def join_named(using: str | Join) -> Join:
    """Resolve ``using``: a name, ``"auto"``, or a join, which is returned unchanged."""
    return using if isinstance(using, Join) else join(using)


def bound_lookup(
    lookup: Lookup, source: PageSource, chosen: Join, order: str | None = None
) -> BoundLookup:
    table = isinstance(source, MasterTable)
    return BoundLookup(
        join=chosen,
        on=lookup.on,
        select=lookup.select,
        path=os.path.abspath(source.path) if isinstance(source, MasterTable) else None,
        version=source.version,
        follow=table and not source.pinned,
        source=None if table else source,
        nbytes=source.nbytes,
        resident=source.mapped == RESIDENT,
        conditions=conditions_of(lookup.where),
        as_of=lookup.as_of,
        max_age=lookup.max_age,
        too_old=lookup.too_old,
        order=order,
        # Functions have no name that is the same in every worker: one per call of enrich.
        tag=uuid.uuid4().hex if has_functions(lookup.where) else "",
    )


def _held(lookup: BoundLookup, df: DataFrame) -> BoundLookup:
    """Protect the version from vacuum, unless every micro-batch pins its own."""
    if lookup.path is None:
        return lookup
    if lookup.follow and (df.isStreaming or in_foreach_batch(df.sparkSession)):
        return lookup
    hold = hold_version(lookup.path, lookup.version, explicit=not lookup.follow)
    return dataclasses.replace(lookup, hold=hold)


def task_slots(session: Any) -> int | None:
    """How many tasks an executor runs at once; None if the configuration does not define it."""

    def setting(name: str) -> str | None:
        try:
            value = session.conf.get(name, None)
        except Exception:  # Spark Connect raises for unknown settings
            return None
        return None if value is None else str(value)

    local = re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", setting("spark.master") or "")
    cluster = re.fullmatch(
        r"local-cluster\[\s*\d+\s*,\s*(\d+)\s*,.*\]", setting("spark.master") or ""
    )
    if local or cluster:
        cores = int((local or cluster)[1])  # type: ignore[index]
    elif setting("spark.executor.cores") is not None:
        cores = int(str(setting("spark.executor.cores")))
    else:
        return None
    per_task = float(setting("spark.task.cpus") or 1)
    return max(1, int(cores / per_task))
