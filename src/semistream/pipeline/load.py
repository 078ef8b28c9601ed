"""Read a pipeline file; every problem is reported with its field, value and line number."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from semistream.errors import ConfigError, unknown
from semistream.pipeline.document import Document, Path_, read_document
from semistream.pipeline.model import Pipeline


def load(
    file: str | os.PathLike[str], environ: Mapping[str, str] | None = None
) -> tuple[Pipeline, Document]:
    """Read and validate a file. One error lists all problems with field, value and line number."""
    document = read_document(file, os.environ if environ is None else environ)
    if not isinstance(document.data, dict):
        raise ConfigError(document.error((), "a pipeline is a mapping: name, source, sink, ..."))
    try:
        return Pipeline.model_validate(document.data), document
    except ValidationError as error:
        problems = dict.fromkeys(_format_problem(document, problem) for problem in error.errors())
        raise ConfigError("\n".join(problems)) from None


def _format_problem(document: Document, problem: Any) -> str:
    """Format one problem. Pydantic's path may include the members of a union; ours does not."""
    path: Path_ = ()
    at: Any = document.data
    for part in problem["loc"]:
        try:
            at = at[part]
        except (KeyError, IndexError, TypeError):
            if problem["type"] in ("missing", "extra_forbidden") and part == problem["loc"][-1]:
                path = (*path, part)
            continue
        path = (*path, part)
    message = str(problem["msg"]).removeprefix("Value error, ")
    if problem["type"] == "missing":
        message = "missing field, which is required"
    elif problem["type"] == "extra_forbidden":  # the name is wrong, so the value is not shown
        return document.error(path, _unknown_field(problem["loc"]))
    shown = document.shown(document.texts.get(path))
    if shown is None and problem["type"] not in ("missing", "value_error"):
        shown = str(document.shown(at))[:100]  # a list or a mapping instead of a scalar
    if shown is not None:
        message = f"{shown!r}: {message}"
    return document.error(path, message)


def _unknown_field(loc: Sequence[str | int]) -> str:
    """The message for a field that its model does not have; ``loc`` is pydantic's path to it."""
    model: type[BaseModel] = Pipeline
    for part in loc[:-1]:
        if isinstance(part, str):
            model = _model_of(_fields(model).get(part)) or model
    return unknown("field", str(loc[-1]), _fields(model))


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """The types of a model's fields, by their names in the file."""
    return {f.alias or name: f.annotation for name, f in model.model_fields.items()}


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """The model in a type such as ``list[Lookup]`` or ``Sql | None``."""
    if parts := get_args(annotation):
        return next((model for model in map(_model_of, parts) if model is not None), None)
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None
