"""The documentation is correct: examples run, links are valid."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import tempfile
import unicodedata
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "semistream"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text())

_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", EXAMPLES, ids=_name)
def test_examples_in_docstrings(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testmod(module, optionflags=flags)
    lines = len(re.findall(r"^\s*>>> (?!.*\+SKIP)", path.read_text(), re.MULTILINE))
    assert tried == lines, f"{lines} examples, {tried} of them run"
    assert not failed, f"{failed} of {tried} examples fail, see above"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_python_in_pages_is_python(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        ast.parse(block, _name(page))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_are_valid(page: Path) -> None:
    text = _FENCED.sub("", page.read_text())
    broken = [target for target in _LINK.findall(text) if not _is_there(page, target)]
    assert not broken, f"{_name(page)} links to {broken}"


def test_messages_in_troubleshooting_exist() -> None:
    """Each heading quotes a part of a message of the code, as it is written there."""
    code = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    spoken = re.sub(r'"\s*\n\s*f?"', "", code)  # a message may go on in the next line
    page = (ROOT / "docs/troubleshooting.md").read_text()
    quoted = re.findall(r"^### `(.+)`$", page, re.MULTILINE)
    assert len(quoted) > 10
    assert [part for part in quoted if part not in spoken] == []


def test_every_page_is_in_the_navigation() -> None:
    """Also those whose entry waits as a comment until their page is written."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in navigation] == []


def _is_there(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):  # another site
        return True
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    return path.exists() and (not anchor or anchor in _anchors(path))


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *#*$", _FENCED.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = "".join(c for c in plain.lower() if c in " -_" or _is_word(c)).replace(" ", "-")
        again = 1
        while anchor in found:
            anchor, again = f"{anchor}-{again}", again + 1
        found.add(anchor)
    return found


def _is_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LNM"


def test_the_example_of_conditions_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "conditions.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(compile(block, "docs/conditions.md", "exec"), {})
