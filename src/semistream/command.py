"""The ``semistream`` script: Ctrl-C leaves one line, also while the commands are being imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the ``semistream`` script."""
    try:
        from semistream.cli import main as run

        run()
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in ("typer", "rich"):
            raise
        print(
            f"error: the semistream command needs {missing}, which is not installed; "
            "pip install 'semistream[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what runs at exit is not interrupted again
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
