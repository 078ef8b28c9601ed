"""Small tables and streams whose joins call the kernels with every combination of types.

Kernels see arrays, so what counts is how a column becomes arrays: a key is used as it is, copied
to 64 bits or hashed; a value has a fixed width, or is text with 32- or 64-bit offsets; it may be
null; a table has one version or changes on top of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.master import MasterTable

ROWS = 100
_PAGE_BYTES = 1_000  # several pages
_HOT = 7  # every second tuple has one of so many keys, which enter a front stage

_NULL = 3  # of eleven tuples, where a shape has nulls

_Key = tuple[pa.DataType, Callable[[int], Any]]
_INT: _Key = (pa.int64(), lambda i: 3 * i)
_TEXT: _Key = (pa.string(), lambda i: f"key {i:04}")
_LARGE: _Key = (pa.large_string(), lambda i: f"key {i:04}")
_NARROW: _Key = (pa.int32(), lambda i: 3 * i)


@dataclass(frozen=True)
class Shape:
    """The key columns of the master, those of the stream if they differ, and the payload."""

    key: tuple[_Key, ...]
    stream: tuple[_Key, ...] | None = None
    unique: bool = True
    nulls: bool = False
    changed: bool = False
    payload: str = "texts"
    rows: int = ROWS

    @property
    def on(self) -> list[str]:
        return [f"k{i}" for i in range(len(self.key))]

    def master(self, first: int = 0, rows: int | None = None) -> pa.Table:
        copies = 1 if self.unique else 3
        numbers = [first + i // copies for i in range(rows or self.rows)]
        return pa.table({**self._keys(self.key, numbers), **self._payload(numbers)})

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Hot, cold, absent and null keys; one tuple; slices of buffers."""
        hot = [i % _HOT if i % 2 else (i * 37) % (ROWS + 20) for i in range(ROWS)]
        yield self._batch(hot)
        yield self._batch([5])
        yield self._batch(hot[::-1]).slice(3)
        if self.nulls:
            yield self._batch([_NULL, _NULL])

    def _batch(self, numbers: list[int]) -> pa.RecordBatch:
        wanted = [None if self.nulls and n % 11 == _NULL else n for n in numbers]
        columns = {
            **self._keys(self.stream or self.key, wanted),
            "n": pa.array(numbers, pa.int64()),
        }
        if self.payload != "fixed":
            columns["t"] = pa.array([f"tuple {n}" for n in numbers])
        return pa.RecordBatch.from_pydict(columns)

    @staticmethod
    def _keys(kinds: tuple[_Key, ...], numbers: list[Any]) -> dict[str, pa.Array]:
        return {
            f"k{c}": pa.array([None if n is None else value(n) for n in numbers], kind)
            for c, (kind, value) in enumerate(kinds)
        }

    def _payload(self, numbers: list[int]) -> dict[str, pa.Array]:
        def array(values: list[Any], kind: pa.DataType) -> pa.Array:
            if self.nulls:
                values = [None if i % 5 == 2 else value for i, value in enumerate(values)]
            return pa.array(values, kind)

        texts = [f"value {n}" * (n % 4) for n in numbers]
        payload = {
            "long": array(numbers, pa.int64()),
            "int": array(numbers, pa.int32()),
            "byte": array([n % 100 for n in numbers], pa.int8()),
        }
        if self.payload != "fixed":
            payload["text"] = array(texts, pa.string())
            payload["large"] = array(texts, pa.large_string())
        if self.payload == "all":
            payload["flag"] = array([n % 2 == 0 for n in numbers], pa.bool_())
            payload["fixed"] = array([b"%05d" % n for n in numbers], pa.binary(5))
            payload["list"] = array([[n] * (n % 3) for n in numbers], pa.list_(pa.int32()))
            payload["words"] = array([texts[:2]] * len(numbers), pa.list_(pa.string()))
            payload["colour"] = array(["red"] * len(numbers), pa.string()).dictionary_encode()
        return payload


SHAPES: dict[str, Shape] = {
    "int64": Shape((_INT,)),
    "int64, fixed": Shape((_INT,), payload="fixed"),
    "text": Shape((_TEXT,)),
    "large text": Shape((_LARGE,), nulls=True, payload="fixed"),
    "int64, nulls": Shape((_INT,), nulls=True, payload="all"),
    "text, nulls": Shape((_TEXT,), nulls=True, payload="all"),
    "int64, many rows": Shape((_INT,), unique=False),
    "text, many rows": Shape((_TEXT,), unique=False, payload="fixed"),
    "int64, changed": Shape((_INT,), changed=True),
    "text, changed": Shape((_TEXT,), changed=True, unique=False),
    "int32": Shape((_NARROW,)),
    "int32 of the stream": Shape((_INT,), (_NARROW,), changed=True),
    "unsigned": Shape(((pa.uint64(), lambda i: 3 * i),), unique=False),
    "decimal": Shape(((pa.decimal128(9, 2), lambda i: 3 * i),)),
    "wide decimal": Shape(((pa.decimal128(30, 2), lambda i: 3 * i),), nulls=True),
    "empty text": Shape(((pa.large_string(), lambda i: ""),), unique=False, rows=3),
    "composite": Shape((_INT, _TEXT)),
    "composite, nulls": Shape((_NARROW, _TEXT), nulls=True, unique=False, changed=True),
}


class Tables:
    """The master tables of the shapes, built when they are first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[str, Path] = {}
        self.can_read_directly = _can_read_directly(folder)

    def open(self, name: str, mapped: bool | str, version: int | None = None) -> MasterTable:
        if name not in self._built:
            self._built[name] = self._build(SHAPES[name], self._folder / str(len(self._built)))
        return MasterTable.open(self._built[name], version, mapped=mapped)

    @staticmethod
    def _build(shape: Shape, path: Path) -> Path:
        table = MasterTable.build(
            shape.master(), path, key=shape.on, unique=shape.unique, page_bytes=_PAGE_BYTES
        )
        if shape.changed:
            table = table.upsert(shape.master(first=ROWS // 2, rows=20))
            table.delete(shape.master(first=10, rows=5).select(shape.on))
        return path


def _can_read_directly(folder: Path) -> bool:
    """Whether the file system reads without the page cache; some in memory do not."""
    probe = folder / "probe"
    probe.touch()
    try:
        os.close(os.open(probe, os.O_RDONLY | getattr(os, "O_DIRECT", 0)))
    except OSError:
        return False
    return hasattr(os, "O_DIRECT")
