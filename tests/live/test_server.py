"""The server: loopback only, known paths only, clear about ports."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from live.records import record
from semistream.errors import ConfigError
from semistream.live.feed import Feed
from semistream.live.page import PORT, LivePage
from semistream.live.server import LoopbackServer


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def page(feed: Feed) -> Iterator[LivePage]:
    live = LivePage(feed, port=0)
    yield live
    live.close()


def get(
    page: LivePage, path: str, host: str | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    port = int(page.url.rstrip("/").rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, body


def test_page_and_data(page: LivePage, feed: Feed) -> None:
    status, headers, body = get(page, "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "<title>semistream</title>" in body
    feed.add(record(0))
    feed.add(record(1) | {"rows_per_second": float("inf")})
    first = json.loads(get(page, "/data")[2])
    assert [r["batch"] for r in first["records"]] == [0, 1]
    assert first["records"][1]["rows_per_second"] is None
    again = json.loads(get(page, f"/data?after={first['next']}&epoch={first['epoch']}")[2])
    assert again["records"] == []
    assert json.loads(get(page, "/data?after=nonsense")[2])["next"] == 2


def test_the_page_loads_nothing_from_elsewhere(page: LivePage) -> None:
    body = get(page, "/")[2]
    addresses = [text for text in body.split('"') if text.startswith(("http:", "https:", "//"))]
    assert addresses == ["http://www.w3.org/2000/svg"], "a namespace, which is not loaded"


@pytest.mark.parametrize("path", ["/secrets", "/../page.html", "/data/", "//etc/passwd"])
def test_other_paths_are_not_found(page: LivePage, path: str) -> None:
    assert get(page, path)[0] == 404


def test_another_host_name_is_refused(page: LivePage) -> None:
    """A page of another site whose name resolves to 127.0.0.1 must not read the data."""
    assert get(page, "/data", host="evil.example:4141")[0] == 403
    assert get(page, "/data", host="localhost:4141")[0] == 200


def test_a_port_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use: choose"):
            LivePage(Feed(), port)
    with pytest.raises(ConfigError, match="from 1 to 65535"):
        LoopbackServer(70_000, {}, "page")


def test_without_a_port_two_pages_can_be_served() -> None:
    pages = [LivePage(Feed()), LivePage(Feed())]
    try:
        assert pages[0].url != pages[1].url
        assert f"http://127.0.0.1:{PORT}/" not in pages[1].url
    finally:
        for one in pages:
            one.close()
