"""CMESHJOIN as 003 describes it (section 3.1; the front stage is that of 3.2.1), tuple by tuple.

    1   for ever:
    2     front-stage phase: hits go out, up to w misses are taken for the mesh
    3     read the next b pages of R
    4     if Q holds k chunks, remove the oldest from Q and H_S
    5     put the misses into H_S and append them to Q as one chunk
    6     for each row r of the b pages:
    7       output r with the f tuples of H_S that it matches
    8       if f >= threshold: r enters H_R

The section has no listing of its own: these lines are MESHJOIN's (004, figure 4) with the front
stage's (003, algorithm 3, and algorithm 1, lines 16 and 19 to 22) around them.

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from typing import Any

from reference import front_stage, meshjoin
from reference.front_stage import FrontPhase, FrontStage, whole_keys
from reference.trace import Relation, Row

AS_BUILT = {**meshjoin.AS_BUILT, **front_stage.AS_BUILT}


class CachedMeshJoin(meshjoin.MeshJoin):
    """
    Parameters
    ----------
    front_rows, threshold
        Rows that H_R holds, and the threshold of line 8.
    rows_of_a_buffer_enter_together, threshold_moves, hits_pass_a_full_window
        See :mod:`reference.front_stage`.

    The other switches are those of MESHJOIN.
    """

    def __init__(
        self,
        relation: Relation,
        *,
        front_rows: int,
        threshold: int,
        rows_of_a_buffer_enter_together: bool = False,
        threshold_moves: bool = False,
        hits_pass_a_full_window: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(relation, **options)
        self.front = FrontStage(
            front_rows,
            threshold,
            rows_of_a_buffer_enter_together=rows_of_a_buffer_enter_together,
            threshold_moves=threshold_moves,
        )
        self.phase = FrontPhase(self.front, self, hits_pass_a_full_window=hits_pass_a_full_window)
        self.pages_read: list[int] = []  # of the partition in the disk buffer

    def take_in(self) -> None:  # line 2
        self.phase.take_in(self.room, self.coming.append)

    def read(self, page: int) -> list[Row]:
        self.pages_read.append(page)
        return super().read(page)

    def probe(self, partition: list[Row]) -> None:
        super().probe(partition)  # lines 6 and 7
        pages, self.pages_read = self.pages_read, []
        if not pages:
            return
        matches = [len(self.hash_table.get(row.key, [])) for row in partition]
        cut = self.relation.cut_after(pages[0] - 1), self.relation.cut_after(pages[-1])
        hot = whole_keys(partition, matches, self.front.threshold, cut)
        self.front.admit(hot, self.call)  # line 8
        self.front.rounds += len(pages) / len(self.relation.pages)
