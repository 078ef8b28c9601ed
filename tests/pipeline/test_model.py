"""Every field of a pipeline file wrong once: the error names the field, the value and the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss

pytest.importorskip("pydantic")
pytest.importorskip("yaml")

from semistream.pipeline import check, describe, load

GOOD = """\
name: sales
source:
  format: parquet
  path: {folder}/in
  schema: {{sale_id: long, product_id: long, quantity: int}}
  options: {{maxFilesPerTrigger: 1}}
lookups:
  - master: {folder}/products
    on: product_id
    how: left
    select: [price]
steps:
  - compute: {{amount: quantity * price}}
  - where: amount > 0
sink:
  output: parquet
  path: {folder}/out
checkpoint: {folder}/checkpoint
trigger: 5 seconds
memory: 64MB
using: chybridjoin
spark: {{spark.sql.shuffle.partitions: 2}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    products = pa.table({"product_id": [1, 2], "price": [1.0, 2.0]})
    ss.MasterTable.build(products, tmp_path / "products", key="product_id")

    def to_file(text: str) -> Path:
        file = tmp_path / "pipeline.yaml"
        file.write_text(text.format(folder=tmp_path))
        return file

    return to_file


def refusal(file: Path, **environ: str) -> str:
    with pytest.raises(ss.SemistreamError) as caught:
        check(*load(file, environ))
    return str(caught.value)


def test_a_good_file(write: Any) -> None:
    pipeline, document = load(write(GOOD))
    masters = check(pipeline, document)
    plan = describe(pipeline, document, masters)
    assert "2 rows" in plan
    assert "left on product_id" in plan
    assert "compute: amount = quantity * price" in plan


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("name: sales", "name: 'sa les'", 1, "name: 'sa les': use up to 64 letters, digits"),
        ("quantity: int", "quantity: lnog", 5, "unknown Spark type 'lnog'; did you mean 'long'"),
        ("name: sales", "", 2, "name: missing field, which is required"),
        ("format: parquet", "format: ''", 3, "source.format: ''"),
        ("  path: {folder}/in\n", "", 2, "source: .*needs path"),
        ("  path: {folder}/in", "  path: 7", 4, "source.path: '7'"),
        (
            "quantity: int",
            "quantity: number",
            5,
            "source.schema: .*'quantity': unknown Spark type 'number'; valid .*: byte, short",
        ),
        ("schema: {{", "columns: {{", 5, "source.columns: unknown field"),
        ("{{maxFilesPerTrigger: 1}}", "[1]", 6, "source.options"),
        ("path: {folder}/in", "topic: sales", 2, "source"),
        ("master: {folder}/products", "master: {folder}/absent", 8, "lookups.0.master: .*absent"),
        ("master: {folder}/products", "mister: x", 8, "lookups.0.*mister: .*unknown field"),
        ("on: product_id", "on: price", 9, "lookups.0.on: 'price'"),
        ("on: product_id", "on: []", 9, "lookups.0.on"),
        ("how: left", "how: outer", 10, "how: 'outer': valid values: inner, left, left_semi"),
        ("how: left", "how: leftsemi", 10, "how: 'leftsemi': did you mean 'left_semi'"),
        (
            "select: [price]",
            "select: [prize]",
            11,
            "lookups.0.select: .*'prize'; did you mean",
        ),
        ("select: [price]", "as_of: sold_at", 11, "lookups.0.as_of: .*has no history"),
        ("select: [price]", "where: {{compare: [quantity, <, 1, 2]}}", 11, "lookups.0.where.*give"),
        ("select: [price]", "where: {{compare: [quantity, =<, price]}}", 11, "lookups.0.where.*=<"),
        (
            "select: [price]",
            "where: {{between: [n, low, high], off: x}}",
            11,
            "unknown field 'off'",
        ),
        ("select: [price]", "where: {{compare: [quantity, <, prize]}}", 11, "where.*'prize'"),
        ("compute: {{amount: quantity * price}}", "compute: 7", 13, "steps.0.compute: '7'"),
        ("where: amount > 0", "were: amount > 0", 14, "steps.1.were: .*unknown field"),
        ("where: amount > 0", "where: ''", 14, "steps.1.where: ''"),
        ("where: amount > 0", "select: []", 14, "steps.1.select"),
        ("where: amount > 0", "drop: 7", 14, "steps.1.drop: '7'"),
        (
            "where: amount > 0",
            "deduplicate: {{key: a, time: t}}",
            14,
            "steps.1.*must be given together",
        ),
        (
            "where: amount > 0",
            "new_only: {{master: x}}",
            14,
            "steps.1.new_only.on: missing field, which is required",
        ),
        ("where: amount > 0", "new_only: {{master: x, on: a}}", 14, "steps.1.new_only.master: 'x'"),
        ("where: amount > 0", "surrogate_key: {{mapping: x}}", 14, "surrogate_key.source"),
        ("  - where: amount > 0", "  - {{where: a, drop: b}}", 14, "steps.1: .*exactly one"),
        ("output: parquet", "output: avro", 16, "sink.output: 'avro'"),
        ("  path: {folder}/out\n", "", 15, "sink: .*needs path"),
        ("  path: {folder}/out", "  path: {folder}/pipeline.yaml", 17, "sink.path: .*is a file"),
        ("  path: {folder}/out", "  path: x\n  table: y", 15, "output parquet has no field table"),
        ("  path: {folder}/out", "  path: x\n  compression: zip", 18, "sink.compression: 'zip'"),
        ("  path: {folder}/out", "  path: x\n  durable: perhaps", 18, "sink.durable: 'perhaps'"),
        ("checkpoint: {folder}/checkpoint", "", 1, "checkpoint: missing field, which is required"),
        ("{folder}/checkpoint", "{folder}/pipeline.yaml", 18, "checkpoint: .*is a file"),
        ("trigger: 5 seconds", "trigger: sometimes", 19, "trigger: 'sometimes'"),
        ("memory: 64MB", "memory: much", 20, "memory: 'much'"),
        ("using: chybridjoin", "using: magic", 21, "using: 'magic'"),
        ("spark: {{", "spark: [] #", 22, "spark"),
        ("using: chybridjoin", "packages: kafka", 21, "packages: 'kafka'"),
        ("using: chybridjoin", "dead_letter: {{path: x}}", 1, "dead_letter .*how: inner"),
        ("using: chybridjoin", "dead_letter: {{output: csv, path: x}}", 21, "output: 'csv'"),
        ("using: chybridjoin", "batch_time: soon", 21, "batch_time: 'soon'"),
        ("using: chybridjoin", "batch_time: 0s", 21, "batch_time: '0s': .*above zero"),
        (
            "  - where: amount > 0",
            "  - deduplicate: {{key: sale_id}}\nbatch_time: 5s",
            1,
            "batch_time and parking need .*no deduplicate",
        ),
        ("using: chybridjoin", "parking: {{path: x, max_rows: 0}}", 21, "max_rows: '0'"),
        ("using: chybridjoin", "parking: {{path: x, max_age: old}}", 21, "max_age: 'old'"),
        (
            "using: chybridjoin",
            "deferred_topic: {{servers: h, topic: t}}",
            1,
            "deferred_topic needs batch_time",
        ),
        ("using: chybridjoin", "backlog: x", 1, "backlog is for batch_time or parking"),
        ("using: chybridjoin", "unknown: 1", 21, "unknown: .*unknown field"),
    ],
)
def test_a_field_that_is_wrong(old: str, new: str, line: int, says: str, write: Any) -> None:
    assert old in GOOD
    message = refusal(write(GOOD.replace(old, new, 1)))
    import re

    assert re.search(says, message), message
    assert re.search(rf"pipeline\.yaml:{line}:", message), message


EVERY_FIELD = """\
name: sales
source:
  format: kafka
  path: x
  schema: {a: long}
  servers: host:9092
  topic: t
  value:
    format: json
    keep: [key]
  options: {a: 1}
  select: [a]
  where: a > 0
lookups:
  - master: x
    mapped: resident
    sql:
      url: sqlite:///x
      table: t
      key: k
      columns: [k]
      unique: true
      page_bytes: 1MB
    on: k
    how: inner
    select: [k]
    where: {compare: [a, <, b]}
    as_of: t
    sync:
      parquet: x
      delta: x
      sql:
        url: sqlite:///x
        table: t
        version: v
        overlap: 1
        find_deletes: never
      kafka:
        servers: host:9092
        topic: t
        value: json
        options: {a: 1}
      every: 30s
    max_age: 1h
    too_old: warn
steps:
  - compute: {a: b}
    where: a > 0
    select: [a]
    drop: [a]
    surrogate_key:
      mapping: x
      source: a
      key: b
      to: c
      keep: true
    deduplicate:
      key: a
      time: t
      within: 5 minutes
    new_only:
      master: x
      on: a
sink:
  output: parquet
  path: x
  url: postgresql://x
  table: t
  schema: s
  patience: 1
  compression: none
  durable: true
  format: console
  options: {a: 1}
dead_letter:
  output: parquet
  path: x
parking:
  path: x
  max_age: 1d
  max_rows: 5
batch_time: 5s
backlog: x
deferred_topic:
  servers: host:9092
  topic: t
  options: {a: 1}
checkpoint: x
trigger: now
memory: auto
rate: 2000
using: auto
spark: {a: 1}
packages: [a]
"""
LINES = EVERY_FIELD.splitlines()


def fields() -> dict[str, int]:
    """The fields of the text above by their path, and their lines."""
    found: dict[str, int] = {}
    path: list[str] = []
    for number, line in enumerate(LINES, 1):
        text = line.replace("- ", "  ")
        depth = (len(text) - len(text.lstrip())) // 2
        around = [*path, "0"][:depth]  # what is new in between is an item of a list
        path = [*around, text.split(":")[0].strip()]
        found[".".join(path)] = number
    return found


def model_fields(model: Any, prefix: str = "") -> set[str]:
    """The same from the models themselves, so that no field is forgotten above."""
    from typing import get_args

    from pydantic import BaseModel

    names = set()
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        names.add(path)
        todo = [field.annotation]
        while todo:
            kind = todo.pop()
            todo += get_args(kind)
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                several = "list" in str(field.annotation)
                names |= model_fields(kind, f"{path}.0." if several else f"{path}.")
    return names


def test_every_field_is_in_the_text_above() -> None:
    from semistream.pipeline.model import Pipeline

    assert set(fields()) == model_fields(Pipeline)


@pytest.mark.parametrize("field", list(fields()))
def test_every_field_wrong_once(field: str, tmp_path: Path) -> None:
    """Whatever the field wants, it is not a list of these."""
    number = fields()[field]
    lines = EVERY_FIELD.splitlines()
    indent = len(lines[number - 1]) - len(lines[number - 1].lstrip(" -"))
    lines[number - 1] = lines[number - 1].split(":")[0] + ": [{nonsense: 17}]"
    while len(lines) > number and len(lines[number]) - len(lines[number].lstrip(" -")) > indent:
        del lines[number]
    file = tmp_path / "pipeline.yaml"
    file.write_text("\n".join(lines))
    message = refusal(file)
    found = [line for line in message.splitlines() if f":{number}: {field}" in line]
    assert found, message
    assert any("nonsense" in line for line in found), found


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "memory: 64MB",
            "memroy: 64MB",
            "20: memroy: unknown field 'memroy'; did you mean 'memory'?",
        ),
        (
            "schema: {{",
            "shema: {{",
            "5: source.shema: unknown field 'shema'; did you mean 'schema'?",
        ),
        (
            "select: [price]",
            "slect: [price]",
            "11: lookups.0.slect: unknown field 'slect'; did you mean 'select'?",
        ),
        (
            "where: amount > 0",
            "new_only: {{mastr: x, on: a}}",
            "14: steps.1.new_only.mastr: unknown field 'mastr'; did you mean 'master'?",
        ),
        (
            "master: {folder}/products",
            "sql: {{url: x, table: t, key: k, pagebytes: 1MB}}",
            "8: lookups.0.sql.pagebytes: unknown field 'pagebytes'; did you mean 'page_bytes'?",
        ),
        (
            "how: left",
            "zzz: 1",
            "10: lookups.0.zzz: unknown field 'zzz'; valid fields: master, sql, mapped, on, how, "
            "select, where, as_of, sync, max_age, too_old",
        ),
        (
            "output: parquet",
            "output: parquet\n  zzz: hunter2",
            "17: sink.zzz: unknown field 'zzz'; valid fields: output, path, url, table, schema, "
            "patience, compression, durable, format, options",
        ),
        (
            "using: chybridjoin",
            "using: chybridjion",
            "21: using: 'chybridjion': unknown join 'chybridjion'; did you mean 'chybr",
        ),
    ],
)
def test_a_misspelt_name(old: str, new: str, says: str, write: Any) -> None:
    """The error suggests the closest valid name, and lists all of them if none is close."""
    assert old in GOOD
    message = refusal(write(GOOD.replace(old, new, 1)))
    assert message.count(f"pipeline.yaml:{says}") == 1, message
    assert "hunter2" not in message


def test_all_errors_are_reported_at_once(write: Any) -> None:
    text = GOOD.replace("64MB", "much").replace("how: left", "how: x").replace("5 sec", "5 apples")
    assert len(refusal(write(text)).splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("- a\n- b", "mapping"),
        ("name: [", "invalid YAML"),
        ("name: a\nname: b", "pipeline.yaml:2: duplicate field 'name'"),
        ("name: !!python/object/apply:os.system [echo]", "name"),
        ("? [a]\n: b", "must be a string"),
        ("name: !!timestamp nonsense", "name"),
    ],
)
def test_files_that_are_no_pipeline(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    assert says in refusal(file)
    assert "cannot be read" in refusal(tmp_path / "absent.yaml")


def test_the_plan_shows_one_budget_and_its_shares(write: Any) -> None:
    from semistream.memory import format_size
    from semistream.pipeline import grants

    step = "new_only: {{master: {folder}/products, on: product_id}}"
    pipeline, document = load(write(GOOD.replace("where: amount > 0", step)))
    masters = check(pipeline, document)
    granted = grants(pipeline, masters)
    assert granted.lookups + sum(granted.steps.values()) == pipeline.memory == 64_000_000
    shares = f"look-ups {format_size(granted.lookups)}, new_only {format_size(granted.steps[1])}"
    plan = describe(pipeline, document, masters)
    assert f"64.0 MB per executor, using chybridjoin: {shares}" in plan
    assert "3 from Spark to Python" in plan
    alone, document = load(write(GOOD))
    masters = check(alone, document)
    assert grants(alone, masters).lookups == 64_000_000
    assert "64.0 MB per executor, using chybridjoin\n" in describe(alone, document, masters)
    none = load(write(GOOD.replace(GOOD[GOOD.index("lookups:") : GOOD.index("steps:")], "")))
    assert "the pipeline has no joins" in describe(*none, check(*none))


def test_dead_letters_of_a_table_without_versions_are_refused(write: Any) -> None:
    """A batch that is run again could route a row otherwise, between two commits."""
    sql = "sql: {{url: 'sqlite:///{folder}/shop.db', table: [main, products], key: product_id}}"
    text = GOOD.replace("master: {folder}/products", sql).replace("how: left", "how: inner")
    message = refusal(write(text + "dead_letter: {{path: {folder}/dead}}\n"))
    assert "pipeline.yaml:8: lookups.0.sql: table 'main.products' has no versions" in message
    assert "dead_letter" in message
    assert "import it into a master table" in message


POSTGRES = "output: postgresql\n  url: ${{DB_URL}}\n  table: t\n  patience: 0"


def test_secrets_come_from_the_environment_and_stay_there(write: Any) -> None:
    text = GOOD.replace("output: parquet\n  path: {folder}/out", POSTGRES)
    secret = "postgresql://me:hunter2@127.0.0.1:1/db"
    pipeline, document = load(write(text), {"DB_URL": secret})
    assert pipeline.sink.url == secret
    assert "hunter2" not in repr(document.error(("sink", "url"), secret))
    message = refusal(write(text), DB_URL=secret)
    assert "sink.url: '${DB_URL}'" in message
    assert "hunter2" not in message
    assert "environment variable DB_URL is not set" in refusal(write(text))
    wrong = text.replace("patience: 0", "patience: ${{DB_URL}}")
    message = refusal(write(wrong), DB_URL=secret)
    assert "hunter2" not in message
    assert "sink.patience: '${DB_URL}'" in message


def test_a_checkpoint_of_another_pipeline(write: Any, tmp_path: Path) -> None:
    from semistream.pipeline import claim_checkpoint

    claim_checkpoint(load(write(GOOD))[0])
    check(*load(write(GOOD)))
    check(*load(write(GOOD.replace("memory: 64MB", "memory: 1GB"))))
    message = refusal(write(GOOD.replace("path: {folder}/in", "path: {folder}/other")))
    assert "pipeline.yaml:18: checkpoint" in message
    assert "belongs to another pipeline: its source is" in message
    assert "its name is 'sales'" in refusal(write(GOOD.replace("name: sales", "name: other")))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/metadata").write_text("{}")
    message = refusal(write(GOOD.replace("{folder}/checkpoint", "{folder}/foreign")))
    assert "not a pipeline" in message


@pytest.mark.parametrize("version", [2, None])
def test_a_claim_of_another_format(version: int | None, write: Any, tmp_path: Path) -> None:
    import json

    from semistream.pipeline import claim_checkpoint

    claim_checkpoint(load(write(GOOD))[0])
    claim = tmp_path / "checkpoint/semistream.json"
    content = json.loads(claim.read_text())
    assert content["format"] == 1
    claim.write_text(json.dumps({**content, "format": version}))
    assert f"format version {version}" in refusal(write(GOOD))


@pytest.mark.parametrize("path", ["{folder}/out", "{folder}/in/../out"])
def test_dead_letters_in_the_folder_of_the_sink(path: str, write: Any) -> None:
    text = GOOD.replace("how: left", "how: inner")
    text += f"dead_letter:\n  path: {path}\n"
    message = refusal(write(text))
    assert "dead_letter.path" in message
    assert "the sink writes to this folder" in message


def test_a_folder_for_parked_rows_that_is_a_file(write: Any) -> None:
    text = GOOD.replace("how: left", "how: inner")
    steps = text.index("steps:")
    text = text[:steps] + text[text.index("sink:") :]
    message = refusal(write(text + "parking: {{path: {folder}/pipeline.yaml}}\n"))
    assert "parking.path" in message
    assert "is a file" in message


def test_memory_auto_is_estimated_from_the_rate(write: Callable[[str], Path]) -> None:
    from semistream.cli.run import plan_of
    from semistream.pipeline import with_memory

    text = GOOD.replace("memory: 64MB", "memory: auto\nrate: 2000")
    pipeline, _, masters, plan = plan_of(write(text))
    assert isinstance(pipeline.memory, int)
    one, three = (
        with_memory(pipeline.model_copy(update={"memory": "auto", "spark": settings}), masters)
        for settings in ({"spark.master": "local[1]"}, {"spark.executor.cores": 3})
    )
    assert int(three.memory) >= 2 * int(one.memory)  # the memory is divided among its workers
    assert "(estimated for 2,000 tuples/s), using chybridjoin" in plan
    for wrong in ("memory: auto", "memory: 64MB\nrate: 2000"):
        message = refusal(write(GOOD.replace("memory: 64MB", wrong)))
        assert "memory: auto and rate (tuples per second) must be given together" in message
    assert "rate" in refusal(write(GOOD.replace("memory: 64MB", "memory: auto\nrate: -1")))


WAITING = """\
name: waits
source: {{format: rate}}
lookups: [{{master: x, on: value{lookup}}}]
sink: {{{sink}}}
checkpoint: c
{more}
"""
PARQUET, SERVER = "output: parquet, path: y", "output: postgresql, url: 'postgresql://h', table: t"


@pytest.mark.parametrize(
    ("sink", "lookup", "more", "says"),
    [
        (PARQUET, "", "batch_time: 5s\ndead_letter: {path: z}", "needs parking"),
        (SERVER, "", "batch_time: 5s", "needs backlog"),
        (PARQUET, "", "parking: {path: p, max_rows: 5}", "needs dead_letter"),
        (PARQUET, ", how: left_anti", "parking: {path: p}", "left_anti"),
        ("output: spark, format: console", "", "batch_time: 5s", "need a semistream sink"),
    ],
)
def test_rows_that_wait_need_a_place(
    sink: str, lookup: str, more: str, says: str, tmp_path: Path
) -> None:
    text = WAITING.format(sink=sink, lookup=lookup, more="@").replace("@", more)
    (tmp_path / "pipeline.yaml").write_text(text)
    with pytest.raises(ss.ConfigError, match=says):
        load(tmp_path / "pipeline.yaml")
