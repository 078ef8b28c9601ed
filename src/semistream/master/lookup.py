"""Look keys up in a table, and read its first rows: to look into a table, without a join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.errors import ConfigError, SchemaError, unknown
from semistream.keys import Codes
from semistream.master.index import page_requests
from semistream.master.key_values import key_table

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


def lookup(table: MasterTable, keys: Any, columns: Sequence[str] | None) -> pa.Table:
    """See :meth:`MasterTable.lookup`. Reads each page that is needed once, in code order."""
    names = _chosen(table, columns)
    wanted = [column.combine_chunks() for column in key_table(table, keys).columns]
    positions = np.flatnonzero(_without_nulls(wanted))
    wanted = _take(wanted, positions)
    parts, order = [_empty(table, names)], [positions[:0]]
    for batch, rows, asking in matching_rows(table, wanted):
        parts.append(batch.select(names).take(pa.array(rows)))  # copies: the page is overwritten
        order.append(positions[asking])
    found_rows = pa.Table.from_batches(parts)
    return found_rows.take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def matching_rows(
    table: MasterTable, wanted: list[pa.Array]
) -> Iterator[tuple[pa.RecordBatch, Any, Any]]:
    """Pages that have rows of these keys, which are not null: (page, its rows, whose rows).

    A page is valid until the next one is read.
    """
    codes, _ = table.codec.codes(wanted)
    reader = table.reader()
    for page, asking in _by_page(table, codes):
        (batch,) = reader.read(page)
        rows, found = _matches(table, batch, codes[asking])
        asking = asking[found]
        if not table.codec.exact:  # equal hashes: compare the keys
            here = _take([batch.column(name) for name in table.key], rows)
            same = table.codec.same(_take(wanted, asking), here)
            rows, asking = rows[same], asking[same]
        yield batch, rows, asking


def read(table: MasterTable, columns: Sequence[str] | None, limit: int | None) -> pa.Table:
    """See :meth:`MasterTable.read`."""
    names = _chosen(table, columns)
    if limit is not None and limit < 0:
        raise ConfigError(f"limit={limit}: must be at least 0")
    left = table.num_rows if limit is None else limit
    parts = [_empty(table, names)]
    for batch in table.batches() if left else ():
        some = batch.select(names).slice(0, left)
        parts.append(pa.ipc.read_record_batch(some.serialize(), some.schema))
        left -= some.num_rows
        if left <= 0:
            break
    return pa.Table.from_batches(parts)


def _chosen(table: MasterTable, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return list(table.schema.names)
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: give a list of names")
    for name in columns:
        if name not in table.schema.names:
            raise SchemaError(unknown("column", name, table.schema.names))
    return list(columns)


def _empty(table: MasterTable, names: list[str]) -> pa.RecordBatch:
    schema = pa.schema([table.schema.field(name) for name in names])
    return pa.RecordBatch.from_pylist([], schema=schema)


def _without_nulls(columns: list[pa.Array]) -> Any:
    valid = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        valid &= column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _take(columns: Sequence[pa.Array], rows: Any) -> list[pa.Array]:
    taken = pa.array(rows)
    return [column.take(taken) for column in columns]


def _by_page(table: MasterTable, codes: Codes) -> Iterator[tuple[int, Any]]:
    """Every page that can hold one of these keys, with the numbers of those keys."""
    asking, pages = page_requests(*table.index.locate_codes(codes))
    if not len(asking):
        return
    order = np.argsort(pages, kind="stable")
    bounds = np.flatnonzero(np.diff(pages[order], prepend=-1))
    for numbers in np.split(order, bounds[1:]):
        yield int(pages[numbers[0]]), asking[numbers]


def _matches(table: MasterTable, batch: pa.RecordBatch, codes: Any) -> tuple[Any, Any]:
    """Pairs of page rows and codes that are equal, by the order of the codes and of the rows."""
    here = table.codes.stored(batch)
    first = np.searchsorted(here, codes, side="left")
    counts = np.searchsorted(here, codes, side="right") - first
    found = np.repeat(np.arange(len(codes)), counts)
    nth = np.arange(len(found)) - np.repeat(np.cumsum(counts) - counts, counts)
    return first[found] + nth, found
