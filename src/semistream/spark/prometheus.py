"""The newest figures in the text format of Prometheus, on loopback only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PER_BATCH = {
    "rows_per_second": "Rows per second of the last micro-batch",
    "seconds": "Seconds that the last micro-batch took",
    "rows_in": "Rows of the last micro-batch",
    "batch": "Number of the last micro-batch",
}
_PER_LOOKUP = {
    "hit_rate": "Share of the last micro-batch's tuples that the front stage served",
    "match_rate": "Share of the last micro-batch's tuples that had a match",
    "version": "Version of the master table that the last micro-batch read",
    "age_seconds": "Seconds since that version was published",
    "data_age_seconds": "Seconds since that version was last in step with its source",
}


class Endpoint:
    """A small web server on 127.0.0.1, in a separate thread."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.split("?")[0] not in ("/", "/metrics"):
                    self.send_error(404)
                    return
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Do not log scrapes."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="semistream-prometheus", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def exposition(latest: Iterable[dict[str, Any]], totals: dict[tuple[str, str, str], int]) -> str:
    """The text that Prometheus reads."""
    records = list(latest)
    lines: list[str] = []
    for field, about in _PER_BATCH.items():
        samples = [(_labels(query=r["query"], name=r["name"]), r[field]) for r in records]
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
