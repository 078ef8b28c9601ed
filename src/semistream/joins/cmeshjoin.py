"""CMESHJOIN (003: Naeem, Dobbie, Lutteroth, Weber): MESHJOIN behind a front stage.

Tuples look up the hot master rows first; only those that miss take part in the mesh. A row
becomes hot when the scan brings it by and it meets ``threshold`` waiting tuples or more.

Waiting is bounded by one cycle, as in MESHJOIN; a tuple that hits the front stage does not wait.

Differences from the paper: those of MESHJOIN and of the front stage; and it needs a master
table sorted by key, because the front stage must hold all rows of a key or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from semistream.joins.front_stage import FrontStageOptions
from semistream.joins.meshjoin import MeshJoin


@dataclass(frozen=True, kw_only=True)
class CachedMeshJoin(FrontStageOptions, MeshJoin):
    """MESHJOIN with a front stage.

    >>> CachedMeshJoin(memory="50MB", front_stage=0.25).name
    'cmeshjoin'
    """

    name: ClassVar[str] = "cmeshjoin"
    needs_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        FrontStageOptions.__post_init__(self)
        MeshJoin.__post_init__(self)
