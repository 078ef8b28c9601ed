"""The decorator of every kernel: compiled once, cached on disk, never stale.

Numba keys its cache by the content of the file that defines a kernel. A kernel that inlines
another one from a different file would therefore keep running stale machine code after that file
has changed. Here the cache key of every kernel is a hash of all kernel sources.
"""

from collections.abc import Callable
from typing import Any

from numba import config, njit

from semistream.kernels.cache import cache

KERNELS: list[Any] = []  # all that were imported


def compiled(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Any:
    """Compile a kernel that releases the GIL; ``inline`` inlines it into its callers."""
    if function is None:
        return lambda f: compiled(f, inline=inline)
    if config.DISABLE_JIT:  # for debugging, and for comparisons with plain Python
        return function
    kernel = njit(nogil=True, inline="always" if inline else "never")(function)
    cache(kernel)
    KERNELS.append(kernel)
    return kernel


def compilations() -> int:
    """Signatures that this process has compiled because the cache did not have them."""
    return sum(sum(kernel.stats.cache_misses.values()) for kernel in KERNELS)


def signatures() -> int:
    """Signatures that this process has compiled or loaded."""
    return sum(len(kernel.signatures) for kernel in KERNELS)
