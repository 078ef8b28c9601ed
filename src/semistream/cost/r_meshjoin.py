"""R-MESHJOIN: MESHJOIN's model (004) with partitions of a group of pages.

There is no paper of it here. A chunk of the stream belongs to a group, which is read in parts
of the disk buffer's size: the requests are smaller than the partition, and every part is one
fixed cost.
"""

from __future__ import annotations

from semistream.cost.case import Case
from semistream.cost.meshjoin import mesh
from semistream.cost.moving import at_rest
from semistream.cost.prediction import Prediction


def predict(case: Case) -> Prediction:
    return at_rest(case, _grouped)


def _grouped(case: Case) -> Prediction:
    group = case.join.group_pages
    if group is None:
        group = case.settings.reduced_group_bytes // max(1, case.table.max_page_bytes)
        group = max(group, case.plan.buffer_pages)
    return mesh(case, partition_pages=group)
