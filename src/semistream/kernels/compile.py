"""The decorator of every kernel: compiled once, cached on disk, never stale.

Numba keys its cache by the time stamp of the file that defines a kernel. A kernel that inlines
another one from a different file would therefore keep running stale machine code after that file
has changed. Here the cache key of every kernel is a hash of all kernel sources.
"""

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from numba import config, njit


def _digest() -> str:
    content = blake2b(digest_size=16)
    for source in sorted(Path(__file__).parent.glob("*.py")):
        content.update(source.name.encode())
        content.update(source.read_bytes())
    return content.hexdigest()


SOURCES = _digest()


def compiled(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """Compile a kernel that releases the GIL; ``inline`` inlines it into its callers."""
    if function is None:
        return lambda f: compiled(f, inline=inline)
    if config.DISABLE_JIT:  # for debugging, and for comparisons with plain Python
        return function
    kernel = njit(cache=True, nogil=True, inline="always" if inline else "never")(function)
    kernel._cache._cache_file._source_stamp = SOURCES  # Numba has no public API for this
    return kernel
