"""A pipeline file's secrets stay in it, and its aliases stay small."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

import yaml

from semistream.pipeline import check, load
from semistream.pipeline.document import read_document

URL = "postgresql://me:hun/ter2@127.0.0.1:1/db"


def pipeline(**parts: Any) -> dict[str, Any]:
    return {
        "name": "sales",
        "source": {"format": "text", "path": "in"},
        "sink": {"output": "parquet", "path": "out"},
        "checkpoint": "checkpoint",
        **parts,
    }


def refusal(folder: Path, content: dict[str, Any], **environ: str) -> str:
    file = folder / "pipeline.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ss.SemistreamError) as caught:
        check(*load(file, environ))
    return str(caught.value)


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"sink": {"output": "postgresql", "url": URL, "table": "t", "patience": 0}}, "sink.url"),
        (
            {"lookups": [{"sql": {"url": URL, "table": "t", "key": "k"}, "on": "k"}]},
            "lookups.0.sql",
        ),
        ({"lookups": [{"master": URL, "on": "k"}]}, "lookups.0.master"),
        ({"sink": {"output": URL}}, "sink.output"),
        ({"name": URL}, "name"),
        ({"trigger": [URL]}, "trigger"),
        (
            {"source": {"format": "x", "options": {"kafka.password": ["hunter2"]}}},
            "source.options.kafka.password",
        ),
        ({"spark": {"spark.my.secret": {"a": "hunter2"}}}, "spark.spark.my.secret"),
        ({"packages": {"a": "b" * 50, "url": URL}}, "packages"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_password_in_the_file_is_not_printed(
    parts: dict[str, Any], field: str, tmp_path: Path
) -> None:
    message = refusal(tmp_path, pipeline(**parts))
    assert f" {field}: " in message
    assert "***" in message
    assert "hun" not in message
    assert "ter2" not in message


SECRETS = st.text("XYZ0'\"\\/#?@:%&\nä{", min_size=4, max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(secret=SECRETS, before=st.integers(0, 110))
def test_a_value_is_redacted_before_it_is_cut_or_quoted(
    secret: str, before: int, tmp_path: Path
) -> None:
    """The value is a list where a text is wanted: it is shown, and it is long."""
    wrong = pipeline(trigger=["b" * before, "${SECRET}", {"url": "x${SECRET}y"}])
    message = refusal(tmp_path, wrong, SECRET=secret)
    shown = message.split("trigger: ", 1)[1].replace("${SECRET}", "")
    assert not set("XYZ0ä") & set(shown), message


def test_nothing_is_left_to_find_in_the_traceback(tmp_path: Path) -> None:
    import traceback

    sink = {"output": "postgresql", "url": URL, "table": "t", "patience": 0}
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(pipeline(sink=sink)))
    try:
        check(*load(file, {}))
    except ss.SemistreamError as error:
        text = "".join(traceback.format_exception(error))
    assert "sink.url" in text
    assert "ter2" not in text


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (laughs(12), r"pipeline.yaml:\d+: .*aliases expand"),
        (f"long: &x {'y' * 5000}\nmany: [{', '.join(['*x'] * 500)}]", "aliases expand"),
        ("a: &a [*a]", "contains itself"),
        ("a: &a {b: {c: *a}}", "contains itself"),
        ("a: " + "[" * 1500 + "]" * 1500, "nested"),
        ("a: " + "[" * 100 + "]" * 100, "nested"),
    ],
    ids=["laughs", "long", "itself", "deep itself", "deep", "less deep"],
)
def test_a_file_that_expands_without_end_is_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    begun = time.monotonic()
    with pytest.raises(ss.ConfigError, match=says):
        read_document(file, {})
    assert time.monotonic() - begun < 20


def test_an_alias_saves_writing(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("a: &a {b: 1}\nc: [*a, *a]")
    assert read_document(file, {}).data == {"a": {"b": 1}, "c": [{"b": 1}, {"b": 1}]}
