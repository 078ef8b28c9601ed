"""What an existing Delta table requires of a writer, and whether the sink supports it.

The sink adds complete files with all columns. It raises for a table that requires more than that
(partition folders, constraints, column mapping), because its readers would return wrong rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from semistream.errors import ConfigError, SchemaError

# Features that require nothing of a writer that only adds files, or nothing unless a column or a
# setting below uses them.
_SUPPORTED = {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}
_WRITER_VERSIONS = range(1, 8)
_REQUIREMENTS = {
    "delta.invariants": "an invariant",
    "delta.generationExpression": "a generation expression",
    "delta.identity.start": "generated identity values",
    "__CHAR_VARCHAR_TYPE_STRING": "a maximal length",
}


def check_features(table: Any, path: Path) -> None:
    """Raise if the table requires a feature that the sink does not support."""
    for requirement in _unsupported(table):
        raise ConfigError(
            f"the Delta table {path} has {requirement}, which this sink does not support; write "
            "to it with Spark's own Delta sink (foreachBatch), or use another table"
        )


def _unsupported(table: Any) -> Iterable[str]:
    metadata, protocol = table.metadata(), table.protocol()
    if metadata.partition_columns:
        yield f"the partition columns {', '.join(metadata.partition_columns)}"
    settings = metadata.configuration
    for name in settings:
        if name.startswith("delta.constraints."):
            yield f"the constraint {name.removeprefix('delta.constraints.')} ({settings[name]})"
    if settings.get("delta.columnMapping.mode", "none") != "none":
        yield f"column mapping by {settings['delta.columnMapping.mode']}"
    for field in table.schema().fields:
        for key, requirement in _REQUIREMENTS.items():
            if key in field.metadata:
                yield f"{requirement} for column {field.name} ({field.metadata[key]})"
    if protocol.min_writer_version not in _WRITER_VERSIONS:
        yield f"the writer version {protocol.min_writer_version}"
    features = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    for feature in sorted(features - _SUPPORTED):
        yield f"the table feature {feature}"


def check_nulls(table: Any, files: Iterable[Path]) -> None:
    """Raise if a NOT NULL column of the table has nulls in these files."""
    required = [field.name for field in table.schema().fields if not field.nullable]
    for file in files if required else ():
        for name in required:
            if _has_nulls(file, name):
                raise SchemaError(
                    f"column {name!r} of the Delta table {table.table_uri} is NOT NULL, but the "
                    "rows have nulls in it; filter them, or make the column nullable"
                )


def _has_nulls(file: Path, name: str) -> bool:
    import pyarrow.parquet as pq

    found = pq.ParquetFile(file)
    for number in range(found.metadata.num_row_groups):
        group = found.metadata.row_group(number)
        columns = (group.column(i) for i in range(group.num_columns))
        counts = [c.statistics for c in columns if c.path_in_schema == name and c.statistics]
        if counts and counts[0].has_null_count:
            if counts[0].null_count:
                return True
        elif found.read_row_group(number, columns=[name]).column(name).null_count:
            return True
    return False
