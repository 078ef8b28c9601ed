"""``auto``: chooses the join for a master table when it is opened."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from semistream.engine.plan import MemoryPlan
from semistream.engine.policy import Parts, Policy
from semistream.engine.run import Run
from semistream.engine.settings import Settings
from semistream.engine.shape import StreamShape, TableShape
from semistream.errors import InternalError
from semistream.joins.base import Join, open_source
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.sweep.sweepjoin import SweepJoin
from semistream.master.pages import PageSource


@dataclass(frozen=True, kw_only=True)
class AutoJoin(Join):
    """SweepJoin where the master has a page index, MESHJOIN on plain Parquet files.

    >>> AutoJoin(memory="50MB").name
    'auto'
    """

    name: ClassVar[str] = "auto"
    needs_order: ClassVar[bool] = False

    def chosen(self, ordered: bool) -> Join:
        """The join that is used on a source with, or without, a page index."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return SweepJoin(**options) if ordered else MeshJoin(**options)

    def open(self, master: Any, on: Any = None, **options: Any) -> Run:
        source = open_source(master)
        return self.chosen(source.ordered and on is not None).open(source, on, **options)

    def plan(self, table: TableShape, stream: StreamShape, settings: Settings) -> MemoryPlan:
        return self.chosen(table.ordered).plan(table, stream, settings)

    def policy(self, join: Join, parts: Parts) -> Policy:
        raise InternalError("auto was not resolved before its run was opened; please report this")


def choose(using: Join, source: PageSource, how: str | None = None) -> Join:
    """The join for this source, with this ``how``; raises if it needs a missing page index."""
    chosen = using.chosen(source.ordered) if isinstance(using, AutoJoin) else using
    chosen.check_source(source)
    return chosen if how is None else replace(chosen, how=how)
