"""The Python of Spark's workers: an interpreter without semistream is refused on the driver.

Spark starts ``python3`` from the PATH unless PYSPARK_PYTHON is set. In a virtual environment that
is not activated (a notebook, an IDE, a script started by its path) this is another Python, and the
first task would fail with ``No module named 'numpy'``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from typing import Any

from semistream.errors import ConfigError

_NEEDED = ("semistream", "numba", "numpy", "pyarrow", "xxhash")
_MISSING = f"""
from importlib.util import find_spec
print(*[name for name in {_NEEDED!r} if find_spec(name) is None])
"""


def check_worker_python(session: Any) -> None:
    """Raise if the workers on this machine run a Python that cannot join."""
    context = getattr(session, "sparkContext", None)  # a client of Spark Connect has none
    if context is None or not str(context.master).startswith("local"):
        return  # only the executors know their Python
    used = shutil.which(context.pythonExec)
    if used is None or used == sys.executable:
        return
    missing = _missing(used)
    if missing:
        raise ConfigError(
            f"Spark's workers run {used}, which has no {missing[0]}; activate the environment of "
            f"{sys.executable}, or set PYSPARK_PYTHON to it before the session is started"
        )


@cache
def _missing(python: str) -> list[str]:
    """Packages that a Python lacks; none if it cannot be asked, because Spark will say why."""
    try:
        command = [python, "-c", _MISSING]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []
