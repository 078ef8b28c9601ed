"""Executed instructions of a cell, counted by Valgrind: repeatable, whatever else the machine does.

Seconds of the same code differ by more than a tenth between two runs on a shared machine;
instruction counts differ by less than a hundredth. They say nothing about waiting for the disk,
so requests are compared, too: with equal requests, equal instructions mean equal speed.

Valgrind 3.19 does not know AVX-512, so Numba compiles for an older processor, into a cache of its
own. Every cell is first run without Valgrind: that compiles its kernels and checks its answer.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from lab.engine_data import DATA
from lab.instruction_cell import COUNTED, Cell

HERE = Path(__file__).resolve().parents[1]
PROCESSOR = "haswell"  # AVX2, FMA and BMI: all that Valgrind 3.19 can decode
VALGRIND = (
    "valgrind",
    "--tool=cachegrind",  # without its simulation: the fastest of the tools that count
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
    "--smc-check=all-non-file",  # Numba generates code at run time
)
NICE = ("nice", "-n", "10")
_COUNT = re.compile(r"^==(\d+)== I +refs: +([\d,]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Count:
    """Instructions and counters of the measured pushes of one cell."""

    instructions: int
    counters: dict[str, int]

    @property
    def hit_rate(self) -> float:
        return self.counters["front_stage_hits"] / max(1, self.counters["tuples_in"])


def parse_counts(log: str) -> dict[int, int]:
    """Instructions by process id, from Valgrind's output."""
    return {int(pid): int(count.replace(",", "")) for pid, count in _COUNT.findall(log)}


def difference(runs: dict[str, dict[str, int]], counts: dict[int, int]) -> Count:
    """What the long run did more than the short one."""
    short, long = runs["short"], runs["long"]
    for run in (short, long):
        if run["pid"] not in counts:
            raise RuntimeError(f"Valgrind reported no instructions for process {run['pid']}")
    return Count(
        counts[long["pid"]] - counts[short["pid"]],
        {name: long[name] - short[name] for name in COUNTED},
    )


def compared(cell: Cell, was: Count, now: Count) -> dict[str, Any]:
    """One line of the report. The ratio is above 1 if there are fewer instructions now."""
    return {
        **asdict(cell),
        "instructions_before": was.instructions,
        "instructions_now": now.instructions,
        "ratio": was.instructions / now.instructions,
        "instructions_per_tuple": now.instructions / max(1, now.counters["tuples_in"]),
        "counters_before": was.counters,
        "counters_now": now.counters,
        "hit_rate_before": was.hit_rate,
        "hit_rate_now": now.hit_rate,
        "different": {
            name: [was.counters[name], now.counters[name]]
            for name in COUNTED
            if was.counters[name] != now.counters[name]
        },
    }


class Checkout:
    """Runs cells with the code of one checkout, all in one process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, cells: list[Cell]) -> None:
        """Compile the kernels, and raise if an answer is wrong."""
        with TemporaryFile("w+") as log, self._started(cells, (), ("--check",), log) as process:
            for cell in cells:
                self._result(cell, process, log)

    def counts(self, cells: list[Cell]) -> Iterator[Count]:
        """Start counting; the iterator waits for one cell after the other."""
        log = TemporaryFile("w+")  # noqa: SIM115 (closed with the iterator)
        return self._counts(cells, self._started(cells, NICE + VALGRIND, (), log), log)

    def _counts(
        self, cells: list[Cell], process: subprocess.Popen[str], log: IO[str]
    ) -> Iterator[Count]:
        try:
            with log, process:
                for cell in cells:
                    runs = self._result(cell, process, log)
                    yield difference(runs, parse_counts(_text(log)))
        finally:
            process.kill()  # if the iterator was not exhausted

    def _result(self, cell: Cell, process: subprocess.Popen[str], log: IO[str]) -> Any:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{cell.name} with {self.path}: {_text(log)[-2000:]}")
        result = json.loads(line)
        if "error" in result:
            raise RuntimeError(f"{cell.name} with {self.path}: {result['error']}")
        return result

    def _started(
        self, cells: list[Cell], before: tuple[str, ...], after: tuple[str, ...], log: IO[str]
    ) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "PYTHONPATH": f"{self.path / 'src'}{os.pathsep}{HERE}",
            "PYTHONHASHSEED": "0",
            "NUMBA_CPU_NAME": PROCESSOR,
            "NUMBA_CPU_FEATURES": "",  # those of the named processor
            "NUMBA_CACHE_DIR": str(DATA / f"numba-{PROCESSOR}"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        text = json.dumps([asdict(cell) for cell in cells])
        command = [*before, sys.executable, "-m", "lab.instruction_cell", text, *after]
        return subprocess.Popen(
            command, env=env, cwd=HERE, stdout=subprocess.PIPE, stderr=log, text=True
        )


def _text(log: IO[str]) -> str:
    """What the process has written so far: it shares the file's position, so none is set."""
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).decode()
