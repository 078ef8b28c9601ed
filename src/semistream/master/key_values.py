"""Keys that a caller gives: plain values, an Arrow array, or a table with the key columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import SchemaError
from semistream.master.storage_types import to_storage

if TYPE_CHECKING:
    from semistream.master.table import MasterTable


def key_table(table: MasterTable, keys: Any) -> pa.Table:
    """Values, an Arrow array or a table with the key columns, as a table in the key's types."""
    schema = table.manifest.key_schema
    names = list(table.key)
    if isinstance(keys, (pa.Table, pa.RecordBatch)):
        absent = [name for name in names if name not in keys.schema.names]
        if absent:
            raise SchemaError(
                f"the keys lack the key column {absent[0]!r}; their columns are {keys.schema.names}"
            )
        rows = pa.table({name: keys.column(name) for name in names})
    elif isinstance(keys, (pa.Array, pa.ChunkedArray)):
        if len(names) != 1:
            raise SchemaError(
                f"the key has the columns {names}; give a table with them or a list of tuples"
            )
        rows = pa.table({names[0]: keys})
    else:
        rows = _from_values(list(keys), schema)
    batches = [to_storage(batch, schema) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, schema=schema)


def _from_values(values: list[Any], schema: pa.Schema) -> pa.Table:
    width = len(schema)
    if width == 1:
        columns: list[Any] = [values]
    elif all(isinstance(value, (tuple, list)) and len(value) == width for value in values):
        columns = [[value[i] for value in values] for i in range(width)]
    else:
        raise SchemaError(
            f"the key has the columns {schema.names}; give each key as a tuple of {width} values"
        )
    try:
        arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SchemaError(
            f"the keys are not of the key's type(s) "
            f"{[str(field.type) for field in schema]}: {error}"
        ) from error
    return pa.Table.from_arrays(arrays, schema=schema)
