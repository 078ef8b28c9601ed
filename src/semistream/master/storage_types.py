"""The Arrow types of columns on disk, and the cast of incoming batches to them.

Pages must be readable independently, so dictionaries (whose values are in another message) are
decoded. View types and run-end encoding become plain arrays, so that the size of a page follows
from its rows. All other types, nested or not, are stored unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from semistream.errors import SchemaError, existing
from semistream.keys import KeyCodec
from semistream.master.codes import check_no_code_column


def storage_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column of this type has on disk."""
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return storage_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([_storage_field(kind.field(i)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_storage_field(kind.key_field), _storage_field(kind.item_field))
    if types.is_fixed_size_list(kind):
        return pa.list_(_storage_field(kind.value_field), kind.list_size)
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(_storage_field(kind.value_field))
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(_storage_field(kind.value_field))
    return kind


def _storage_field(field: pa.Field) -> pa.Field:
    return field.with_type(storage_type(field.type))


def storage_fields(schema: pa.Schema) -> pa.Schema:
    """The schema on disk, or of a decoded page; raises for duplicate names."""
    _check_unique_names(schema.names, "the data")
    return pa.schema([_storage_field(field) for field in schema])


def storage_schema(schema: pa.Schema, key: Sequence[str]) -> pa.Schema:
    """The schema on disk; raises if no table can be built from it."""
    if not key:
        raise SchemaError("key=[] names no column; give the column(s) to join on")
    stored = storage_fields(schema)
    check_no_code_column(schema.names)
    _check_unique_names(list(key), "key")
    absent = [name for name in key if name not in schema.names]
    if absent:
        raise SchemaError(
            f"key column {absent[0]!r} is not in the data; {existing(absent[0], schema.names)}"
        )
    KeyCodec.for_types([stored.field(name).type for name in key], list(key))
    return stored


def _check_unique_names(names: list[str], what: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SchemaError(f"{what} has column {twice[0]!r} twice; rename or drop one")


def to_storage(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast a batch to the stored schema: columns by name, safe casts only."""
    if batch.schema.equals(schema):
        return batch
    names = batch.schema.names
    if sorted(names) != sorted(schema.names):
        missing = sorted(set(schema.names) - set(names))
        extra = sorted(set(names) - set(schema.names))
        raise SchemaError(
            f"the columns do not match the table: missing {missing}, not in the table {extra}; "
            f"give exactly {schema.names}"
        )
    columns = [_convert(batch.column(field.name), field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _convert(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        if pa.types.is_run_end_encoded(column.type):
            import pyarrow.compute as pc

            return _convert(pc.run_end_decode(column), field)
        if pa.types.is_dictionary(column.type):
            return _convert(column.dictionary_decode(), field)
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaError(
            f"column {field.name!r} of type {column.type} cannot be cast to {field.type} "
            f"without loss: {error}; cast it first"
        ) from error


def drop_null_keys(batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Drop rows with a null in their key: they never match."""
    import pyarrow.compute as pc

    mask = None
    for name in key:
        column = batch.column(name)
        if column.null_count:
            valid = column.is_valid()
            mask = valid if mask is None else pc.and_(mask, valid)
    return batch if mask is None else batch.filter(mask)
