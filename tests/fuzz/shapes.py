"""Generators of keys and payloads of every type, rows, and streams.

Plain ``random.Random``: a case costs milliseconds, and its seed repeats it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]
Value = Callable[[int], Any]

_DAY = dt.date(2020, 1, 1)
_NOON = dt.datetime(2020, 1, 1, 12)
_ODD = ("", "\0", "a\0b", "é", "\U0001f600", "z" * 40)


def _text(i: int) -> str:
    return _ODD[i] if i < len(_ODD) else f"{'ab' * (i % 4)}{i:03}"


def _number(i: int) -> int:
    return {0: -(2**63), 1: 2**63 - 1}.get(i, 3 * i - 60)


# Distinct values by number; a stream's column may have another type that widens to the master's.
KEYS: dict[str, tuple[pa.DataType, Value, tuple[pa.DataType, ...]]] = {
    "int64": (pa.int64(), _number, ()),
    "narrow int64": (pa.int64(), lambda i: 3 * i - 60, (pa.int32(), pa.int16())),
    "int32": (pa.int32(), lambda i: 5 * i - 100, (pa.int64(),)),
    "uint64": (pa.uint64(), lambda i: 2**64 - 1 - i if i % 9 == 0 else i, ()),
    "date": (pa.date32(), lambda i: _DAY + dt.timedelta(days=3 * i - 50), ()),
    "timestamp": (
        pa.timestamp("us"),
        lambda i: _NOON + dt.timedelta(minutes=i),
        (pa.timestamp("s"),),
    ),
    "zoned": (
        pa.timestamp("us", tz="UTC"),
        lambda i: (_NOON + dt.timedelta(hours=i)).replace(tzinfo=dt.timezone.utc),
        (),
    ),
    "time": (pa.time64("us"), lambda i: dt.time(i % 24, i // 24 % 60, i // 1440), ()),
    "decimal": (pa.decimal128(9, 2), lambda i: Decimal(i - 40).scaleb(-2), ()),
    "wide decimal": (pa.decimal128(30, 3), lambda i: Decimal(i * 10**20 - 10**21).scaleb(-3), ()),
    "text": (pa.string(), _text, (pa.large_string(), pa.dictionary(pa.int32(), pa.string()))),
    "large text": (pa.large_string(), _text, (pa.string(),)),
    "binary": (pa.binary(), lambda i: _text(i).encode(), (pa.large_binary(),)),
    "fixed binary": (pa.binary(3), lambda i: bytes((i % 5, i // 5 % 256, i // 1280)), ()),
    "bool": (pa.bool_(), lambda i: bool(i % 2), ()),
}


def _words(rng: Random) -> str:
    return "".join(rng.choice(("x", "yy", "é", "\0")) for _ in range(rng.randrange(12)))


_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
PAYLOADS: dict[pa.DataType, Callable[[Random], Any]] = {
    pa.int64(): lambda rng: rng.randrange(-(2**63), 2**63),
    pa.int8(): lambda rng: rng.randrange(-128, 128),
    pa.float64(): lambda rng: rng.choice((0.0, -0.0, 1.5, rng.random())),
    pa.string(): _words,
    pa.large_binary(): lambda rng: rng.randbytes(rng.randrange(9)),
    pa.binary(5): lambda rng: rng.randbytes(5),
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.decimal128(12, 3): lambda rng: Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-3),
    pa.date32(): lambda rng: _DAY + dt.timedelta(days=rng.randrange(999)),
    pa.null(): lambda rng: None,
    pa.list_(pa.int8()): lambda rng: [rng.randrange(9) for _ in range(rng.randrange(4))],
    _STRUCT: lambda rng: {"a": rng.randrange(9), "b": _words(rng)},
    pa.dictionary(pa.int16(), pa.string()): lambda rng: rng.choice(("red", "green", "blue")),
}


@dataclass(frozen=True)
class Column:
    """Payload values of one type, with occasional nulls."""

    name: str
    kind: pa.DataType
    nulls: float

    def draw(self, rng: Random) -> Any:
        return None if rng.random() < self.nulls else PAYLOADS[self.kind](rng)


def draw_columns(rng: Random, prefix: str, most: int) -> list[Column]:
    kinds = list(PAYLOADS)
    return [
        Column(f"{prefix}{i}", rng.choice(kinds), rng.choice((0.0, 0.0, 0.2, 1.0)))
        for i in range(rng.randrange(most + 1))
    ]


@dataclass(frozen=True)
class Shape:
    """The key columns, all keys, and the payload columns."""

    kinds: tuple[str, ...]
    domain: list[Row]
    payloads: list[Column]
    unique: bool

    @classmethod
    def draw(cls, rng: Random) -> Shape:
        names = list(KEYS)
        kinds = tuple(rng.choice(names) for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 3))))
        size = rng.choice((1, 2, 20, 80, 250))
        places = [tuple(rng.randrange(size) for _ in kinds) for _ in range(size)]
        if len(kinds) == 1:
            places = [(i,) for i in range(size)]
        values = [tuple(KEYS[k][1](i) for k, i in zip(kinds, at, strict=True)) for at in places]
        domain = list(dict.fromkeys(values))
        payloads = draw_columns(rng, rng.choice(("p", "m")), 3)
        return cls(kinds, domain, payloads, unique=rng.random() < 0.5)

    @property
    def key(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.kinds))]

    @property
    def schema(self) -> pa.Schema:
        keys = [
            pa.field(name, KEYS[kind][0]) for name, kind in zip(self.key, self.kinds, strict=True)
        ]
        return pa.schema(
            [*keys, ("v", pa.int64()), *((column.name, column.kind) for column in self.payloads)]
        )

    def rows(self, rng: Random, most: int, numbers: Any) -> list[Row]:
        """Rows: one per key; sometimes many if the table is not unique."""
        rows = []
        for key in rng.sample(self.domain, min(len(self.domain), rng.randrange(most + 1))):
            copies = 1 if self.unique else rng.choice((1, 1, 1, 2, 3))
            if not self.unique and rng.random() < 0.01:
                copies = 60  # over several pages
            for _ in range(copies):
                values = (column.draw(rng) for column in self.payloads)
                rows.append((*key, next(numbers), *values))
        rng.shuffle(rows)
        return rows


def table_of(rows: list[Row], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class StreamShape:
    """The stream's columns; its key columns are called like the master's, or ``s0``, ``s1``."""

    key: list[str]
    schema: pa.Schema
    payloads: list[Column]
    nulls: float

    @classmethod
    def draw(cls, rng: Random, shape: Shape) -> StreamShape:
        key = [name if rng.random() < 0.5 else f"s{i}" for i, name in enumerate(shape.key)]
        types = [
            rng.choice((KEYS[kind][0], *KEYS[kind][2])) if rng.random() < 0.4 else KEYS[kind][0]
            for kind in shape.kinds
        ]
        payloads = draw_columns(rng, "p", 2)
        fields = [("n", pa.int64()), *zip(key, types, strict=True)]
        fields += [(column.name, column.kind) for column in payloads]
        return cls(key, pa.schema(fields), payloads, rng.choice((0.0, 0.1)))

    def draw_batch(self, rng: Random, shape: Shape, count: int, start: int) -> pa.RecordBatch:
        """Some keys repeat often, some are absent from the master, some are null."""
        domain = shape.domain
        hot = domain[: rng.choice((1, 5, 30))]
        rows = []
        for n in range(start, start + count):
            key = rng.choice(hot) if rng.random() < 0.5 else rng.choice(domain)
            parts = [None if rng.random() < self.nulls else part for part in key]
            rows.append((n, *parts, *(column.draw(rng) for column in self.payloads)))
        table = table_of(rows, self.schema).combine_chunks()
        if not count:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        return table.to_batches()[0]
