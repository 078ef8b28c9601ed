"""Opens a run with load shedding, with parking, or with both around it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from semistream.errors import BudgetError, ConfigError
from semistream.memory import format_size, parse_size
from semistream.overload.options import Parking, Shedding
from semistream.overload.parked_store import ParkedStore
from semistream.overload.parking_run import ParkingRun
from semistream.overload.shed_store import ShedStore
from semistream.overload.shedding_run import SheddingRun

DEFAULT_BUFFER = "20MB"


def open_wrapped(
    join: Any,
    start: Callable[[Any], Any],
    shedding: Shedding | None,
    buffer: int | str | None,
    unmatched: str | None,
    parking: Parking | None,
    clock: Callable[[], float],
) -> Any:
    """``start(join)`` opens the inner run, with the part of the budget that buffers leave."""
    _check(join, shedding, unmatched, parking)
    sheds = shedding is not None or buffer is not None
    shed_bytes = parse_size(DEFAULT_BUFFER if buffer is None else buffer, "buffer") if sheds else 0
    park_bytes = parking.buffer_bytes if parking is not None else 0
    options = shedding or Shedding("off")
    memory = parse_size(join.memory)
    own = shed_bytes + park_bytes
    if own >= memory:
        raise ConfigError(
            f"buffer={format_size(own)} is part of memory={format_size(memory)}, and must be "
            "smaller"
        )
    try:
        run = start(replace(join, memory=memory - own))
    except BudgetError as error:
        raise BudgetError(f"without the buffers, which take {own} bytes of it, {error}") from error
    opened = [run]
    try:
        if sheds:
            store = None if options.mode == "off" else ShedStore(options, clock=clock)
            run = SheddingRun(run, join, options, shed_bytes, store)
            opened.append(run)
        if parking is not None:
            run = ParkingRun(run, join, parking, ParkedStore(parking, clock), park_bytes, clock)
    except BaseException:
        opened[-1].close()
        raise
    return run


def _check(
    join: Any, shedding: Shedding | None, unmatched: str | None, parking: Parking | None
) -> None:
    if unmatched not in (None, "park"):
        raise ConfigError(f'unmatched={unmatched!r} is unknown; give "park" or leave it out')
    if (unmatched == "park") != (parking is not None):
        raise ConfigError('give unmatched="park" and parking=ss.Parking(folder) together')
    if parking is None:
        return
    if join.how == "left_anti":
        raise ConfigError(
            'how="left_anti" returns unmatched tuples at once, and unmatched="park" keeps them; '
            "choose one"
        )
    if shedding is not None and shedding.store is not None:
        folder = os.path.abspath(shedding.store)
        if folder == os.path.abspath(parking.path):
            raise ConfigError(f"{folder}: shed and parked tuples need a folder each")
    if shedding is not None and "checkpoint" in (shedding.recover, parking.recover):
        raise ConfigError(
            'recover="checkpoint" is for load shedding or parking alone: their folders cannot be '
            'checkpointed in one step. Use recover="all" with both'
        )
    if shedding is not None and shedding.mode == "random":
        raise ConfigError(
            "mode 'random' estimates the join of the tuples so far, and parking changes it later; "
            "choose another mode"
        )
