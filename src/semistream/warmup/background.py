"""A warm-up beside other work: in a separate process, so that it takes no time from this one."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

_LOG = logging.getLogger(__name__)
_started = threading.Lock()  # locked by the first call, and never unlocked


def warm_up_in_background() -> subprocess.Popen[bytes] | None:
    """Start to compile the kernels, unless this was done before, in this process or another.

    Returns the process, or None if there is nothing to do. It ends with this process. It never
    raises: whoever needs a kernel that is not there compiles it.
    """
    if not _started.acquire(blocking=False):
        return None
    try:
        from semistream.kernels.cache_folder import is_complete

        if is_complete():
            return None
        process = subprocess.Popen(
            [sys.executable, "-m", "semistream.warmup"],
            env={**os.environ, "PYTHONPATH": _search_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(process.terminate)
        return process
    except Exception:
        _LOG.debug("the kernels are not compiled ahead of time", exc_info=True)
        return None


def _search_path() -> str:
    """The folder from which this package was imported, which may not be installed."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(Path(__file__).parents[2]), *([given] if given else [])])
