"""Compiled inner loops: pure functions on arrays, and the only place that imports numba.

Each module is loaded when it is first used, as ``kernels.window.probe``: importing the package
stays fast, and so do calls of kernels that take microseconds themselves.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"there are no kernels {name!r}") from None
