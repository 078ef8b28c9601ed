"""The counters and the memory use of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from semistream.memory import format_size


@dataclass
class Stats:
    """Counters of a run.

    ``tuples_in == matched + unmatched + shed + waiting`` always holds: a tuple counts as waiting
    from its push until all its rows have been built.
    """

    tuples_in: int = 0
    matched: int = 0
    unmatched: int = 0
    shed: int = 0
    rows_out: int = 0
    front_stage_hits: int = 0
    pages_read: int = 0
    bytes_read: int = 0
    iterations: int = 0
    # Not counters, so they are neither compared nor in as_dict.
    seconds: float = field(default=0.0, compare=False)  # spent in the run, by the clock
    predicted_rate: float | None = field(default=None, compare=False)  # tuples/s, if it was tuned

    @property
    def rate(self) -> float | None:
        """Tuples served per second that was spent in the run, to compare with the predicted one."""
        return (self.matched + self.unmatched) / self.seconds if self.seconds else None

    @property
    def waiting(self) -> int:
        return self.tuples_in - self.matched - self.unmatched - self.shed

    def as_dict(self) -> dict[str, int]:
        counters = {**asdict(self), "waiting": self.waiting}
        del counters["seconds"], counters["predicted_rate"]
        return counters


class MemoryUse(Mapping[str, int]):
    """Bytes by component, their total, and the budget they must stay within."""

    def __init__(self, components: Mapping[str, int], budget: int) -> None:
        self._components = dict(components)
        self.budget = budget

    @property
    def total(self) -> int:
        return sum(self._components.values())

    def __getitem__(self, component: str) -> int:
        return self._components[component]

    def __iter__(self) -> Iterator[str]:
        return iter(self._components)

    def __len__(self) -> int:
        return len(self._components)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {format_size(size)}" for name, size in self.items())
        return f"<{format_size(self.total)} of {format_size(self.budget)}: {parts}>"
