"""How far a topic was read, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import semistream as ss
from master.sync.worlds import table_of

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError


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
