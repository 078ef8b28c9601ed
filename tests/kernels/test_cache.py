"""The kernels' cache: one process compiles, a folder that is not writable breaks nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from semistream.kernels.cache_folder import choose_folder

CALL = """
import numpy as np
from semistream.kernels import hashing
from semistream.kernels.compile import compilations
hashes = np.zeros(3, np.uint64)
hashing.fold_words(np.arange(3, dtype=np.uint64), hashes)
import sys
print(compilations(), int(hashes[1]), "numba.np.linalg" in sys.modules)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", CALL], env=env, stdout=-1, stderr=-1, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, int, bool]:
    """How many kernels were compiled, a hash, and whether all of Numba was loaded."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    compiled, value, loaded = out.split()
    return int(compiled), int(value), loaded == "True"


def test_of_several_processes_that_start_at_once_one_compiles(tmp_path: Path) -> None:
    results = [finish(process) for process in [start(tmp_path) for _ in range(3)]]
    assert sorted(compiled for compiled, _, _ in results) == [0, 0, 1]
    assert len({value for _, value, _ in results}) == 1


def test_a_cached_kernel_is_loaded_without_what_compiles_it(tmp_path: Path) -> None:
    assert finish(start(tmp_path))[::2] == (1, True)
    assert finish(start(tmp_path))[::2] == (0, False)


def test_a_folder_that_cannot_be_written_costs_a_compilation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    assert finish(start(tmp_path / "file"))[:2] == (1, finish(start(tmp_path / "folder"))[1])


def test_a_damaged_cache_is_compiled_again(tmp_path: Path) -> None:
    first = finish(start(tmp_path))
    for damage in (
        lambda content: content[:40],
        lambda content: content.replace(b"numba", b"xxxxx"),  # can be read, and names nothing
    ):
        for file in tmp_path.rglob("*.nb?"):
            file.write_bytes(damage(file.read_bytes()))
        assert finish(start(tmp_path))[:2] == first[:2]
    assert finish(start(tmp_path))[:2] == (0, first[1])


def test_damaged_machine_code_is_never_run(tmp_path: Path) -> None:
    first = finish(start(tmp_path))
    (file,) = tmp_path.rglob("*.nbc")
    content = bytearray(file.read_bytes())
    middle = content.index(b".text")  # in the object file
    content[middle - 8 : middle] = bytes(8)
    file.write_bytes(content)
    assert finish(start(tmp_path))[:2] == first[:2]


def test_the_lock_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    finish(start(tmp_path))
    for file in tmp_path.rglob("*.nb?"):
        file.unlink()
    (lock,) = tmp_path.rglob("*.lock")
    code = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX)"
    hold = [sys.executable, "-c", f"{code}; print('held', flush=True); time.sleep(60)", str(lock)]
    with subprocess.Popen(hold, stdout=-1, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        waiting = start(tmp_path)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=4)
        owner.kill()
    assert finish(waiting)[0] == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_filled_folder_is_read_even_if_it_is_not_writable(tmp_path: Path) -> None:
    filled = tmp_path / "filled"
    filled.mkdir()
    (filled / "a.nbi").touch()
    filled.chmod(0o500)
    assert choose_folder([filled, tmp_path]) == filled


def test_the_first_folder_that_can_be_made_is_taken(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert choose_folder([tmp_path / "file" / "sub", tmp_path / "other"]) == tmp_path / "other"
    assert choose_folder([tmp_path / "file" / "sub"]) is None


def test_code_of_older_sources_is_not_loaded(tmp_path: Path) -> None:
    """As a process leaves it that dies after it has written the index, and before the code."""
    from semistream.kernels.cache import _File

    old, new = (_File(str(tmp_path), "kernel", stamp) for stamp in ("old", "new"))
    old._save_data("kernel.1.nbc", ("code", 1))
    assert old._load_data("kernel.1.nbc") == ("code", 1)
    with pytest.raises(ValueError, match="of other sources"):
        new._load_data("kernel.1.nbc")
