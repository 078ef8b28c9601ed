"""Names given on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def chosen(text: str | None, known: Sequence[str], what: str, default: Sequence[str]) -> list[str]:
    """Comma-separated names, ``all``, or the default; exits with the known ones if one is not."""
    names = list(known) if text == "all" else text.split(",") if text else list(default)
    for name in names:
        if name not in known:
            sys.exit(f"unknown {what} {name!r}; choose from {', '.join(known)}")
    return names
