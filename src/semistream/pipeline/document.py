"""YAML with line numbers, and values that come from the environment.

``${NAME}`` inside a text is replaced by the variable of that name. What a file says is kept
beside what it means, so that messages show ``${NAME}`` and never its value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from semistream.errors import ConfigError

Path_: TypeAlias = tuple[str | int, ...]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass
class Document:
    """The content of a file; line and original text of every value by its path in it."""

    file: str
    data: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    texts: dict[Path_, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def line(self, path: Path_) -> int:
        """The line of a value, or of the nearest thing around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def redact(self, text: str) -> str:
        """The text with all values from the environment blacked out."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def error(self, path: Path_, message: str) -> str:
        name = ".".join(str(part) for part in path)
        return self.redact(f"{self.file}:{self.line(path)}: {name + ': ' if name else ''}{message}")


def read_document(file: str | os.PathLike[str], environ: Mapping[str, str]) -> Document:
    """Parse a file; only plain YAML, no tags, no key twice."""
    import yaml

    name = os.fspath(file)
    document = Document(name)
    try:
        text = Path(file).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: this is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: this is not YAML: {error}") from error
    if node is None:
        raise ConfigError(f"{name}:1: the file is empty; see the reference of pipelines")
    document.data = _value(document, node, (), environ)
    return document


def _value(document: Document, node: Any, path: Path_, environ: Mapping[str, str]) -> Any:
    import yaml

    document.lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if key is None:
                raise ConfigError(f"{document.file}:{line}: a name must be a plain text")
            if key in result:
                raise ConfigError(f"{document.file}:{line}: {key!r} is there twice")
            result[key] = _value(document, value_node, (*path, key), environ)
            document.lines[(*path, key)] = line
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_value(document, item, (*path, i), environ) for i, item in enumerate(node.value)]
    document.texts[path] = node.value
    try:
        # Tags of Python objects are unknown to the safe loader, and refused here.
        value = yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            document.error(path, f"{node.value!r} cannot be read: {error}")
        ) from error
    return _expanded(document, value, path, environ) if isinstance(value, str) else value


def _expanded(document: Document, text: str, path: Path_, environ: Mapping[str, str]) -> str:
    def variable(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environ:
            raise ConfigError(
                document.error(path, f"${{{name}}}: the environment has no variable {name}")
            )
        if environ[name]:
            document.secrets.add(environ[name])
        return environ[name]

    return _VARIABLE.sub(variable, text)
