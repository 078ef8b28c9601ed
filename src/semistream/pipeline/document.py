"""Read YAML with line numbers and with environment variables.

``${NAME}`` in a string is replaced by the environment variable of that name. The original text is
kept next to the value, so that messages show ``${NAME}`` and never its value. Passwords written in
the file are redacted, too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from semistream.errors import ConfigError
from semistream.master.sql_redact import has_secrets, is_secret, redact, without_secrets

Path_: TypeAlias = tuple[str | int, ...]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_DEPTH = 50
_MAX_SIZE = 1 << 20  # characters, with aliases expanded; a value counts as at least 16


@dataclass
class Document:
    """The content of a file, with the line and original text of every value, by path."""

    file: str
    data: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    texts: dict[Path_, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    urls: set[str] = field(default_factory=set)

    def line(self, path: Path_) -> int:
        """Return the line of a value, or of its nearest enclosing value."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def redact(self, text: str) -> str:
        """Redact all values from the environment and all passwords."""
        forms = {f for s in self.secrets for f in (s, repr(s)[1:-1], json.dumps(s)[1:-1])}
        for secret in sorted(forms, key=len, reverse=True):
            text = text.replace(secret, "***")
        for url in sorted(self.urls, key=len, reverse=True):
            text = without_secrets(text, url)
        return text

    def shown(self, value: Any) -> Any:
        """Redact a value for use in a message, before it is quoted or truncated."""
        if isinstance(value, str):
            return redact(self.redact(value))
        if isinstance(value, dict):
            return {name: self.shown(part) for name, part in value.items()}
        return [self.shown(part) for part in value] if isinstance(value, list) else value

    def error(self, path: Path_, message: str) -> str:
        name = ".".join(str(part) for part in path)
        return self.redact(f"{self.file}:{self.line(path)}: {name + ': ' if name else ''}{message}")


def read_document(file: str | os.PathLike[str], environ: Mapping[str, str]) -> Document:
    """Parse a file. Tags for Python objects and duplicate keys are errors."""
    import yaml

    name = os.fspath(file)
    document = Document(name)
    try:
        text = Path(file).read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be read: {error.strerror}; give the path of a pipeline file (YAML)"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} cannot be read: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{name}:{line}: invalid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: invalid YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"{name}: values are nested deeper than {_MAX_DEPTH} levels") from None
    if node is None:
        raise ConfigError(f"{name}:1: the file is empty; see docs/pipeline.md")
    document.data = _Converter(document, environ).value(node, ())
    return document


class _Converter:
    """Converts nodes to values. Aliases are expanded in place and count towards the limit."""

    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        self._document = document
        self._environ = environ
        self._size = 0
        self._parents: list[Any] = []

    def value(self, node: Any, path: Path_) -> Any:
        import yaml

        self._document.lines[path] = node.start_mark.line + 1
        self._check_limits(node)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._parents.append(node)
        try:
            return (self._mapping if isinstance(node, yaml.MappingNode) else self._list)(node, path)
        finally:
            self._parents.pop()

    def _check_limits(self, node: Any) -> None:
        self._size += 16 + (len(node.value) if isinstance(node.value, str) else 0)
        if any(node is outer for outer in self._parents):
            problem = "an alias contains itself; repeat the value instead"
        elif len(self._parents) > _MAX_DEPTH:
            problem = f"values are nested deeper than {_MAX_DEPTH} levels"
        elif self._size > _MAX_SIZE:
            problem = f"aliases expand to more than {_MAX_SIZE:,} characters; use fewer aliases"
        else:
            return
        raise ConfigError(f"{self._document.file}:{node.start_mark.line + 1}: {problem}")

    def _mapping(self, node: Any, path: Path_) -> dict[Any, Any]:
        import yaml

        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            line = key_node.start_mark.line + 1
            if key is None:
                raise ConfigError(f"{self._document.file}:{line}: a field name must be a string")
            if key in result:
                raise ConfigError(f"{self._document.file}:{line}: duplicate field {key!r}")
            result[key] = self.value(value_node, (*path, key))
            self._document.lines[(*path, key)] = line
        return result

    def _list(self, node: Any, path: Path_) -> list[Any]:
        return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]

    def _scalar(self, node: Any, path: Path_) -> Any:
        import yaml

        document = self._document
        document.texts[path] = node.value
        if _is_setting(path) and any(is_secret(str(part)) for part in path) and node.value:
            document.secrets.add(node.value)
        try:
            # The safe loader has no tags for Python objects, so they raise here.
            value = yaml.SafeLoader("").construct_object(node)
        except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
            raise ConfigError(
                document.error(path, f"{document.shown(node.value)!r} cannot be read: {error}")
            ) from error
        return self._expanded(value, path) if isinstance(value, str) else value

    def _expanded(self, text: str, path: Path_) -> str:
        def variable(match: re.Match[str]) -> str:
            name = match[1]
            if name not in self._environ:
                problem = f"environment variable {name} is not set"
                raise ConfigError(self._document.error(path, problem))
            if self._environ[name]:
                self._document.secrets.add(self._environ[name])
            return self._environ[name]

        value = _VARIABLE.sub(variable, text)
        if "://" in value and has_secrets(value):
            self._document.urls.add(value)
        return value


def _is_setting(path: Path_) -> bool:
    """True under ``options`` and ``spark``. Elsewhere names are columns, such as ``token``."""
    return "options" in path or path[:1] == ("spark",)
