"""Interrupts a table's operations between two steps, to run something else there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from semistream.master.files import Files

STEPS = [name for name in vars(Files) if not name.startswith("_")]
Happening = Callable[[], object]


class Steps(Files):
    """The real file system; at a chosen step, another action runs once.

    A step is chosen by its name and a part of the path that it changes (its last argument), or
    by its number. Steps of that action are not counted, nor interrupted by number.
    """

    def __init__(self) -> None:
        self._planned: list[tuple[str, str, str, Happening]] = []
        self._numbered: tuple[int, Happening] | None = None
        self._inside = False
        self.count = 0

    def before(self, step: str, path: str, happening: Happening) -> None:
        """An exception from ``happening`` replaces the step."""
        self._planned.append(("before", step, path, happening))

    def after(self, step: str, path: str, happening: Happening) -> None:
        """An exception from ``happening`` simulates a lost reply."""
        self._planned.append(("after", step, path, happening))

    def at(self, number: int, happening: Happening) -> None:
        """Before the step of this number, counted from now."""
        self.count = 0
        self._numbered = (number, happening)

    def cancel(self) -> None:
        self._numbered = None

    @property
    def is_over(self) -> bool:
        return not self._planned and self._numbered is None

    def _step(self, step: str, *args: Any, **kwargs: Any) -> Any:
        paths = [arg for arg in args if isinstance(arg, Path | str)]
        path = str(paths[-1] if paths else args[0].name)
        self._by_name("before", step, path)
        if not self._inside:
            self._by_number()
            self.count += 1
        result = None
        if step == "sync":
            args[0].flush()  # no test here simulates a power failure
        elif step != "sync_folder":
            result = getattr(Files, step)(self, *args, **kwargs)
        self._by_name("after", step, path)
        return result

    def _by_name(self, when: str, step: str, path: str) -> None:
        for plan in self._planned:
            if plan[:2] == (when, step) and plan[2] in path:
                self._planned.remove(plan)
                plan[3]()
                return

    def _by_number(self) -> None:
        if self._numbered is not None and self._numbered[0] == self.count:
            happening, self._numbered = self._numbered[1], None
            self._inside = True
            try:
                happening()
            finally:
                self._inside = False


def _stopped(step: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: self._step(step, *args, **kwargs)


for _name in STEPS:
    setattr(Steps, _name, _stopped(_name))
