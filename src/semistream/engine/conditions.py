"""Conditions on pairs of a tuple and a master row, beside the equality of keys or without one.

Descriptions only: immutable, compared by value, and picklable (a predicate as far as its function
is). ``engine/pair_filter.py`` evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from semistream.errors import ConfigError, unknown
from semistream.master.codes import CODE_COLUMN
from semistream.master.history import END_COLUMN

OPERATORS = ("<", "<=", ">", ">=", "==", "!=")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_CLOSED = ("both", "left", "right", "neither")
_SIDES = ("stream", "master")
ARRIVAL, GROUP = "__arrival", "__semistream_group"  # columns that wrappers of a run add to a stream


class Comparison(NamedTuple):
    """``stream column`` ``operator`` ``master column``."""

    stream: str
    operator: str
    master: str
    is_open: bool = False  # a null of the master passes


@dataclass(frozen=True)
class Between:
    """``low <= x <= high``.

    ``x`` is a column of the stream, ``low`` and ``high`` are columns of the master; with
    ``of="master"`` the other way round. ``closed`` says which ends belong to the range: ``both``,
    ``left``, ``right`` or ``neither``. A null matches nothing.

    >>> Between("amount", "low", "high").comparisons
    (Comparison(stream='amount', operator='>=', master='low', is_open=False), \
Comparison(stream='amount', operator='<=', master='high', is_open=False))
    """

    x: str
    low: str
    high: str
    closed: str = "both"
    of: str = "stream"

    def __post_init__(self) -> None:
        if self.closed not in _CLOSED:
            raise ConfigError(f"closed={self.closed!r}: choose one of {', '.join(_CLOSED)}")
        if self.of not in _SIDES:
            raise ConfigError(f"of={self.of!r}: choose stream or master")
        _check_names(self, self.x, self.low, self.high)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        above = ">=" if self.closed in ("both", "left") else ">"
        below = "<=" if self.closed in ("both", "right") else "<"
        if self.of == "stream":
            return Comparison(self.x, above, self.low), Comparison(self.x, below, self.high)
        return (
            Comparison(self.low, _FLIPPED[above], self.x),
            Comparison(self.high, _FLIPPED[below], self.x),
        )


@dataclass(frozen=True)
class Compare:
    """A column of the stream compared with a column of the master: ``Compare("x", "<=", "limit")``.

    The operator is one of ``<  <=  >  >=  ==  !=``. A null matches nothing.
    """

    stream: str
    operator: str
    master: str

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise ConfigError(
                f"operator {self.operator!r} is unknown; choose one of {' '.join(OPERATORS)}"
            )
        _check_names(self, self.stream, self.master)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return (Comparison(self.stream, self.operator, self.master),)


@dataclass(frozen=True)
class AsOf:
    """The row was valid at the tuple's time: ``begin <= time < end``, or there is no end yet."""

    time: str
    begin: str
    end: str

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return (
            Comparison(self.time, ">=", self.begin),
            Comparison(self.time, "<", self.end, is_open=True),
        )


@dataclass(frozen=True)
class Predicate:
    """Any condition, as a function of many pairs at once.

    ``function(stream, master)`` gets two record batches with one row per pair, and returns a
    Boolean array: Arrow or NumPy. Null is false. ``stream`` and ``master`` name the columns that
    it reads; default: all. Naming them saves memory and time.
    """

    function: Callable[[pa.RecordBatch, pa.RecordBatch], Any]
    stream: Sequence[str] | None = None
    master: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(
                f"Predicate({self.function!r}): give a function of two record batches"
            )
        for side in _SIDES:
            names = getattr(self, side)
            if names is None:
                continue
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise ConfigError(f"{side}={names!r}: give a list of column names")
            object.__setattr__(self, side, tuple(names))


Given = Between | Compare | Predicate
Condition = Given | AsOf
Where = Given | Sequence[Given]


def conditions_of(where: Where | None) -> tuple[Given, ...]:
    """``where`` in any of its forms as a tuple; all of its conditions must hold."""
    if where is None:
        return ()
    found = (where,) if isinstance(where, Given) else where
    if not isinstance(found, Sequence) or not all(isinstance(one, Given) for one in found):
        raise ConfigError(
            f"where={where!r}: give ss.Between, ss.Compare or ss.Predicate, or a list of them"
        )
    return tuple(found)


def master_columns(conditions: Sequence[Condition], schema: pa.Schema) -> list[str]:
    """The master's columns that these conditions read, each once."""
    names: list[str] = []
    for one in conditions:
        if isinstance(one, Predicate):
            names += visible(schema) if one.master is None else one.master
        else:
            names += [comparison.master for comparison in one.comparisons]
    return list(dict.fromkeys(names))


def comparisons_of(condition: Condition) -> tuple[Comparison, ...]:
    return () if isinstance(condition, Predicate) else condition.comparisons


def stream_columns(conditions: Sequence[Condition]) -> list[str]:
    """The stream's columns that these conditions name."""
    names: list[str] = []
    for one in conditions:
        if isinstance(one, Predicate):
            names += one.stream or ()
        else:
            names += [comparison.stream for comparison in one.comparisons]
    return list(dict.fromkeys(names))


def has_functions(where: Where | None) -> bool:
    return any(isinstance(one, Predicate) for one in conditions_of(where))


def described(where: Where | None) -> list[dict[str, Any]] | None:
    """The conditions as plain values, for a file of settings; :func:`from_description` reads it."""
    found: list[dict[str, Any]] = []
    for one in conditions_of(where):
        if isinstance(one, Between):
            more = {"closed": one.closed, "of": one.of}
            found.append({"between": [one.x, one.low, one.high], **more})
        elif isinstance(one, Compare):
            found.append({"compare": [one.stream, one.operator, one.master]})
        else:
            raise ConfigError(f"{one!r}: a function cannot be written down; use ss.enrich instead")
    return found or None


def from_description(items: Any) -> tuple[Given, ...]:
    """Conditions from ``{"between": [x, low, high]}`` and ``{"compare": [x, "<=", limit]}``."""
    if items is None:
        return ()
    found: list[Given] = []
    for item in items if isinstance(items, list) else [items]:
        kinds = ("between", "compare") if isinstance(item, dict) else ()
        kind = next((name for name in kinds if name in item), None)
        names = item[kind] if kind else None
        if not isinstance(names, list) or len(names) != 3:
            raise ConfigError(
                f"where: {item!r}: give between: [x, low, high] or compare: [x, '<=', limit]"
            )
        more = {name: value for name, value in item.items() if name != kind}
        known = ["closed", "of"] if kind == "between" else []
        for name in more:
            if name not in known:
                raise ConfigError(f"where: {unknown('field', name, [str(kind), *known])}")
        found.append(Between(*names, **more) if kind == "between" else Compare(*names))
    return tuple(found)


def visible(schema: pa.Schema) -> list[str]:
    """The columns of a master that a user knows: without those that only pages have."""
    return [name for name in schema.names if name not in (END_COLUMN, CODE_COLUMN)]


def visible_of_stream(schema: pa.Schema) -> list[str]:
    """The columns of a stream that a user knows."""
    return [name for name in schema.names if name not in (ARRIVAL, GROUP)]


def _check_names(owner: Any, *names: Any) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{owner!r}: {name!r} is not a column name")
