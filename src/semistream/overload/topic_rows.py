"""Deferred rows in a Kafka topic (the network target of 003, section 4) instead of files.

A message has the rows of one Arrow stream; the state names it by partition and offset. Messages
that no state names are the garbage of failed attempts, and are never read. A message that expired
in the topic while its rows waited raises an error when they are to be served.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, SemistreamError
from semistream.overload.backlog_state import WaitingFile

MESSAGE_BYTES = 512 << 10  # brokers accept messages of a megabyte, if not told otherwise
_TIMEOUT = 60.0


@dataclass
class TopicRows:
    """The rows of a query in one topic. Picklable: every task connects by itself.

    ``options``: further settings of the Kafka client, such as ``security.protocol``.
    """

    servers: str
    topic: str
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = _TIMEOUT

    def __post_init__(self) -> None:
        self._consumer: Any = None
        if not self.servers or not self.topic:
            raise ConfigError("a topic for deferred rows needs servers and topic")

    def __reduce__(self) -> tuple[Any, ...]:
        return TopicRows, (self.servers, self.topic, dict(self.options), self.timeout)

    def write(self, rows: Iterable[pa.RecordBatch], **about: Any) -> Iterator[WaitingFile]:
        """Send rows; each message is acknowledged by all replicas before it is returned."""
        producer: Any = None
        for piece in (part for batch in rows for part in _pieces(batch)):
            producer = producer or self._client("Producer", {"enable.idempotence": True})
            value = _to_bytes(piece)
            sent: list[Any] = []
            try:
                producer.produce(
                    self.topic, value=value, on_delivery=lambda *reply, to=sent: to.append(reply)
                )
                left = producer.flush(self.timeout)
            except Exception as error:  # a message that is too large, a full queue
                raise self._error("written", error) from error
            if left or not sent or sent[0][0] is not None:
                raise self._error("written", sent[0][0] if sent else "the broker does not answer")
            message = sent[0][1]
            name = f"{message.partition()}@{message.offset()}"
            yield WaitingFile(name, piece.num_rows, len(value), **about)

    def read(self, file: WaitingFile) -> list[pa.RecordBatch]:
        from confluent_kafka import KafkaException, TopicPartition

        partition, _, offset = file.name.partition("@")
        if self._consumer is None:
            self._consumer = self._client(
                "Consumer",
                {
                    "group.id": "semistream-deferred",  # required, and not used
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                },
            )
        deadline = time.monotonic() + self.timeout
        try:
            self._consumer.assign([TopicPartition(self.topic, int(partition), int(offset))])
            message = None
            while message is None and time.monotonic() < deadline:
                message = self._consumer.poll(1.0)
        except KafkaException as error:
            raise self._error("read", error) from error
        if message is None or message.error() is not None:
            raise self._error("read", message.error() if message else "the broker does not answer")
        value = message.value() or b""
        if message.offset() != int(offset) or len(value) != file.nbytes:
            raise self._error("read", f"offset {offset} of partition {partition} is gone")
        with pa.ipc.open_stream(value) as reader:
            return list(reader)

    def _client(self, kind: str, settings: dict[str, Any]) -> Any:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ConfigError(
                "a topic for deferred rows needs confluent-kafka; pip install 'semistream[kafka]'"
            ) from error
        chosen = {"bootstrap.servers": self.servers, "log_level": 0, **settings, **self.options}
        try:
            return getattr(confluent_kafka, kind)(chosen)
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"topic {self.topic!r}: a setting is invalid: {error}") from None

    def _error(self, done: str, why: object) -> SemistreamError:
        return SemistreamError(
            f"deferred rows cannot be {done} to or from the topic {self.topic!r}: {why}; check the "
            "broker, and that the topic keeps messages as long as rows wait, then restart the "
            "query: it replays this batch"
        )


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if batch.nbytes > MESSAGE_BYTES:
        rows = max(1, int(rows * MESSAGE_BYTES / batch.nbytes))
    for first in range(0, batch.num_rows, max(1, rows)):
        yield batch.slice(first, rows)


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
