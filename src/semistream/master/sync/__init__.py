"""Keep a master table in step with its source of truth, reading only what changed.

    source --changes since the position--> [ entries | last one per key ] --compare--> one version

A source (:mod:`semistream.master.sync.contract`) yields changes since a position: upserts, deleted
keys, keys that are unchanged. They are sorted by code, the last one of each key is compared with
the table's row, and what differs is published as one version, together with the new position. So
the rows and the position become visible in one step: a crash before it changes nothing.
"""

from semistream.master.sync.apply import pending, sync
from semistream.master.sync.delta_versions import DeltaSource
from semistream.master.sync.freshness import age_of, as_of
from semistream.master.sync.kafka_topic import KafkaSource
from semistream.master.sync.parquet_list import ParquetSource
from semistream.master.sync.sql_versions import SqlSource

__all__ = [
    "DeltaSource",
    "KafkaSource",
    "ParquetSource",
    "SqlSource",
    "age_of",
    "as_of",
    "pending",
    "sync",
]
