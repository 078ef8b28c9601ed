"""What the README shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import semistream as ss

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("'price': 9.99") == 3
    assert printed.count("'price': None") == 1


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / document).read_text()):
        assert (ROOT / target).exists(), f"{document} links to {target}"


@pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))
def test_every_join_is_in_the_table(algorithm: str) -> None:
    assert f"[`{algorithm}`](docs/algorithms/{algorithm}.md)" in README
