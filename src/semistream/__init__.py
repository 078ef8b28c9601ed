"""semistream joins a fast stream with a table that is too big for memory.

>>> import semistream as ss
>>> ss.join("hybridjoin", memory="50MB").name
'hybridjoin'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.errors import (
    BudgetError,
    ConfigError,
    InternalError,
    MasterTableError,
    SchemaError,
    SemistreamError,
)

if TYPE_CHECKING:
    from semistream.joins import (
        ALGORITHMS,
        CachedHybridJoin,
        CachedIndexNestedLoopJoin,
        CachedMeshJoin,
        HybridJoin,
        IndexNestedLoopJoin,
        Join,
        MeshJoin,
        Observer,
        OptimisedXHybridJoin,
        ReducedMeshJoin,
        Run,
        SweepJoin,
        XHybridJoin,
    )
    from semistream.master import MasterTable
    from semistream.master.sql import SqlMaster
    from semistream.master.sync import DeltaSource, KafkaSource, ParquetSource, SqlSource
    from semistream.overload.options import Parking, Shedding
    from semistream.spark.build import build_master
    from semistream.spark.dashboard import dashboard
    from semistream.spark.enrich import Lookup, enrich
    from semistream.spark.foreach import PostgresSink
    from semistream.spark.sink import register, to_warehouse
    from semistream.tuning import predict, tune
    from semistream.tuning.auto import join

__version__ = "0.1.0"

__all__ = [
    "ALGORITHMS",
    "BudgetError",
    "CachedHybridJoin",
    "CachedIndexNestedLoopJoin",
    "CachedMeshJoin",
    "ConfigError",
    "DeltaSource",
    "HybridJoin",
    "IndexNestedLoopJoin",
    "InternalError",
    "Join",
    "KafkaSource",
    "Lookup",
    "MasterTable",
    "MasterTableError",
    "MeshJoin",
    "Observer",
    "OptimisedXHybridJoin",
    "ParquetSource",
    "Parking",
    "PostgresSink",
    "ReducedMeshJoin",
    "Run",
    "SchemaError",
    "SemistreamError",
    "Shedding",
    "SqlMaster",
    "SqlSource",
    "SweepJoin",
    "XHybridJoin",
    "build_master",
    "dashboard",
    "enrich",
    "join",
    "predict",
    "register",
    "to_warehouse",
    "tune",
]

# Loaded on first use: importing semistream is cheap, and a missing extra raises only when needed.
_LAZY = {
    **dict.fromkeys(
        [
            "ALGORITHMS",
            "CachedHybridJoin",
            "CachedIndexNestedLoopJoin",
            "CachedMeshJoin",
            "HybridJoin",
            "IndexNestedLoopJoin",
            "Join",
            "MeshJoin",
            "Observer",
            "OptimisedXHybridJoin",
            "ReducedMeshJoin",
            "Run",
            "SweepJoin",
            "XHybridJoin",
        ],
        "semistream.joins",
    ),
    "MasterTable": "semistream.master",
    **dict.fromkeys(
        ["DeltaSource", "KafkaSource", "ParquetSource", "SqlSource"], "semistream.master.sync"
    ),
    "Lookup": "semistream.spark.enrich",
    "Parking": "semistream.overload.options",
    "PostgresSink": "semistream.spark.foreach",
    "Shedding": "semistream.overload.options",
    "SqlMaster": "semistream.master.sql",
    "build_master": "semistream.spark.build",
    "dashboard": "semistream.spark.dashboard",
    "enrich": "semistream.spark.enrich",
    "join": "semistream.tuning.auto",
    "predict": "semistream.tuning",
    "register": "semistream.spark.sink",
    "to_warehouse": "semistream.spark.sink",
    "tune": "semistream.tuning",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'semistream' has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("pyspark", "py4j", "pandas"):
            raise
        raise ConfigError(
            f"ss.{name} needs pyspark, and {error.name} is not installed; "
            "pip install 'semistream[spark]'"
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
