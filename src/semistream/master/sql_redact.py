"""Redacts secrets in database URLs, for messages and logs.

A password with unescaped characters cannot be separated from the rest of its URL with certainty,
so everything that may belong to it is redacted, even if that hides the host.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEME = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")
_NAME = re.compile(r"(?i)(?:pass|pwd|secret|token|credential|(?:api|access|account)[_-]?key)")
_NAMED = re.compile(_NAME.pattern + r"[\w-]*=")
_HOST = r"(?:\[[^\]@]*\]|[^:@/?#\[\]]*)(?::\d*)?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*(?:[/?#].*)?", re.DOTALL)
_SIGNS = re.compile(r"[/?#@:&=,\s]+")


def redact(uri: str) -> str:
    """The URL without its password and without secret parameters.

    >>> redact("postgresql://me:se/cr@et@host/db?sslmode=require")
    'postgresql://me:***@host/db?sslmode=require'
    """
    shown, end = "", 0
    for start, stop in _spans(uri):
        shown += uri[end:start] + "***"
        end = stop
    return shown + uri[end:]


def without_secrets(text: str, uri: str) -> str:
    """A driver's message without the URL's secrets, whole or in parts.

    A driver may parse what follows an unescaped ``/`` or ``@`` as a port or a host, and quote it.
    """
    text = text.replace(uri, redact(uri))
    secrets = [uri[start:stop] for start, stop in _spans(uri)]
    pieces = {
        piece
        for secret in secrets
        for form in (secret, unquote(secret))
        for piece in (form, *_SIGNS.split(form))
        if piece
    }
    for piece in sorted(pieces, key=len, reverse=True):
        before = r"(?<!\w)" if piece[0].isalnum() else ""
        after = r"(?!\w)" if piece[-1].isalnum() else ""
        text = re.sub(before + re.escape(piece) + after, "***", text)
    return text


def has_secrets(uri: str) -> bool:
    return bool(_spans(uri))


def is_secret(name: str) -> bool:
    """Whether the value of a parameter with this name is secret."""
    return _NAME.search(name) is not None


def _spans(uri: str) -> list[tuple[int, int]]:
    """The spans of secrets, in order and disjoint."""
    found = [span for span in (_password(uri), _parameter(uri)) if span is not None]
    if len(found) == 2 and found[1][0] <= found[0][1]:
        return [(min(found)[0], len(uri))]
    return [span for span in found if span[0] < span[1]]


def _password(uri: str) -> tuple[int, int] | None:
    """From the first colon after the scheme to the last @: the password is in between."""
    scheme = _SCHEME.match(uri)
    if uri.lower().startswith("sqlite:"):
        return None
    colon = uri.find(":", scheme.end() if scheme else 0)
    end = uri.rfind("@")
    if colon < 0:
        return None
    if end > colon:
        return colon + 1, end
    if scheme and not _HOSTS.fullmatch(uri, max(scheme.end(), end + 1)):
        return colon + 1, len(uri)  # neither a port nor followed by a host: perhaps a password
    return None


def _parameter(uri: str) -> tuple[int, int] | None:
    """From the first secret parameter to the end: its value may contain an unescaped &."""
    named = _NAMED.search(uri)
    return None if named is None else (named.end(), len(uri))
