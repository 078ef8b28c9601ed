"""Where the kernels' machine code is cached, and whether all of it is there; without Numba."""

import contextlib
import os
import sys
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).parent
_INDEX = "*.nbi"


def _digest() -> str:
    content = blake2b(digest_size=16)
    for source in sorted(_PACKAGE.glob("*.py")):
        content.update(source.name.encode())
        content.update(source.read_bytes())
    return content.hexdigest()


SOURCES = _digest()


def choose_folder(candidates: list[Path]) -> Path | None:
    """The first folder that is writable, or that has kernels already; None: do not cache."""
    for folder in candidates:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK) or any(folder.glob(_INDEX)):
            return folder
    return None


def candidate_folders() -> list[Path]:
    """``NUMBA_CACHE_DIR``, or beside the sources, or the user's cache folder."""
    # Two installations may share a folder, and have different kernels of the same name.
    name = f"semistream-{blake2b(bytes(_PACKAGE), digest_size=6).hexdigest()}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return [Path(given) / name]
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [_PACKAGE / "__pycache__", Path(user) / name]


FOLDER = choose_folder(candidate_folders())


def is_complete() -> bool:
    """Whether a warm-up has compiled everything: these sources, this Numba, this processor."""
    return FOLDER is not None and _mark(FOLDER).exists()


def mark_as_complete() -> None:
    if FOLDER is not None:
        for old in FOLDER.glob("*.warm"):
            with contextlib.suppress(OSError):
                old.unlink()
        with contextlib.suppress(OSError):
            _mark(FOLDER).touch()


def _mark(folder: Path) -> Path:
    from llvmlite import binding

    parts = [
        SOURCES, version("numba"), sys.version, binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
    ]  # fmt: skip
    return folder / f"{blake2b(repr(parts).encode(), digest_size=8).hexdigest()}.warm"
