"""The newest figures in the text format of Prometheus, on loopback only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from semistream.live.server import LoopbackServer, Query

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PER_BATCH = {
    "rows_per_second": "Rows per second of the last micro-batch",
    "seconds": "Seconds that the last micro-batch took",
    "rows_in": "Rows of the last micro-batch",
    "batch": "Number of the last micro-batch",
    "deferred": "Rows that wait because a micro-batch had no time left for them",
    "deferred_oldest_seconds": "Seconds that the oldest deferred row has waited",
    "parked": "Rows that wait for a version of a table that has their key",
    "parked_oldest_seconds": "Seconds that the oldest parked row has waited",
}
_PER_LOOKUP = {
    "hit_rate": "Share of the last micro-batch's tuples that the front stage served",
    "match_rate": "Share of the last micro-batch's tuples that had a match",
    "rate": "Tuples per second that a worker spent in the join, in the last micro-batch",
    "predicted_rate": "The same as predicted; only where the machine was calibrated",
    "version": "Version of the master table that the last micro-batch read",
    "age_seconds": "Seconds since that version was published",
    "data_age_seconds": "Seconds since that version was last in step with its source",
}


class Endpoint:
    """The text at ``/metrics`` of 127.0.0.1."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        def route(query: Query) -> tuple[str, str]:
            return _TYPE, text()

        self._server = LoopbackServer(port, {"/": route, "/metrics": route}, "prometheus")
        self.url = f"{self._server.url}/metrics"

    def close(self) -> None:
        self._server.close()


def exposition(latest: Iterable[dict[str, Any]], totals: dict[tuple[str, str, str], int]) -> str:
    """The text that Prometheus reads."""
    records = list(latest)
    lines: list[str] = []
    for field, about in _PER_BATCH.items():
        samples = [(_labels(query=r["query"], name=r["name"]), r.get(field)) for r in records]
        lines += _family(f"semistream_{field}", "gauge", about, samples)
    lookups = [(r["query"], lookup) for r in records for lookup in r["lookups"]]
    for field, about in _PER_LOOKUP.items():
        samples = [(_labels(query=q, master=m["master"]), m[field]) for q, m in lookups]
        lines += _family(f"semistream_{field}", "gauge", about, samples)
    samples = [
        (_labels(query=q, master=m["master"], component=component), nbytes)
        for q, m in lookups
        for component, nbytes in m["memory"].items()
    ]
    lines += _family("semistream_memory_bytes", "gauge", "Bytes held by all workers", samples)
    by_counter: dict[str, list[tuple[str, Any]]] = {}
    for (query, master, counter), count in totals.items():
        if counter != "waiting":
            labels = _labels(query=query, master=master)
            by_counter.setdefault(counter, []).append((labels, count))
    for counter, counts in sorted(by_counter.items()):
        about = f"{counter.replace('_', ' ')} since the metrics started"
        lines += _family(f"semistream_{counter}_total", "counter", about, counts)
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, about: str, samples: list[tuple[str, Any]]) -> list[str]:
    known = [(labels, value) for labels, value in samples if value is not None]
    if not known:
        return []
    head = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{{{labels}}} {value}" for labels, value in known]


def _labels(**labels: Any) -> str:
    def escaped(value: Any) -> str:
        return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

    return ",".join(f'{k}="{escaped(v)}"' for k, v in labels.items() if v is not None)
