"""Where memory comes to rest if it moves while a run works (``engine/memory_mover.py``,
``engine/buffer_mover.py``).

A run moves memory between front stage, disk buffer and window to where it gains more, so it ends
near the highest rate: a front stage for which another one would save less than 5 %, and a disk
buffer within a factor of 2 of the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from semistream.cost.case import Case
from semistream.cost.prediction import Prediction
from semistream.errors import BudgetError

SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
_MOST_BUFFER = 4  # budget // 4, as in ``engine/window_policy.py``
_WORTH = 1.05  # times the rate: less is not worth moving the disk buffer for


def at_rest(case: Case, model: Callable[[Case], Prediction]) -> Prediction:
    """The model's prediction, with the best share and disk buffer if the join moves memory."""
    join, sizes = case.join, dict[str, float]()
    if join.moves_memory:
        found, share = max(
            ((model(case.using(front_stage=share, adapt=False)), share) for share in SHARES),
            key=lambda pair: pair[0].rate,
        )
        sizes["front_stage"] = share
        case = case.using(front_stage=share, adapt=False)
    else:
        found = model(case)
    if join.moves_buffer:
        others = _with_other_buffers(case, model)
        best, pages = max(others, key=lambda pair: pair[0].rate, default=(found, 0))
        if best.rate > _WORTH * found.rate:
            found, sizes["disk_buffer_pages"] = best, pages
    return replace(found, at_rest=sizes)


def _with_other_buffers(
    case: Case, model: Callable[[Case], Prediction]
) -> Iterator[tuple[Prediction, int]]:
    """With half or twice the pages, and so on, as long as that serves more."""
    page, start = max(1, case.table.max_page_bytes), case.plan.buffer_pages
    most = min(int(case.join.memory) // _MOST_BUFFER // page, max(1, case.table.num_pages))
    for step in (0.5, 2.0):
        before, pages = 0.0, int(start * step)
        while 1 <= pages <= most:
            try:
                found = model(case.using(disk_buffer_pages=pages, adapt=False))
            except BudgetError:
                break
            if found.rate <= before:
                break
            yield found, pages
            before, pages = found.rate, int(pages * step)
