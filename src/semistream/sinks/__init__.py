"""Warehouses that store every micro-batch exactly once, even if a worker or the driver crashes.

    worker:  stage(rows)  -> Staged      rows are written where readers do not look
    driver:  commit(all)  -> bool        one atomic step makes them visible; False if it was done

Rows that are staged and not committed are garbage, which a later commit removes.
"""

from __future__ import annotations

from typing import Any

from semistream.errors import ConfigError
from semistream.sinks.contract import Batch, Mark, Sink, Staged

OUTPUTS = ("parquet", "delta", "postgresql")


def open_sink(output: str, **options: Any) -> Sink:
    """The sink for an output format; its library is imported here, on first use."""
    if output == "parquet":
        from semistream.sinks.parquet import ParquetSink

        kind: Any = ParquetSink
    elif output == "delta":
        from semistream.sinks.delta import DeltaSink

        kind = DeltaSink
    elif output == "postgresql":
        from semistream.sinks.postgresql import PostgresWarehouse

        kind = PostgresWarehouse
    else:
        raise ConfigError(f"output={output!r} is unknown; choose one of {', '.join(OUTPUTS)}")
    try:
        sink: Sink = kind(**options)
    except TypeError as error:
        raise ConfigError(f"output={output!r}: {error}") from error
    return sink


__all__ = ["OUTPUTS", "Batch", "Mark", "Sink", "Staged", "open_sink"]
