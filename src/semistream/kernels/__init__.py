"""Compiled inner loops: pure functions on arrays, and the only place that imports numba.

Each module is loaded on first use, as in ``kernels.window.probe``: importing the package stays
fast, and later calls cost only an attribute look-up.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"unknown kernel module {name!r}") from None
