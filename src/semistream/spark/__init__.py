"""Streams enriched inside Spark; the only place that imports pyspark.

Names are loaded on first use: a Python worker imports this package for each of its modules, and a
task needs only some of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semistream.spark.build import build_master
    from semistream.spark.enrich import Lookup
    from semistream.spark.listener import Metrics
    from semistream.spark.waiting import drain

__all__ = ["Lookup", "Metrics", "build_master", "drain"]  # ``enrich`` is a module: use ss.enrich

_MODULES = {
    "build_master": "build",
    "drain": "waiting",
    "Lookup": "enrich",
    "Metrics": "listener",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
