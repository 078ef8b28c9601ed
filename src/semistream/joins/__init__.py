"""The semi-stream joins, one file per algorithm, named as published."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from semistream.engine.observer import Observer
from semistream.engine.run import Run
from semistream.errors import ConfigError, unknown
from semistream.joins.base import Join, open_source
from semistream.joins.chybridjoin import CachedHybridJoin
from semistream.joins.cinlj import CachedIndexNestedLoopJoin
from semistream.joins.cmeshjoin import CachedMeshJoin
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.inlj import IndexNestedLoopJoin
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.optimised_x_hybridjoin import OptimisedXHybridJoin
from semistream.joins.r_meshjoin import ReducedMeshJoin
from semistream.joins.sweep.sweepjoin import SweepJoin
from semistream.joins.x_hybridjoin import XHybridJoin

ALGORITHMS: dict[str, type[Join]] = {
    kind.name: kind
    for kind in (
        MeshJoin,
        ReducedMeshJoin,
        IndexNestedLoopJoin,
        HybridJoin,
        XHybridJoin,
        OptimisedXHybridJoin,
        CachedMeshJoin,
        CachedHybridJoin,
        CachedIndexNestedLoopJoin,
        SweepJoin,
    )
}


def join(name: str, **options: Any) -> Join:
    """The join of this name, with its options; :func:`semistream.tuning.auto.join` knows ``auto``.

    >>> join("chybridjoin", memory="50MB").name
    'chybridjoin'
    """
    kind = ALGORITHMS.get(name)
    if kind is None:
        raise ConfigError(unknown("join", name, ALGORITHMS))
    known = [field.name for field in fields(kind)]
    for option in options:
        if option not in known:
            raise ConfigError(f"{name}: {unknown('option', option, known)}")
    try:
        return kind(**options)
    except TypeError as error:  # an option that must be given is missing
        raise ConfigError(f"{name}: {error}") from error


__all__ = [
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
    "join",
    "open_source",
]
