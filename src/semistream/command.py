"""The ``semistream`` script: Ctrl-C leaves one line, also while the commands are being imported."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Entry point of the ``semistream`` script."""
    try:
        # Python ignores an exception that Ctrl-C raises in some parts of an import.
        signal.signal(signal.SIGINT, _leave_at_once)
        from semistream import cli

        cli.load(sys.argv[1:])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
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
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what runs at exit is not interrupted again
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)


def _leave_at_once(*_: object) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(130)
