"""The exceptions of semistream.

Each message states what was wrong, with what value, and what to do. The message is the only
attribute, so that errors can be pickled between Spark workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist, with the closest one or all that do.

    >>> unknown("field", "memroy", ["how", "memory"])
    "unknown field 'memroy'; did you mean 'memory'?"
    >>> unknown("field", "zzz", ["how", "memory"])
    "unknown field 'zzz'; valid fields: how, memory"
    """
    names = list(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"valid {what}s: {', '.join(names)}"
    return f"unknown {what} {name!r}; {hint}"


def existing(name: str, known: Iterable[str], verb: str = "its columns are") -> str:
    """What a message about a missing column ends with: the closest name, and all that exist.

    >>> existing("prise", ["id", "price"])
    "did you mean 'price'? its columns are id, price"
    >>> existing("zzz", ["id", "price"], "it has")
    'it has id, price'
    """
    names = list(known)
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}{verb} {', '.join(names)}"


class SemistreamError(Exception):
    """Base class of all errors of this library."""


class ConfigError(SemistreamError, ValueError):
    """An option has an invalid value."""


class SchemaError(SemistreamError, ValueError):
    """A column is missing, ambiguous, or has an unsupported type."""


class MasterTableError(SemistreamError):
    """The master table is missing, damaged, of another format, or changed by another writer."""


class BudgetError(SemistreamError):
    """The memory budget is too small for the join."""


class InternalError(SemistreamError):
    """An invariant of semistream is violated: a bug, please report it."""
