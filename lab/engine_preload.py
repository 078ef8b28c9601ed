"""Imported once by the fork server, so that a fresh process does not import it again."""

from importlib import import_module
from pkgutil import iter_modules

import pyarrow.compute  # noqa: F401

import lab.engine_cell  # noqa: F401
import semistream.kernels

for module in iter_modules(semistream.kernels.__path__, "semistream.kernels."):
    import_module(module.name)
