"""A join that runs while its table changes: seconds of every push, and what was joined."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import semistream as ss
from lab.changes.rows import wrong
from lab.engine_data import EngineData


@dataclass
class Pushes:
    """When each push began, how long it took, its output rows and the version that it read."""

    starts: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # seconds of this thread
    rows: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return sum(self.rows) / max(1e-9, sum(self.seconds))

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def worst(self) -> float:
        return max(self.seconds)

    @property
    def switches(self) -> int:
        return len(set(self.versions)) - 1

    def tenth(self, number: int) -> float:
        """The rate in one of ten parts of the time."""
        bounds = np.linspace(self.starts[0], self.starts[-1] + self.seconds[-1], 11)
        chosen = [i for i, s in enumerate(self.starts) if bounds[number] <= s < bounds[number + 1]]
        return sum(self.rows[i] for i in chosen) / max(1e-9, sum(self.seconds[i] for i in chosen))

    def summary(self) -> dict[str, Any]:
        parts = [self.tenth(number) for number in range(10)]
        return {
            "rate": self.rate,
            "tenths": parts,
            "last_to_first": parts[9] / max(1e-9, parts[0]),
            "median_push": self.median,
            "p99_push": float(np.quantile(self.seconds, 0.99)),
            "worst_push": self.worst,
            "worst_cpu": max(self.cpu),
            "worst_to_median": self.worst / self.median,
            "pushes": len(self.seconds),
            "versions": self.switches,
        }


class RunningJoin:
    """``drained``: every push is flushed, as a Spark task does; otherwise tuples wait."""

    def __init__(
        self, table: Path, data: EngineData, join: str, percent: float, push: int, drained: bool
    ) -> None:
        pa.set_cpu_count(1)
        budget = int(data.nbytes * percent / 100)
        self._run: Any = ss.join(join, memory=budget, adapt=False).open(
            ss.MasterTable.open(table), on="product_id"
        )
        self._data, self._push, self._drained = data, push, drained
        self._made = 0
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def warm_up(self, seconds: float) -> None:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            self._one(Pushes())
        gc.collect()
        gc.freeze()  # a full collection would look at all imported modules, within some push

    def while_true(self, condition: Callable[[], bool]) -> Pushes:
        pushes = Pushes()
        while condition() or len(pushes.seconds) < 20:
            self._one(pushes)
        return pushes

    @property
    def hit_rate(self) -> float:
        stats = self._run.stats
        return stats.front_stage_hits / max(1, stats.tuples_in)

    def close(self) -> None:
        self._run.close()

    def _one(self, pushes: Pushes) -> None:
        batch = next(self._batches, None)
        if batch is None:  # generated off the clock
            count = 40 * self._push
            self._batches = iter(self._data.stream(count, self._push, self._made))
            self._made += count
            batch = next(self._batches)
        start, cpu = time.perf_counter(), time.thread_time()
        out = list(self._run.push(batch))
        if self._drained:
            out += self._run.flush()
        pushes.starts.append(start)
        pushes.seconds.append(time.perf_counter() - start)
        pushes.cpu.append(time.thread_time() - cpu)
        pushes.rows.append(sum(rows.num_rows for rows in out))
        pushes.versions.append(self._run.version)
        for rows in out[:1]:
            if (trouble := wrong(rows)) is not None:
                raise RuntimeError(trouble)
