"""The alternatives to semistream: one adapter file per rival.

An adapter is one class derived from :class:`lab.rivals.contract.Rival`. To add a rival, write
its file and list it here.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from lab.rivals.contract import Rival

ADAPTERS = {
    "semistream": "SemistreamJoins",
    "dictionary": "Dictionary",
    "lmdb": "Lmdb",
    "rocksdb": "RocksDb",
    "sqlite": "Sqlite",
    "postgresql": "PostgreSql",
    "duckdb": "DuckDb",
    "polars": "Polars",
    "spark_static": "SparkStatic",
}


def rival(name: str) -> type[Rival]:
    """The adapter of a rival. Does not import the rival's own packages."""
    found: type[Rival] = getattr(import_module(f"lab.rivals.{name}"), ADAPTERS[name])
    return found


def missing(kind: type[Rival]) -> list[str]:
    """Packages that the rival needs and this environment does not have."""
    return [package for package in kind.packages if find_spec(package) is None]
