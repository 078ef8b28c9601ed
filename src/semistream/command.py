"""The ``semistream`` script: Ctrl-C leaves one line, also while the commands are being imported."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``semistream`` script."""
    try:
        from semistream.cli import main as run

        run()
    except KeyboardInterrupt:
        import signal
        import sys

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what runs at exit is not interrupted again
        print("\ninterrupted", file=sys.stderr)
        sys.exit(130)
