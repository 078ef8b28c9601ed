"""The result of tuning: a join that is ready to open, and why it was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from semistream.cost import Prediction, Wait
from semistream.errors import BudgetError
from semistream.memory import format_size


@dataclass(frozen=True)
class TuningPlan:
    """``join`` is ready to open; ``rate``, ``memory`` and ``wait`` are what it will do.

    ``others`` are the best settings of the other joins: (join, prediction), best first.
    """

    join: Any
    prediction: Prediction
    others: tuple[tuple[Any, Prediction], ...] = ()
    origin: str = ""  # of the machine's factors
    notes: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Predicted tuples per second."""
        return self.prediction.rate

    @property
    def memory(self) -> Mapping[str, int]:
        """Bytes by component."""
        return self.prediction.memory

    @property
    def wait(self) -> Wait:
        """Seconds: expected and longest."""
        return self.prediction.wait

    def open(self, master: Any, on: Any, **options: Any) -> Any:
        """Open the join; ``run.stats`` has the predicted rate beside the measured one."""
        run = self.join.open(master, on, **options)
        run.stats.predicted_rate = self.rate
        return run

    def code(self) -> str:
        """The join as Python code."""
        return f"ss.join({self.join.name!r}, {', '.join(options_of(self.join))})"

    def yaml(self) -> str:
        """The fields of a pipeline file."""
        return f"using: {self.join.name}\nmemory: {int(self.join.memory)}"

    def __str__(self) -> str:
        found, wait = self.prediction, self.prediction.wait
        parts = ", ".join(f"{name} {format_size(n)}" for name, n in found.memory.items() if n)
        lines = [
            f"{self.join.name}: {format_rate(found.rate)}, {format_size(self.join.memory)}, "
            f"waits {format_seconds(wait.expected)} on average, "
            f"{format_seconds(wait.longest)} at most",
            f"  memory: {parts}",
            f"  one iteration: {found.tuples_per_iteration:,.0f} tuples in "
            f"{format_seconds(found.seconds_per_iteration)}; "
            f"{found.pages_per_tuple * 1000:.3g} pages per 1,000 tuples",
        ]
        if found.front_share:
            lines.append(f"  {found.front_share:.0%} of the tuples are served from memory at once")
        if self.others:
            join, other = self.others[0]
            lines.append(f"  next: {join.name} with {format_rate(other.rate)}")
        lines.append(f"  factors: {self.origin}")
        lines += [f"  note: {note}" for note in self.notes]
        lines.append(f"  {self.code()}")
        return "\n".join(lines)


class OutOfReachError(BudgetError):
    """No join serves this within these limits; the message says what is possible."""


def options_of(join: Any) -> list[str]:
    """The options that differ from the defaults, as in a call."""
    given = []
    for field in fields(join):
        value = getattr(join, field.name)
        if field.name == "memory" or value != field.default:
            given.append(f"{field.name}={value!r}")
    return given


def format_rate(rate: float) -> str:
    """
    >>> format_rate(1_234_567), format_rate(8_200)
    ('1.23 M tuples/s', '8.2 K tuples/s')
    """
    if rate >= 1e6:
        return f"{rate / 1e6:.2f} M tuples/s"
    return f"{rate / 1e3:.1f} K tuples/s" if rate >= 1e3 else f"{rate:.0f} tuples/s"


def format_seconds(seconds: float) -> str:
    """
    >>> format_seconds(2.5), format_seconds(0.0321), format_seconds(2e-5)
    ('2.5 s', '32 ms', '20 us')
    """
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"
