"""Serves the live page: ``/`` is the page, ``/data`` the records that it has not seen."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from semistream.errors import ConfigError
from semistream.live.feed import Feed
from semistream.live.server import LoopbackServer, Query

PORT = 4141


@cache
def page() -> str:
    """The HTML of the page."""
    return (files("semistream.live") / "page.html").read_text(encoding="utf-8")


def to_json(data: Any) -> str:
    """JSON as browsers read it: NaN and infinity become null.

    >>> to_json({"rate": float("inf")})
    '{"rate": null}'
    """
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(data), parse_constant=lambda _: None))


class LivePage:
    """The page of a feed.

    Parameters
    ----------
    feed
        What the page shows.
    port
        Default: 4141, or a free one if it is in use; 0 is any free one.
    """

    def __init__(self, feed: Feed, port: int | None = None) -> None:
        self._feed = feed
        routes = {"/": _html, "/data": self._data}
        try:
            self._server = LoopbackServer(PORT if port is None else port, routes, "page")
        except ConfigError:
            if port is not None:
                raise
            self._server = LoopbackServer(0, routes, "page")
        self.url = f"{self._server.url}/"

    def close(self) -> None:
        self._server.close()

    def _data(self, query: Query) -> tuple[str, str]:
        text = query.get("after", "0")
        after = int(text) if text.isdecimal() else 0
        return "application/json", to_json(self._feed.since(query.get("epoch"), after))


def _html(query: Query) -> tuple[str, str]:
    return "text/html; charset=utf-8", page()
