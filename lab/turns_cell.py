"""One cell of ``lab.bench_turns``: two processes, one per checkout, that measure in turns.

Both open the join and warm up first. Then one measures for a slice of a second while the other
waits, and the other way round: whatever slows the machine for longer than a slice slows both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple

from lab.build_once import DATA

HERE = Path(__file__).resolve().parents[1]


class Slice(NamedTuple):
    rows: int
    seconds: float
    processor_seconds: float


class Turn:
    """A process that runs one cell with the code of one checkout, a slice at a time."""

    def __init__(self, checkout: Path, cell: dict[str, Any]) -> None:
        self._name = f"{cell['join']} with {checkout}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lab.turns_cell", json.dumps(cell)],
            env=environment(checkout),
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()  # it is warm

    def measure(self, seconds: float) -> Slice:
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        return Slice(**self._answer())

    def close(self) -> None:
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it has ended"}
        trouble = next((answer[key] for key in ("wrong", "error", "refused") if key in answer), "")
        if trouble:
            raise RuntimeError(f"{self._name}: {trouble}")
        return answer


def environment(checkout: Path) -> dict[str, str]:
    """The library of one checkout and its data; the benchmark of this one."""
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{HERE}"}
    if checkout != HERE:
        env["SEMISTREAM_LAB_DATA"] = str(DATA / f"turns-{checkout.name}")
    return env


def _serve(cell: dict[str, Any], requests: IO[str]) -> None:
    """Open and warm up, then measure a slice for every line of the input."""
    # here, as the process that compares needs none of this
    import gc

    import pyarrow as pa

    import semistream as ss
    from lab import machine
    from lab.engine_cell import Cell, timed, warm_up, wrong
    from lab.engine_data import EngineData

    machine.pin_to_one_core()
    pa.set_cpu_count(1)
    what = Cell(**cell)
    data = EngineData(what.rows, what.seed)
    master = ss.MasterTable.open(data.master)
    try:
        join = ss.join(what.join, memory=int(data.nbytes * what.percent / 100))
        trouble = wrong(join, master, what, data)
    except ss.BudgetError as error:
        trouble = str(error)
    if trouble is not None:
        _say(wrong=trouble)
        return
    with join.open(master, on="product_id", direct=what.direct) as run:
        position, _ = warm_up(run, what, data)
        _say()
        wanted = what.tuples
        for request in requests:
            batches = what.stream(data, wanted, what.push, offset=position)
            gc.collect()
            counted = run.stats.rows_out
            found = timed(run.push, batches, float(request))
            position += wanted
            if run.stats.rows_out - counted < found["rows_out"]:
                _say(wrong=f"{found['rows_out']} rows returned, but fewer counted")
                return
            # Enough for a slice that is faster by half, in whole pushes.
            wanted = max(4, int(1.5 * found["rows_out"]) // what.push + 1) * what.push
            _say(
                rows=found["rows_out"],
                seconds=found["measured_seconds"],
                processor_seconds=found["processor_seconds"],
            )


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]), sys.stdin)
