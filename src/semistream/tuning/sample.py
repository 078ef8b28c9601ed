"""What a sample of the stream shows: how its keys are distributed, and where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.cost import Keys, Traffic, from_sample, uniform
from semistream.cost.loads import partition_loads
from semistream.engine.binding import Binding, On, Select
from semistream.engine.rows.layout import RowWidths
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.errors import ConfigError
from semistream.master.pages import PageSource
from semistream.tuning.predicted import FEW

_LOOKED_UP = 400  # tuples of the sample that are looked up, to find the share of absent keys
_SEED = 7


@dataclass(frozen=True, eq=False)
class Observed:
    """The shapes of table and stream, and the traffic."""

    table: TableShape
    stream: StreamShape
    traffic: Traffic
    notes: tuple[str, ...] = ()


def observe(
    master: PageSource,
    sample: Any,
    on: On,
    *,
    how: str = "inner",
    select: Select | None = None,
    direct: bool = False,
    push: int = 50_000,
    drained: bool = False,
    lookups: bool = True,
) -> Observed:
    """Derive what the models need from a sample; reads at most a few hundred pages.

    ``lookups=False`` reads none: all keys count as present.
    """
    batch = one_batch(sample)
    binding = Binding(master, on, select, how)
    binding.bind(batch.schema)
    if not batch.num_rows:
        raise ConfigError("sample: it has no rows; give some thousand tuples of the stream")
    stream = StreamShape.of(batch, TupleLayout(binding, batch.schema))
    stream = stream.with_widest(RowWidths(batch.schema.types).longest(batch, 0))
    table = TableShape.of(master, binding, direct)
    codes, valid = binding.stream_codes(batch)
    known = codes if valid is None else codes[valid]
    notes = []
    if batch.num_rows < FEW:
        notes.append(
            f"the sample has only {batch.num_rows:,} tuples, which say little about the skew; "
            f"give at least {FEW:,}"
        )
    present = 1.0
    if lookups and len(known) and hasattr(master, "lookup"):
        present = _present(master, batch, binding, valid)
        if not present:
            raise ConfigError(
                f"sample: none of its keys is in the master table (looked up: "
                f"{min(_LOOKED_UP, batch.num_rows)}); check on={on!r} and the sample"
            )
    absent = 1.0 - present * len(known) / batch.num_rows
    if not len(known):
        raise ConfigError(f"sample: all its keys are null; check on={on!r}")
    keys, clustered = _distribution(known, table, master, present)
    return Observed(
        table, stream, Traffic(keys, clustered, absent, max(1, push), drained), tuple(notes)
    )


def one_batch(sample: Any) -> pa.RecordBatch:
    """The sample as one record batch."""
    if isinstance(sample, pa.RecordBatch):
        return sample
    if isinstance(sample, (list, tuple)) and sample and isinstance(sample[0], pa.RecordBatch):
        sample = pa.Table.from_batches(list(sample))
    if isinstance(sample, pa.Table):
        batches = sample.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=sample.schema)
    raise ConfigError(
        f"sample={type(sample).__name__}: give a pyarrow.RecordBatch or Table of stream tuples"
    )


def _present(master: Any, batch: pa.RecordBatch, binding: Binding, valid: Any) -> float:
    """The share of tuples, among those with a key, whose key has a row."""
    rows = np.arange(batch.num_rows) if valid is None else np.flatnonzero(valid)
    chosen = np.random.default_rng(_SEED).choice(rows, min(_LOOKED_UP, len(rows)), replace=False)
    some = batch.take(pa.array(np.sort(chosen)))
    codes, _ = binding.stream_codes(some)
    wanted, counts = np.unique(codes, return_counts=True)
    columns = {
        name: binding_column(some, stream, master.schema.field(name).type)
        for stream, name in zip(binding.stream_key, binding.master_key, strict=True)
    }
    found = master.lookup(pa.table(columns), columns=list(binding.master_key))
    have, _ = binding.codec.codes([found.column(n).combine_chunks() for n in binding.master_key])
    return float(counts[np.isin(wanted, have)].sum() / counts.sum())


def binding_column(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """The stream's key column in the master's type."""
    return batch.column(name).cast(kind, safe=False)


def _distribution(
    codes: Any, table: TableShape, master: PageSource, present: float
) -> tuple[Keys, bool]:
    distinct, counts = np.unique(codes, return_counts=True)
    domain = max(1, table.num_rows)
    if len(distinct) > domain:  # most are absent
        return uniform(domain), False
    keys = from_sample(counts * present, domain) if present < 1 else from_sample(counts, domain)
    index = master.index
    if index is None or not index.by_code or not table.num_pages:
        return keys, False
    low, _ = index.locate_codes(distinct)
    pages = len(np.unique(low))
    apart = partition_loads(keys, table.num_pages, False).visited(float(len(codes)))
    close = partition_loads(keys, table.num_pages, True).visited(float(len(codes)))
    return keys, abs(np.log(pages / max(close, 1))) < abs(np.log(pages / max(apart, 1))) - 0.05
