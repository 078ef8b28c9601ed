"""The command line. Every module of this package is one command and defines its Typer ``app``.

A module is imported when its command runs, so ``semistream master info`` does not import the
dependencies of the demo.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from semistream.errors import SemistreamError, unknown

# The order in --help; other commands are listed last.
_ORDER = (
    "demo",
    "master",
    "run",
    "drain",
    "report",
    "tune",
    "generate",
    "bench",
    "reproduce",
    "warm-up",
)


class _Interrupted(BaseException):
    """Ctrl-C; not a KeyboardInterrupt, which Click takes for itself."""


class _CommandsByModule(TyperGroup):
    """A group that finds its commands in the modules of this package."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = [
            module.name.replace("_", "-")
            for module in iter_modules(__path__)
            if module.name[0] != "_"
        ]
        return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else 99, name))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = get_command(import_module(f"{__name__}.{cmd_name.replace('-', '_')}").app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            ctx.fail(unknown("command", args[0], known))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Click would end an interrupted command with its own words and code 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted from None


app = typer.Typer(
    name="semistream",
    cls=_CommandsByModule,
    help="Join a fast stream with a table that is too big for memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from semistream import __version__

        print(f"semistream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False,
        "--version",
        help="Show the version and exit.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    pass


def load(arguments: list[str]) -> None:
    """Import the module of the command that the arguments name, if they name one."""
    module = arguments[0].replace("-", "_") if arguments else ""
    if module.isidentifier() and find_spec(f"{__name__}.{module}") is not None:
        import_module(f"{__name__}.{module}")


def main() -> None:
    """Run a command; the script is :func:`semistream.command.main`."""
    try:
        app()
    except SystemExit as leaving:
        if leaving.code == 130:  # Typer ends so if Ctrl-C comes before the command
            raise KeyboardInterrupt from None
        raise
    except SemistreamError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except _Interrupted:
        raise KeyboardInterrupt from None  # semistream.command ends with one line
