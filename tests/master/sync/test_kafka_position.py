"""How far a topic was read, without a broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import semistream as ss
from master.sync.worlds import table_of

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError, Producer

from semistream.master.sync import kafka_topic
from semistream.master.sync.messages import Messages


class Message:
    def __init__(self, offset: int, key: bytes | None = None, code: int | None = None) -> None:
        self._offset, self._key = offset, key
        self._error = None if code is None else mock.Mock(code=lambda: code)

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> None:
        return None

    def error(self) -> Any:
        return self._error


def test_a_partition_that_ends_early_is_read_from_there_next_time(tmp_path: Path) -> None:
    """Its last messages may belong to a transaction that is still open."""
    table = ss.MasterTable.build(
        table_of({k: (k, "old", 0.0) for k in (1, 2)}), tmp_path / "t", "id", unique=True
    )
    topic = mock.Mock(error=None, partitions={0: None})
    consumer = mock.Mock()
    consumer.list_topics.return_value.topics = {"x": topic}
    consumer.get_watermark_offsets.return_value = (0, 5)
    end = Message(3, code=KafkaError._PARTITION_EOF)
    consumer.consume.return_value = [Message(2, b"1"), end]
    with mock.patch("confluent_kafka.Consumer", return_value=consumer):
        table = table.sync(ss.KafkaSource("host:9092", "x"))
    assert table.num_rows == 1
    assert table.synced is not None
    assert table.synced.position == {"offsets": {"0": 3}}


def test_many_tombstones_in_a_row_do_not_gather_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topic, "_KEPT", 4)
    entries = mock.Mock()
    schema = table_of({1: (1, "old", 0.0)}).schema
    waiting = kafka_topic._Waiting(entries, Messages(schema, ["id"], "json", "topic"))
    for key in range(10):
        waiting.add(str(key).encode(), None, "place")
    waiting.flush()
    assert [call.args[0].num_rows for call in entries.delete.call_args_list] == [4, 4, 2]


def test_a_sync_ends_when_everything_was_read(tmp_path: Path) -> None:
    """And not after the timeout, which is for a broker that does not answer."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "x", "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    table = ss.MasterTable.build(table_of({1: (1, "old", 0.0)}), tmp_path / "t", "id", unique=True)
    for key in (1, 2, 3):
        value = json.dumps({"id": key, "name": "new", "price": 1.5}).encode()
        producer.produce("changes", key=str(key).encode(), value=value)
    assert producer.flush(10) == 0
    source = ss.KafkaSource(f"127.0.0.1:{broker.port}", "changes", timeout=20.0)
    began = time.monotonic()
    table = table.sync(source)
    assert table.num_rows == 3
    assert time.monotonic() - began < 10
