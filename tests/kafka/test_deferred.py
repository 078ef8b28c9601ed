"""Deferred rows in a real Kafka topic: they return once, and a topic that lost them is noticed."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import semistream as ss

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark")

from kafka.test_sync import create
from overload.kit import numbers
from overload.waiting_kit import Query, batches, build_table

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def query_with(folder: Path, broker: str, topic: str) -> Query:
    place = {"servers": broker, "topic": topic}
    return Query(folder, batch_time="4s", parking={}, deferred_topic=place)


class Killed(Exception):  # noqa: N818
    """The driver dies."""


@pytest.mark.parametrize("point", ["staged", "published", "committed"])
def test_a_driver_killed_at(point: str, broker: str, tmp_path: Path) -> None:
    topic = f"deferred-{point}"
    create(broker, topic, partitions=2)
    build_table(tmp_path, list(range(0, 100, 2)))
    query = query_with(tmp_path, broker, topic)
    query.run(0, [batches(list(range(40)), 0), batches(list(range(40)), 40)])
    assert query.waiting("deferred")
    assert all(file.is_message for file in query.keeper.state.deferred)

    def fault(reached: str) -> None:
        if reached == point:
            raise Killed

    query.fault = fault
    with pytest.raises(Killed):
        query.run(1, [batches(list(range(30)), 80)])
    query.fault = lambda reached: None
    query.restart()
    query.run(1, [batches(list(range(30)), 80)])
    query.drain()
    assert query.waiting("deferred") == []
    found = [*numbers(query.rows()), *query.waiting("parked")]
    assert sorted(found) == list(range(110))
    topic = query.keeper.backlog.topic
    assert pickle.loads(pickle.dumps(topic)) == topic  # as Spark sends it to tasks


def test_a_topic_that_lost_its_messages(broker: str, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    create(broker, "lost", partitions=1)
    build_table(tmp_path, list(range(100)))
    query = query_with(tmp_path, broker, "lost")
    query.run(0, [batches(list(range(60)), 0)])
    admin = AdminClient({"bootstrap.servers": broker})
    for done in admin.delete_records([TopicPartition("lost", 0, -1)]).values():
        done.result(60)
    with pytest.raises(ss.SemistreamError, match=r"cannot be read .*'lost'"):
        query.drain()
    before = query.rows()
    without = Query(tmp_path, batch_time="4s", parking={})
    with pytest.raises(ss.ConfigError, match="give deferred_topic="):
        without.drain()
    assert query.rows() == before


def test_a_broker_that_is_down(tmp_path: Path) -> None:
    build_table(tmp_path, list(range(100)))
    query = query_with(tmp_path, "127.0.0.1:1", "any")
    topic: Any = query.keeper.backlog.topic
    topic.timeout = 2.0
    with pytest.raises(ss.SemistreamError, match="cannot be written"):
        query.run(0, [batches(list(range(60)), 0)])
    assert query.rows() == []
