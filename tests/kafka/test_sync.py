"""A master table that follows a real Kafka topic of changes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss

pytest.importorskip("confluent_kafka")

from master.sync.worlds import rows_of, table_of
from semistream.errors import ConfigError, MasterTableError

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def create(broker: str, topic: str, partitions: int = 3) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker})
    for done in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        done.result(60)


def send(broker: str, topic: str, changes: list[tuple[int, Any]], transaction: str = "") -> None:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": broker}
    if transaction:
        settings["transactional.id"] = transaction
    producer = Producer(settings)
    if transaction:
        producer.init_transactions(60)
        producer.begin_transaction()
    for key, row in changes:
        value = None if row is None else json.dumps(row).encode()
        producer.produce(topic, key=str(key).encode(), value=value)
    if transaction:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0


def row(key: int, word: str) -> dict[str, Any]:
    return {"id": key, "name": word, "price": key / 4}


def test_a_topic_of_changes(broker: str, tmp_path: Path) -> None:
    create(broker, "changes")
    table = ss.MasterTable.build(
        table_of({k: (k, "old", 0.0) for k in range(10)}), tmp_path / "t", "id", unique=True
    )
    source = ss.KafkaSource(broker, "changes")
    table = table.sync(source)
    assert table.version == 2, "the position of an empty topic"
    assert table.sync(source).version == 2
    send(
        broker,
        "changes",
        [(1, row(1, "first")), (1, row(1, "last")), (2, None), (99, row(99, "n"))],
    )
    send(broker, "changes", [(3, None), (3, row(3, "again")), (77, row(77, "n")), (77, None)])
    info = table.pending(source)
    assert (info.inserted, info.updated, info.deleted, info.rows_read) == (1, 2, 1, 8)
    table = table.sync(source)
    expected: dict[Any, tuple[Any, ...]] = {k: (k, "old", 0.0) for k in range(10) if k != 2}
    expected |= {1: (1, "last", 0.25), 3: (3, "again", 0.75), 99: (99, "n", 24.75)}
    assert rows_of(table) == expected
    send(broker, "changes", [(k, row(k, "x")) for k in range(2000)], transaction="writer")
    # The broker marks the end of a transaction in each partition some time after the commit, and
    # a sync reads what is committed: it may need more than one.
    read, end = 0, time.monotonic() + 30
    while table.num_rows < 2000 and time.monotonic() < end:
        before, table = table.version, table.sync(source)
        assert table.synced is not None
        read += table.synced.rows_read if table.version > before else 0
    assert table.num_rows == 2000
    assert read == 2000, "only the new messages, each once"
    assert table.sync(source).version == table.version


def test_errors_name_topic_and_broker(broker: str, tmp_path: Path) -> None:
    table = ss.MasterTable.build(pa.table({"id": [1]}), tmp_path / "t", "id", unique=True)
    with pytest.raises(MasterTableError, match=r"topic 'absent' at .* does not exist"):
        table.sync(ss.KafkaSource(broker, "absent"))
    with pytest.raises(MasterTableError, match=r"topic 'x' at 127.0.0.1:1 cannot be read"):
        table.sync(ss.KafkaSource("127.0.0.1:1", "x", timeout=2.0))
    with pytest.raises(ConfigError, match=r"a setting is invalid.*no.such.setting"):
        table.sync(ss.KafkaSource(broker, "x", options={"no.such.setting": 1}))
    with pytest.raises(ConfigError, match="Build the table from a snapshot"):
        ss.MasterTable.build(ss.KafkaSource(broker, "x"), tmp_path / "u", key="id")
    create(broker, "bad", partitions=1)
    send(broker, "bad", [(1, {"id": 1}), (2, {"id": "two"})])
    with pytest.raises(MasterTableError, match=r"partition 0, offset 1: .*does not fit"):
        table.sync(ss.KafkaSource(broker, "bad"))
    assert table.newest_version() == 1


def test_messages_that_expired_are_reported(broker: str, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    create(broker, "expired", partitions=1)
    table = ss.MasterTable.build(pa.table({"id": [1]}), tmp_path / "t", "id", unique=True)
    source = ss.KafkaSource(broker, "expired")
    send(broker, "expired", [(5, {"id": 5})])
    table = table.sync(source)
    send(broker, "expired", [(6, {"id": 6}), (7, {"id": 7})])
    admin = AdminClient({"bootstrap.servers": broker})
    for done in admin.delete_records([TopicPartition("expired", 0, 2)]).values():
        done.result(60)
    with pytest.raises(MasterTableError, match="up to offset 1, but the topic has offsets 2 to 3"):
        table.sync(source)
