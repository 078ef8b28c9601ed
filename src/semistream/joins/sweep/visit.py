"""A visit of SweepJoin: the tuples that are served together, and the pages that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from semistream.engine.rows.layout import Slots

NOT_CHOSEN = -1
READ, READ_ROWS, MAP_ROWS = 0, 1, 2  # whole pages; the rows that are needed


@dataclass
class Visit:
    """Pages to read, in ascending order, and the tuples that wait for them, by code.

    A visit that is not soon due has tuples in any order and no pages yet (``is_found``)."""

    pages: Any
    places: Any  # for every tuple, the first of ``pages`` that can hold its code
    slots: Slots
    chunks: Any  # of the window, to be given back
    stretches: int = 1
    first: int = 0  # stretch
    is_found: bool = True  # its pages are
    reader: Any = None  # that its first pages were requested from; None: not requested yet
    read: Any = None  # of these pages
    done: int = 0  # pages that were loaded
    copied: int = 0  # tuples whose rows were copied
    way: int = NOT_CHOSEN  # to access its pages: see visit_copies.py
    density: int = -1  # of its pages, if the way was chosen by it
    found: int = 0  # pairs
    collided: bool = False  # a tuple has met another key with the same code
    refused: bool = False  # conditions have kept tuples from rows

    def unread(self) -> Visit:
        """The same visit, without a request: its reader is gone."""
        self.reader = self.read = None
        return self

    @property
    def ended(self) -> bool:
        return self.done == len(self.pages)
