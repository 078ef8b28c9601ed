"""Writes the golden tables. To be run for a new format version only, by hand:

python tests/golden/make_tables.py
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from semistream.master import MasterTable

HERE = Path(__file__).parent
DAY = date(2024, 1, 1)
KEYS: dict[str, list[str]] = {"int64": ["id"], "text": ["id"], "composite": ["shop", "day"]}


def key_of(kind: str, number: int) -> tuple[Any, ...]:
    if kind == "int64":
        return (number * 10**9 - 5 * 10**9,)
    if kind == "text":
        return (f"product {number} \u00e9" if number % 3 else f"p{number}",)
    return (number % 5 - 2, DAY + timedelta(days=number))


def rows(kind: str, numbers: range, text: str) -> pa.Table:
    types = {"int64": [pa.int64()], "text": [pa.string()], "composite": [pa.int16(), pa.date32()]}
    keys = [key_of(kind, number) for number in numbers]
    columns = {
        name: pa.array([key[i] for key in keys], types[kind][i])
        for i, name in enumerate(KEYS[kind])
    }
    return pa.table({**columns, "text": [f"{text} {number}" for number in numbers]})


def contents(kind: str) -> dict[tuple[Any, ...], str]:
    """What each table must have: 40 rows, of which some are replaced, added and deleted."""
    texts = {number: f"base {number}" for number in range(40)}
    texts |= {number: f"new {number}" for number in range(35, 45)}
    return {key_of(kind, number): text for number, text in texts.items() if number not in (3, 36)}


def make(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / kind
        table = MasterTable.build(
            rows(kind, range(40), "base"), path, key=KEYS[kind], unique=True, page_bytes=500
        )
        table = table.upsert(rows(kind, range(35, 45), "new"))
        gone = pa.concat_tables([rows(kind, range(n, n + 1), "") for n in (3, 36)])
        table.delete(gone.select(KEYS[kind])).vacuum(keep=1)
        shutil.rmtree(HERE / kind, ignore_errors=True)
        for part in ("segments", "manifests"):
            shutil.copytree(path / part, HERE / kind / part)


if __name__ == "__main__":
    for kind in KEYS:
        make(kind)
