"""The root of the command line: what every command gets from it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from semistream import cli
from semistream.errors import ConfigError


def semistream(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from semistream.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_version() -> None:
    done = semistream("--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"semistream {version('semistream')}"


def test_help_names_every_command() -> None:
    done = semistream("--help")
    assert done.returncode == 0
    for command in ("demo", "master", "generate"):
        assert command in done.stdout


def test_an_unknown_command() -> None:
    done = semistream("mastr", "info")
    assert done.returncode == 2
    assert "unknown command 'mastr'; did you mean 'master'?" in done.stderr
    done = semistream("enrich")
    assert done.returncode == 2
    assert "unknown command 'enrich'; valid commands: demo, master, run" in done.stderr


def test_an_error_is_one_line_and_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ConfigError("memory='lots' is not a size")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "error: memory='lots' is not a size\n"


def test_a_bad_option_of_the_library_is_an_error_too() -> None:
    done = semistream("demo", "--memory", "lots", "--rows", "10", "--tuples", "10")
    assert done.returncode == 2
    assert done.stderr.startswith("error: memory='lots'")
    assert "Traceback" not in done.stderr


def test_a_command_loads_only_what_it_needs() -> None:
    code = "import sys, semistream.cli; print('numba' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[0] == "False"


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_packages_of_the_command_line(missing: str) -> None:
    """They are an extra: the library works without them, and the command says what to install."""
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
import semistream
semistream.join("auto", memory="10MB")
sys.argv = ["semistream", "master", "info", "."]
from semistream.command import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        f"error: the semistream command needs {missing}, which is not installed; "
        "pip install 'semistream[cli]'\n"
    )
