"""For ``make docs``: examples after the parameters of a docstring get a heading of their own.

In the code they follow after a blank line; the parser of the documentation would read them as
further parameters.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLES = re.compile(r"\n\n(?=>>> )")


def with_heading(text: str) -> str:
    """
    >>> print(with_heading("Parameters\\n----------\\na\\n    One.\\n\\n>>> 1\\n1"))
    Parameters
    ----------
    a
        One.
    <BLANKLINE>
    Examples
    --------
    >>> 1
    1
    """
    parameters = text.find("Parameters\n----------")
    if parameters < 0 or "Examples\n--------" in text:
        return text
    head, tail = text[:parameters], text[parameters:]
    return head + _EXAMPLES.sub("\n\nExamples\n--------\n", tail, count=1)


class ExamplesHaveHeadings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_heading(obj.docstring.value)
