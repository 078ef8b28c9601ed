"""Conditions on pairs of a tuple and a master row, beside the equality of keys or without one.

Descriptions only: immutable, compared by value, and picklable (a predicate as far as its function
is). ``engine/pair_filter.py`` evaluates them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from semistream.errors import ConfigError

OPERATORS = ("<", "<=", ">", ">=", "==", "!=")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_CLOSED = ("both", "left", "right", "neither")
_SIDES = ("stream", "master")


class Comparison(NamedTuple):
    """``stream column`` ``operator`` ``master column``."""

    stream: str
    operator: str
    master: str


@dataclass(frozen=True)
class Between:
    """``low <= x <= high``.

    ``x`` is a column of the stream, ``low`` and ``high`` are columns of the master; with
    ``of="master"`` the other way round. ``closed`` says which ends belong to the range: ``both``,
    ``left``, ``right`` or ``neither``. A null matches nothing.

    >>> Between("amount", "low", "high").comparisons
    (Comparison(stream='amount', operator='>=', master='low'), \
Comparison(stream='amount', operator='<=', master='high'))
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


Condition = Between | Compare | Predicate
Where = Condition | Sequence[Condition]


def conditions_of(where: Where | None) -> tuple[Condition, ...]:
    """``where`` in any of its forms as a tuple; all of its conditions must hold."""
    if where is None:
        return ()
    found = (where,) if isinstance(where, Condition) else where
    if not isinstance(found, Sequence) or not all(isinstance(one, Condition) for one in found):
        raise ConfigError(
            f"where={where!r}: give ss.Between, ss.Compare or ss.Predicate, or a list of them"
        )
    return tuple(found)


def master_columns(conditions: Sequence[Condition], schema: pa.Schema) -> list[str]:
    """The master's columns that these conditions read, each once."""
    names: list[str] = []
    for one in conditions:
        if isinstance(one, Predicate):
            names += schema.names if one.master is None else one.master
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


def _check_names(owner: Any, *names: Any) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{owner!r}: {name!r} is not a column name")
