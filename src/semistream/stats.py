"""The counters and the memory use of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

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

    @property
    def waiting(self) -> int:
        return self.tuples_in - self.matched - self.unmatched - self.shed

    def as_dict(self) -> dict[str, int]:
        return {**asdict(self), "waiting": self.waiting}


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
