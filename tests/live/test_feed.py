"""A feed hands every record to every reader once."""

from __future__ import annotations

from live.records import record
from semistream.live.feed import Feed


def test_a_reader_gets_only_what_is_new() -> None:
    feed = Feed()
    for batch in range(3):
        feed.add(record(batch))
    first = feed.since(None, 0)
    assert [r["batch"] for r in first["records"]] == [0, 1, 2]
    feed.add(record(3))
    second = feed.since(first["epoch"], first["next"])
    assert [r["batch"] for r in second["records"]] == [3]
    assert feed.since(second["epoch"], second["next"])["records"] == []


def test_a_reader_of_another_process_starts_again() -> None:
    feed = Feed()
    feed.add(record(7))
    assert [r["batch"] for r in feed.since("another", 500)["records"]] == [7]


def test_the_oldest_records_are_dropped() -> None:
    feed = Feed(most_kept=5)
    for batch in range(12):
        feed.add(record(batch))
    seen = feed.since(None, 0)
    assert [r["batch"] for r in seen["records"]] == [7, 8, 9, 10, 11]
    assert feed.records == seen["records"]
    late = feed.since(seen["epoch"], 2)  # six of its records are gone
    assert [r["batch"] for r in late["records"]] == [7, 8, 9, 10, 11]
    assert [r["batch"] for r in feed.since(seen["epoch"], 11)["records"]] == [11]


def test_states_of_queries() -> None:
    feed = Feed()
    feed.set_state("q", "running")
    feed.set_state("q", "failed", "disk full")
    assert feed.since(None, 0)["queries"] == {"q": {"state": "failed", "error": "disk full"}}
