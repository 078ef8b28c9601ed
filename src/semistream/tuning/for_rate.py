"""The memory for a rate where no sample of the stream exists yet, as in ``memory="auto"``.

Nothing is known of the stream, so the estimate is a cautious one: all keys are equally
frequent, tuples have 64 bytes beside their key, and every micro-batch is drained. A skewed
stream needs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from semistream.cost import Traffic, uniform
from semistream.engine.binding import Binding, On, key_pairs
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.errors import ConfigError
from semistream.tuning.plan import TuningPlan
from semistream.tuning.sample import Observed
from semistream.tuning.tuner import Tuner, machine_for

_COLUMNS = 8  # of 8 bytes, beside the key
_BATCH = (1_000, 50_000)  # least and most tuples of a batch: those of a second in between
_MARGIN = 1.25  # rows that are coalesced before and after a join
_LEAST = 1 << 20  # bytes of a join: a slow stream may have tuples that are much wider


def memory_for_rate(
    masters: Sequence[Any],
    rate: float,
    using: str = "auto",
    workers: int = 1,
    on: Sequence[On] = (),
) -> tuple[int, list[TuningPlan]]:
    """(bytes for all tables together, the plan of each); ``workers`` share the rate equally.

    ``on`` is that of each table, for those that have no key of their own: plain Parquet files.
    """
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < 1e12:
        raise ConfigError(f"rate={rate!r}: give tuples per second, more than 0")
    plans = []
    for number, master in enumerate(masters):
        names = list(master.key) or list(key_pairs(on[number]).values())
        plans.append(_plan(master, names, rate / workers, using))
    least = sum(max(_LEAST, int(plan.join.memory)) for plan in plans)
    return int(_MARGIN * workers * least), plans


def _plan(master: Any, names: list[str], rate: float, using: str) -> TuningPlan:
    name = using if using != "auto" else "sweepjoin" if master.ordered else "meshjoin"
    fields = [pa.field(key, master.schema.field(key).type) for key in names]
    fields += [pa.field(f"__column{i}", pa.int64()) for i in range(_COLUMNS)]
    schema = pa.schema(fields)
    binding = Binding(master, names, None, "inner")
    binding.bind(schema)
    empty = pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema)
    stream = StreamShape.of(empty, TupleLayout(binding, schema)).with_widest(8 * len(fields))
    batch = int(min(max(rate, _BATCH[0]), _BATCH[1]))
    traffic = Traffic(uniform(max(1, master.num_rows)), push=batch, drained=True)
    seen = Observed(TableShape.of(master, binding), stream, traffic)
    return Tuner(seen, machine_for(master), [name], "inner", None).least_memory(rate, None)
