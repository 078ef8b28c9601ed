"""The examples of docs/changing-tables.md run, and print what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/changing-tables.md"


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(examples) == 2
    exec(compile(examples[0], str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "900 updated, 100 deleted, version 2" in printed
    before, after = printed.split("900 updated")
    assert before.count("'price': 9.99") == 3
    for order in ("5, 'price': 9.99", "1500, 'price': 12.5", "1999, 'price': None"):
        assert order in re.sub(r"'product_id_master': [^,]*, ", "", after)
    exec(compile(examples[1], str(PAGE), "exec"), {})
    assert re.search(r"^[0-9] seconds old$", capsys.readouterr().out, re.MULTILINE)
