"""Restores the semistream errors that tasks raise.

An exception in a task reaches the driver as the text of a traceback inside a Java exception. Where
the driver waits for the result, the original exception is rebuilt from that text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pyspark.errors import PySparkException

from semistream import errors

_LINE = re.compile(r"^semistream\.errors\.(\w+): (.*)$", re.MULTILINE)


@contextlib.contextmanager
def reraise_semistream_errors() -> Iterator[None]:
    """Raise the semistream error that failed a Spark job, instead of Spark's wrapper."""
    try:
        yield
    except PySparkException as error:
        found = original(str(error))
        if found is None:
            raise
        raise found from error


def original(text: str) -> errors.SemistreamError | None:
    """The last semistream error in the text of a traceback; None if there is none."""
    matches = _LINE.findall(text)
    if not matches:
        return None
    name, message = matches[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.SemistreamError)):
        return None
    return kind(message)
