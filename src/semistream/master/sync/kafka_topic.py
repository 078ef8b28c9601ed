"""A Kafka topic of changes: key and row, or a tombstone. The position is an offset per partition.

Offsets are kept in the table, not in a consumer group: they must become visible with the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import ConfigError, MasterTableError
from semistream.master.sql_redact import redact
from semistream.master.sync.contract import Position, Snapshot, missing_package
from semistream.master.sync.entries import Entries
from semistream.master.sync.messages import Messages

if TYPE_CHECKING:
    from semistream.master.table import MasterTable

_AT_ONCE = 10_000  # messages
_WAIT = 0.1  # seconds: librdkafka waits as long for this many, even if no more will come
_KEPT = 50_000  # rows of JSON before they are converted, or tombstones


class KafkaSource:
    """A topic whose messages upsert or delete the row of their key.

    Parameters
    ----------
    servers, topic
        ``host:port``, several with commas; and the name.
    value
        ``"json"`` or ``"arrow"``: see :mod:`semistream.master.sync.messages`.
    options
        Further settings of librdkafka, such as ``security.protocol``.
    timeout
        Seconds without a message after which the broker is considered dead.

    The first sync reads the topic from its beginning. Keys that it does not mention stay.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        value: str = "json",
        options: Mapping[str, Any] | None = None,
        timeout: float = 30.0,
    ) -> None:
        if value not in ("json", "arrow"):
            raise ConfigError(f"value={value!r}: messages are 'json' or 'arrow'")
        self._servers = servers
        self._topic = topic
        self._value = value
        self._options = dict(options or {})
        self._timeout = timeout

    @property
    def name(self) -> str:
        return f"Kafka topic {self._topic!r} at {redact(self._servers)}"

    def snapshot(self, key: Sequence[str], columns: Sequence[str] | None) -> Snapshot:
        raise ConfigError(
            f"a table cannot be built from, or compared in full with, {self.name}: its messages "
            "are changes. Build the table from a snapshot of the data, then sync it"
        )

    def read_first(self, table: MasterTable, entries: Entries) -> Position:
        before = table.manifest.sync
        if before is not None and before.source == self.name:
            self.snapshot(table.key, None)  # full=True: raises
        return self.read(table, {"offsets": {}}, entries)

    def read(self, table: MasterTable, position: Position, entries: Entries) -> Position:
        with self._consumer() as consumer:
            starts, ends = self._offsets(consumer, position["offsets"])
            entries.allow_repeats()
            entries.expect(sum(ends[p] - starts[p] for p in ends))
            self._consume(consumer, starts, ends, table, entries)
        return {"offsets": {str(partition): end for partition, end in ends.items()}}

    def _offsets(
        self, consumer: Any, known: Mapping[str, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Where reading starts and ends, by partition."""
        from confluent_kafka import TopicPartition

        topic = consumer.list_topics(self._topic, timeout=self._timeout).topics.get(self._topic)
        if topic is None or topic.error is not None or not topic.partitions:
            raise MasterTableError(
                f"{self.name} does not exist; create it, or correct the name of the topic"
            )
        starts, ends = {}, {}
        for partition in topic.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=self._timeout
            )
            start = known.get(str(partition), low)
            if start < low or start > high:
                raise MasterTableError(
                    f"{self.name}: the table has read partition {partition} up to offset {start}, "
                    f"but the topic has offsets {low} to {high}: it was deleted and created again, "
                    "or messages expired before they were read. Build the table again from a "
                    "snapshot of the data, with overwrite=True, and sync it"
                )
            starts[partition], ends[partition] = start, high
        return starts, ends

    def _consume(
        self, consumer: Any, starts: dict[int, int], ends: dict[int, int], table: MasterTable,
        entries: Entries,
    ) -> None:  # fmt: skip
        from confluent_kafka import KafkaError, TopicPartition

        left = {partition for partition in ends if starts[partition] < ends[partition]}
        consumer.assign([TopicPartition(self._topic, p, starts[p]) for p in sorted(left)])
        messages = Messages(table.schema, table.key, self._value, self.name)
        waiting = _Waiting(entries, messages)
        heard = time.monotonic()
        while left:
            found = consumer.consume(_AT_ONCE, min(_WAIT, self._timeout))
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard >= self._timeout:
                raise MasterTableError(
                    f"{self.name} sent nothing for {self._timeout:g} s; check the broker, then try "
                    "again. Nothing was changed"
                )
            for message in found:
                partition, error = message.partition(), message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    # The last offsets may be markers of transactions, or of an open one: what comes
                    # after this offset is read next time.
                    end = max(starts[partition], message.offset())
                    ends[partition] = min(ends[partition], end)
                    left.discard(partition)
                    continue
                if error is not None:
                    raise MasterTableError(f"{self.name} cannot be read: {error}; try again")
                if message.offset() >= ends[partition]:
                    left.discard(partition)
                    continue
                place = f"partition {partition}, offset {message.offset()}"
                waiting.add(message.key(), message.value(), place)
                if message.offset() + 1 >= ends[partition]:
                    left.discard(partition)
        waiting.flush()

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        try:
            from confluent_kafka import Consumer, KafkaException
        except ImportError as error:
            raise missing_package(self.name, "confluent-kafka", "kafka") from error
        problems: list[str] = []
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": "semistream-sync",  # required, and not used
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "error_cb": lambda error: problems.append(str(error)),
            "log_level": 0,
            **self._options,
        }
        try:
            consumer = Consumer(settings)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"{self.name}: a setting is invalid: {error}") from None
        try:
            yield consumer
        except KafkaException as error:
            why = problems[-1] if problems else str(error)
            raise MasterTableError(
                f"{self.name} cannot be read: {why}; check that the broker is running and that "
                "servers is right, then try again"
            ) from None
        finally:
            consumer.close()


class _Waiting:
    """Messages in their order: rows are converted together, a tombstone ends a group of rows."""

    def __init__(self, entries: Entries, messages: Messages) -> None:
        self._entries = entries
        self._messages = messages
        self._rows = 0
        self._keys: list[pa.RecordBatch] = []

    def add(self, key: bytes | None, value: bytes | None, place: str) -> None:
        if not value:
            if self._rows:
                self.flush()
            self._keys.append(self._messages.tombstone(key, place))
            if len(self._keys) >= _KEPT:
                self.flush()
            return
        if self._keys:
            self.flush()
        batch = self._messages.row(key, value, place)
        if batch is not None:
            self._entries.upsert(batch)
            return
        self._rows += 1
        if self._rows >= _KEPT:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            self._entries.upsert(self._messages.rows())
            self._rows = 0
        if self._keys:
            (keys,) = pa.Table.from_batches(self._keys).combine_chunks().to_batches()
            self._entries.delete(keys)
            self._keys = []
