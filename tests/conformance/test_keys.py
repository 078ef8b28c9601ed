"""Keys of every type, single and composite, unchanged and widened."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from conformance.suite import conform, every_algorithm, every_join
from harness import Case, build

UTC = timezone.utc


def number(low: int, high: int) -> Callable[[random.Random], int]:
    """Integers of a range, most of them close to its ends."""
    ends = [*range(low, low + 10), *range(high - 9, high + 1)]
    return lambda rng: rng.choice([*ends, rng.randint(low, high)])


def few(low: int = 0, high: int = 60) -> Callable[[random.Random], int]:
    return lambda rng: rng.randint(low, high)


def text(rng: random.Random) -> str:
    words = ["", "a", "aa", "a\0", "a\0b", "ß", "Ünï", "日本", "x" * 90, "x" * 89 + "y", "zebra"]
    return rng.choice([*words, f"key {rng.randint(0, 40)}"])


def raw(rng: random.Random) -> bytes:
    return text(rng).encode() + rng.choice([b"", b"\xff", b"\0"])


def moment(rng: random.Random) -> datetime:
    return datetime(1969, 12, 31, 23, 59, 50) + timedelta(seconds=rng.randint(0, 40))


def fine_moment(rng: random.Random) -> datetime:
    return moment(rng) + timedelta(microseconds=rng.choice([0, 0, 1, 500_000]))


def utc(draw: Callable[[random.Random], datetime]) -> Callable[[random.Random], datetime]:
    return lambda rng: draw(rng).replace(tzinfo=UTC)


def day(rng: random.Random) -> date:
    return date(1970, 1, 1) + timedelta(days=rng.randint(-30, 30))


def clock(rng: random.Random) -> time:
    return time(rng.randint(0, 23), rng.choice([0, 30]))


def money(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    largest = 10**digits - 1

    def draw(rng: random.Random) -> Decimal:
        unscaled = rng.choice([largest, -largest, rng.randint(-30, 30)])
        return Decimal(unscaled).scaleb(-scale, Context(prec=80))

    return draw


def truth(rng: random.Random) -> bool:
    return rng.random() < 0.5


@dataclass(frozen=True)
class Keys:
    """A key type of the master, one of the stream, and a generator of values."""

    master: pa.DataType
    values: Callable[[random.Random], Any]
    stream: pa.DataType | None = None
    stream_values: Callable[[random.Random], Any] | None = None

    @property
    def name(self) -> str:
        stream = self.stream or self.master
        return f"{self.master}" if stream == self.master else f"{stream} on {self.master}"

    def case(self) -> Case:
        rng = random.Random(self.name)
        stream_values = self.stream_values or self.values
        master = [self.values(rng) for _ in range(60)]
        stream = [stream_values(rng) for _ in range(30)] + [None, None]
        if self.stream_values is None:
            stream += rng.choices(master, k=12)
        return Case(
            self.name,
            pa.table({"k": column(stream, self.stream or self.master), "n": range(len(stream))}),
            pa.table({"k": column(master, self.master), "v": range(len(master))}),
            page_bytes=448,
        )


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


INT8, INT32 = number(-(2**7), 2**7 - 1), number(-(2**31), 2**31 - 1)
INT64, UINT64 = number(-(2**63), 2**63 - 1), number(0, 2**64 - 1)

SAME_TYPE = [
    Keys(pa.int8(), INT8),
    Keys(pa.int16(), number(-(2**15), 2**15 - 1)),
    Keys(pa.int32(), INT32),
    Keys(pa.int64(), INT64),
    Keys(pa.uint8(), number(0, 2**8 - 1)),
    Keys(pa.uint16(), number(0, 2**16 - 1)),
    Keys(pa.uint32(), number(0, 2**32 - 1)),
    Keys(pa.uint64(), UINT64),
    Keys(pa.bool_(), truth),
    Keys(pa.string(), text),
    Keys(pa.large_string(), text),
    Keys(pa.binary(), raw),
    Keys(pa.large_binary(), raw),
    Keys(pa.binary(3), lambda rng: f"{rng.randint(0, 60):03}".encode()),
    Keys(pa.dictionary(pa.int32(), pa.string()), text),
    Keys(pa.date32(), day),
    Keys(pa.date64(), day),
    Keys(pa.time32("s"), clock),
    Keys(pa.time64("us"), clock),
    Keys(pa.timestamp("s"), moment),
    Keys(pa.timestamp("ms"), moment),
    Keys(pa.timestamp("us"), fine_moment),
    Keys(pa.timestamp("ns"), fine_moment),
    Keys(pa.timestamp("us", tz="UTC"), utc(fine_moment)),
    Keys(pa.duration("us"), lambda rng: timedelta(microseconds=rng.randint(-30, 30))),
    Keys(pa.decimal128(7, 2), money(7, 2)),
    Keys(pa.decimal128(18, 4), money(18, 4)),
    Keys(pa.decimal128(19, 4), money(19, 4)),
    Keys(pa.decimal128(38, 10), money(38, 10)),
    Keys(pa.decimal256(60, 3), money(60, 3)),
]

WIDENED = [
    Keys(pa.int64(), few(), pa.int32()),
    Keys(pa.int32(), few(-30, 30), pa.int64()),
    Keys(pa.int64(), INT64, pa.int8(), INT8),
    Keys(pa.int8(), INT8, pa.int64(), INT64),
    Keys(pa.int64(), INT64, pa.uint32(), few()),
    # values out of the other type's range match nothing; they do not wrap around
    Keys(pa.uint64(), UINT64, pa.int64(), INT64),
    Keys(pa.int64(), INT64, pa.uint64(), UINT64),
    Keys(pa.uint64(), few(), pa.int16(), few(-30, 30)),
    Keys(pa.string(), text, pa.large_string()),
    Keys(pa.large_string(), text, pa.string()),
    Keys(pa.string(), text, pa.dictionary(pa.int8(), pa.string())),
    Keys(pa.binary(), raw, pa.large_binary()),
    Keys(pa.date64(), day, pa.date32()),
    Keys(pa.timestamp("us"), fine_moment, pa.timestamp("s"), moment),
    Keys(pa.timestamp("ns"), fine_moment, pa.timestamp("us")),
    Keys(pa.timestamp("us", tz="UTC"), utc(moment), pa.timestamp("us", tz="Europe/Berlin")),
    Keys(pa.decimal128(18, 2), money(9, 2), pa.decimal128(9, 2)),
    Keys(pa.decimal128(9, 2), money(9, 2), pa.decimal128(18, 2), money(18, 2)),
    Keys(pa.decimal128(18, 4), money(8, 2), pa.decimal128(10, 2)),
    Keys(pa.decimal128(38, 4), money(10, 2), pa.decimal128(10, 2)),
    Keys(pa.decimal128(12, 2), lambda rng: Decimal(rng.randint(0, 60)), pa.int64(), few()),
]


@every_join([keys.case() for keys in SAME_TYPE])
def test_a_key_of_every_type(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))


@every_join([keys.case() for keys in WIDENED])
def test_keys_that_widen(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))


def composite(name: str, on: Any, seed: int, *draws: tuple[pa.DataType, Any]) -> Case:
    rng = random.Random(seed)
    stream_names = list(on)
    master_names = list(on.values()) if isinstance(on, dict) else list(on)
    master = [[draw(rng) for _, draw in draws] for _ in range(80)]
    stream = [[draw(rng) for _, draw in draws] for _ in range(24)] + rng.choices(master, k=24)
    for row in rng.sample(stream[:24], 6):
        row[rng.randrange(len(row))] = None

    def table(rows: list[list[Any]], names: list[str]) -> pa.Table:
        columns = {
            names[i]: pa.array([row[i] for row in rows], kind) for i, (kind, _) in enumerate(draws)
        }
        # the key columns are neither first nor together
        return pa.table(
            {"x": range(len(rows)), **columns, "y": [f"y{i}" for i in range(len(rows))]}
        )

    stream_table = table(stream, stream_names).rename_columns(["n", *stream_names, "note"])
    return Case(name, stream_table, table(master, master_names), on=on, page_bytes=1024)


COMPOSITE = [
    composite("two integers", ["a", "b"], 1, (pa.int64(), few(0, 9)), (pa.int32(), few(0, 9))),
    composite("text and integer", ["a", "b"], 2, (pa.string(), text), (pa.int64(), few(0, 3))),
    composite("two texts", ["a", "b"], 3, (pa.string(), text), (pa.string(), text)),
    composite(
        "three of a kind each",
        ["a", "b", "c"],
        4,
        (pa.date32(), day),
        (pa.bool_(), truth),
        (pa.decimal128(20, 2), money(3, 2)),
    ),
    composite(
        "other names in the master",
        {"p": "k1", "q": "k2"},
        5,
        (pa.int64(), few(0, 9)),
        (pa.string(), text),
    ),
    composite(
        "one shared name, one other",
        {"k1": "k1", "q": "k2"},
        6,
        (pa.int64(), few(0, 9)),
        (pa.uint64(), few(0, 9)),
    ),
    composite("one column in a list", ["a"], 7, (pa.int64(), few())),
    composite("one column in a mapping", {"a": "b"}, 8, (pa.string(), text)),
]


@every_join(COMPOSITE)
def test_composite_keys(algorithm: str, how: str, case: Case, master_of: Any) -> None:
    conform(algorithm, how, case, master_of(case))


REFUSED = [
    (pa.int64(), pa.string()),
    (pa.string(), pa.int64()),
    (pa.string(), pa.binary()),
    (pa.int64(), pa.float64()),
    (pa.int64(), pa.bool_()),
    (pa.bool_(), pa.int8()),
    (pa.int64(), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.date32(), pa.timestamp("us")),
    (pa.int64(), pa.decimal128(9, 2)),
    (pa.decimal128(9, 2), pa.decimal128(9, 4)),
    (pa.int64(), pa.list_(pa.int64())),
    (pa.int64(), pa.struct([("a", pa.int64())])),
    (pa.int64(), pa.null()),
]


@every_algorithm
@pytest.mark.parametrize(("master", "stream"), REFUSED, ids=lambda kind: str(kind))
def test_incompatible_key_types_are_refused(
    algorithm: str, master: pa.DataType, stream: pa.DataType, master_of: Any
) -> None:
    table = pa.table({"k": pa.array([], master), "v": pa.array([], pa.int64())})
    case = Case(f"empty {master}", table, table)
    batch = pa.record_batch({"k": pa.array([None], stream)})
    with ss.join(algorithm, memory="4MB").open(master_of(case), on="k") as run:
        with pytest.raises(ss.SchemaError) as refusal:
            list(run.push(batch))
        assert "'k'" in str(refusal.value)
        assert str(stream) in str(refusal.value)
        assert run.stats.tuples_in == 0


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64()), pa.null()], ids=str)
def test_unsupported_master_key_types_are_refused(kind: pa.DataType, tmp_path: Path) -> None:
    table = pa.table({"k": pa.array([], kind), "v": pa.array([], pa.int64())})
    with pytest.raises(ss.SchemaError, match=r"'k'"):
        build(tmp_path / "master", table, ["k"])
