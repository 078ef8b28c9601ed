"""Does what docs/tutorial.md says, block by block."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

TUTORIAL = Path(__file__).parents[1] / "docs/tutorial.md"
COMMAND = "import sys; sys.argv[0] = 'semistream'; from semistream.command import main; main()"


class Reader:
    """Executes the tutorial's blocks in a folder."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.text = TUTORIAL.read_text()
        python = {"PYSPARK_PYTHON": sys.executable}  # as in an activated environment
        self.environment = {**os.environ, **python, **environment}

    def block(self, language: str, having: str) -> str:
        blocks = re.findall(rf"```{language}\n(.*?)```", self.text, flags=re.DOTALL)
        (found,) = [block for block in blocks if having in block]
        return str(found)

    def arguments(self, begins: str) -> list[str]:
        (line,) = re.findall(rf"^    semistream ({begins}.*?)(?:\s+#.*)?$", self.text, flags=re.M)
        return [sys.executable, "-u", "-c", COMMAND, *line.split()]

    def does(self, begins: str) -> str:
        return self.output_of(self.arguments(begins))

    def python(self, having: str) -> str:
        return self.output_of([sys.executable, "-c", self.block("python", having)])

    def output_of(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs_until(self, begins: str, said: str) -> str:
        """The output of a command that is stopped by Ctrl-C after it has said something."""
        log = self.folder / "log"
        with open(log, "w") as out:
            running = subprocess.Popen(
                self.arguments(begins),
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + 240
            while said not in log.read_text():
                assert running.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.3)
            running.send_signal(signal.SIGINT)
            assert running.wait(90) == 0, log.read_text()
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
        return log.read_text()
