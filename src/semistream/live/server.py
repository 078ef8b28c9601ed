"""A small web server on 127.0.0.1, in a thread of its own."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from semistream.errors import ConfigError

Query: TypeAlias = dict[str, str]
Route: TypeAlias = Callable[[Query], tuple[str, str]]  # its query -> content type and body

_HOSTS = ("127.0.0.1", "localhost")
# Nothing but the page itself: no other site, no frame's scripts, no form.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
)


class LoopbackServer:
    """Serves a function per path; other paths are not found.

    A request must name this machine as its host, so that no page of another site can read it
    through a host name that resolves to 127.0.0.1.
    """

    def __init__(self, port: int, routes: Mapping[str, Route], name: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.headers.get("Host", "").rsplit(":", 1)[0] not in _HOSTS:
                    self.send_error(403, "not a name of this machine")
                    return
                url = urlsplit(self.path)
                route = routes.get(url.path)
                if route is None:
                    self.send_error(404)
                    return
                query = {key: values[-1] for key, values in parse_qs(url.query).items()}
                kind, text = route(query)
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Content-Security-Policy", _POLICY)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Do not log requests."""

        try:
            self._server = _Server(("127.0.0.1", port), Handler)
        except OverflowError as error:
            raise ConfigError(f"port={port}: choose a port from 1 to 65535") from error
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "in use" if error.errno == errno.EADDRINUSE else "not allowed for this user"
            raise ConfigError(
                f"port {port} of 127.0.0.1 is {why}: choose another one, or 0 for a free one"
            ) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name=f"semistream-{name}", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves early is no error of the query; print nothing."""
