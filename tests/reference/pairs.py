"""A run of our join and the reference that must do the same, for each of the nine joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reference import (
    chybridjoin,
    cinlj,
    cmeshjoin,
    hybridjoin,
    inlj,
    meshjoin,
    optimised_x_hybridjoin,
    r_meshjoin,
    x_hybridjoin,
)
from reference.observed import (
    Watched,
    build,
    chunk_and_window_of,
    front_rows_of,
    output_batch_of,
    pool_pages_of,
    relation_of,
    smallest_memory,
    window_of,
)
from reference.trace import Loop, Relation

BYTES_OF_A_PINNED_ROW = 16  # two int64 columns


@dataclass(frozen=True)
class Knobs:
    """What a test varies. Joins ignore what they do not have."""

    extra_memory: int = 0  # bytes above the smallest budget
    padding: int = 128  # bytes that make a stream tuple wider
    pages_at_once: int = 2
    threshold: int = 2
    front_bytes: int = 2_400
    pinned_rows: int = 14
    hot_keys: tuple[int, ...] | None = None
    observe: int = 20
    span: int = 12


@dataclass
class Pair:
    """Both sides, and the largest batch that both take in with one look at the front stage."""

    ours: Watched
    reference: Loop
    largest_push: int


def pair(name: str, master: Any, relation: Relation, knobs: Knobs) -> Pair:
    options = _OPTIONS.get(name, lambda _: {})(knobs)
    options |= {"disk_buffer_pages": 1 if name == "r-meshjoin" else knobs.pages_at_once}
    options |= {"padding": knobs.padding}
    memory = smallest_memory(name, master, **options) + knobs.extra_memory
    options |= {"memory": memory}
    reference, largest_push = _REFERENCES[name](name, master, relation, knobs, options)
    return Pair(Watched(name, master, **options), reference, largest_push)


# -- options of ours -------------------------------------------------------------------------------


def _front(knobs: Knobs) -> dict[str, Any]:
    return {"front_stage": knobs.front_bytes, "threshold": knobs.threshold}


def _hot(knobs: Knobs) -> dict[str, Any]:
    hot_keys = None if knobs.hot_keys is None else list(knobs.hot_keys)
    # The papers pin once.
    return {"hot_keys": hot_keys, "observe": knobs.observe, "adapt": False}


_OPTIONS: dict[str, Callable[[Knobs], dict[str, Any]]] = {
    "r-meshjoin": lambda knobs: {"group_pages": knobs.pages_at_once},
    "x-hybridjoin": lambda knobs: (
        _hot(knobs) | {"pinned": knobs.pinned_rows * BYTES_OF_A_PINNED_ROW}
    ),
    "optimised-x-hybridjoin": lambda knobs: _hot(knobs) | {"pinned": knobs.front_bytes},
    "cmeshjoin": _front,
    "chybridjoin": _front,
    "cinlj": lambda knobs: _front(knobs) | {"span": knobs.span},
}


@cache
def front_rows(front_bytes: int) -> int:
    """Rows that a front stage of ``front_bytes`` bytes holds, for any join."""
    with TemporaryDirectory() as folder:
        master = build(Path(folder) / "table", range(100), 384)
        options = {"front_stage": front_bytes, "disk_buffer_pages": 1}
        memory = smallest_memory("chybridjoin", master, **options)
        return front_rows_of("chybridjoin", master, relation_of(master), memory=memory, **options)


# -- the references --------------------------------------------------------------------------------

Made = tuple[Loop, int]
ANY_SIZE = 40


def _mesh(name: str, master: Any, relation: Relation, knobs: Knobs, options: Any) -> Made:
    partitions = max(1, -(-len(relation) // knobs.pages_at_once))
    chunk, window = chunk_and_window_of(name, master, partitions, **options)
    sizes = {"chunk": chunk, "window": window}
    if name == "r-meshjoin":
        group = knobs.pages_at_once
        made: Loop = r_meshjoin.ReducedMeshJoin(
            relation, group=group, **sizes, **r_meshjoin.AS_BUILT
        )
        return made, ANY_SIZE
    sizes |= {"pages_at_once": knobs.pages_at_once}
    if name == "meshjoin":
        return meshjoin.MeshJoin(relation, **sizes, **meshjoin.AS_BUILT), ANY_SIZE
    made = cmeshjoin.CachedMeshJoin(
        relation,
        front_rows=front_rows(knobs.front_bytes),
        threshold=knobs.threshold,
        **sizes,
        **cmeshjoin.AS_BUILT,
    )
    return made, output_batch_of(name, master, window, **options)


def _hybrid(name: str, master: Any, relation: Relation, knobs: Knobs, options: Any) -> Made:
    window = window_of(name, master, **options)
    output_batch = output_batch_of(name, master, window, **options)
    sizes = {
        "pages_at_once": min(knobs.pages_at_once, max(1, len(relation))),
        "window": window,
        "output_batch": output_batch,
    }
    hot = {"hot_keys": knobs.hot_keys, "observe": knobs.observe}
    if name == "hybridjoin":
        return hybridjoin.HybridJoin(relation, **sizes, **hybridjoin.AS_BUILT), ANY_SIZE
    if name == "x-hybridjoin":
        made: Loop = x_hybridjoin.XHybridJoin(
            relation, pinned_rows=knobs.pinned_rows, **hot, **sizes, **x_hybridjoin.AS_BUILT
        )
        return made, ANY_SIZE
    sizes |= {"front_rows": front_rows(knobs.front_bytes)}
    if name == "optimised-x-hybridjoin":
        made = optimised_x_hybridjoin.OptimisedXHybridJoin(
            relation, **hot, **sizes, **optimised_x_hybridjoin.AS_BUILT
        )
        return made, output_batch
    made = chybridjoin.CachedHybridJoin(
        relation, threshold=knobs.threshold, **sizes, **chybridjoin.AS_BUILT
    )
    return made, output_batch


def _nested_loop(name: str, master: Any, relation: Relation, knobs: Knobs, options: Any) -> Made:
    # a threshold too high for the probing pushes to reach, however it moves
    pool = {**options, "threshold": 10**60} if name == "cinlj" else options
    sizes = {"pool_pages": pool_pages_of(name, master, relation, **pool)}
    if name == "inlj":
        return inlj.IndexNestedLoopJoin(relation, **sizes, **inlj.AS_BUILT), 1
    made = cinlj.CachedIndexNestedLoopJoin(
        relation,
        front_rows=front_rows(knobs.front_bytes),
        threshold=knobs.threshold,
        span=knobs.span,
        output_batch=output_batch_of(name, master, 64, **pool),
        **sizes,
        **cinlj.AS_BUILT,
    )
    return made, 1


_REFERENCES: dict[str, Callable[..., Made]] = {
    "meshjoin": _mesh,
    "r-meshjoin": _mesh,
    "cmeshjoin": _mesh,
    "hybridjoin": _hybrid,
    "x-hybridjoin": _hybrid,
    "optimised-x-hybridjoin": _hybrid,
    "chybridjoin": _hybrid,
    "inlj": _nested_loop,
    "cinlj": _nested_loop,
}
JOINS = tuple(_REFERENCES)
