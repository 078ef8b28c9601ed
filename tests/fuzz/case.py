"""One case: a join, a stream cut into batches, and the events of its run.

Everything is drawn from the world's seed and the case's number. A budget that is refused is
raised to what the error names, and the case starts again: so most cases run with little more
than the least memory.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

import naive
import semistream as ss
from fuzz.around import Around, Where
from fuzz.faults import Disk
from fuzz.shapes import StreamShape
from fuzz.world import Table, World
from harness import check_books, size_named_in

_TRIES = 60


@dataclass(frozen=True)
class Case:
    """The drawn parameters; :meth:`run` raises if anything is wrong."""

    world: World
    number: int
    algorithm: str
    options: dict[str, Any]
    how: str
    stream: StreamShape
    on: Any
    select: Any
    memory: int
    room: float  # times the least memory
    access: str  # read, mapped, resident or direct
    versions: str  # newest, pinned, jumping, or changing
    faults: bool
    ends: str  # flush or close
    where: Where | None
    around: Around
    acts: list[str] = field(default_factory=list, compare=False)

    @classmethod
    def draw(cls, world: World, number: int, direct: bool = True) -> Case:
        rng = Random(f"{world.seed}.{number}")
        algorithm = rng.choice(list(ss.ALGORITHMS))
        stream = StreamShape.draw(rng, world.shape)
        pairs = dict(zip(stream.key, world.shape.key, strict=True))
        on: Any = pairs
        if stream.key == world.shape.key:
            on = rng.choice((pairs, stream.key, stream.key[0] if len(pairs) == 1 else stream.key))
        names = world.shape.schema.names
        chosen = rng.sample(names, rng.randrange(len(names) + 1))
        select = rng.choice((None, {name: f"master {name}" for name in chosen}))
        versions = rng.choice(("newest", "pinned", "jumping") * 2 + ("changing",))
        around = Around.draw(rng)
        if around.sheds and versions in ("jumping", "changing"):
            versions = "newest"  # a shed tuple meets the version at its return
        return cls(
            world,
            number,
            algorithm,
            _options(rng, algorithm, world),
            rng.choice(naive.HOWS),
            stream,
            on,
            select,
            memory=rng.choice((1_000, 1_000, 1_000, 200_000, 2_000_000)),
            room=rng.choice((1.0, 1.0, 1.1, 2.0)),
            access=rng.choice(("read", "mapped", "resident", "direct" if direct else "read")),
            versions=versions,
            faults=rng.random() < 0.3,
            ends="close" if rng.random() < 0.1 else "flush",
            where=Where.draw(rng),
            around=around,
        )

    @property
    def seed(self) -> str:
        return f"{self.world.seed}.{self.number}"

    def __str__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return (
            f"{self.algorithm}(how={self.how!r}{options}), on={self.on}, select={self.select}, "
            f"{self.access}, {self.versions} version, stream {self.stream.schema.types}, "
            f"faults={self.faults}, ends with {self.ends}, {self.where}, {self.around}\n"
            f"{self.world}\n" + "\n".join(self.acts)
        )

    def run(self, disk: Disk) -> None:
        memory = self.memory
        for _ in range(_TRIES):
            self.acts.clear()
            self.acts.append(f"memory={memory}")
            try:
                with _Play(self, memory, disk) as play:
                    play.go()
                return
            except ss.BudgetError as error:
                least = max(size_named_in(str(error)), int(1.1 * memory))
                memory = int(self.room * least)
        raise AssertionError(f"every budget is refused, at last {memory} bytes")


def _options(rng: Random, algorithm: str, world: World) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["disk_buffer_pages"] = rng.choice((1, 2, 7))
    if algorithm == "x-hybridjoin":
        options["observe"] = rng.choice((1, 20, 60, 20_000))
        if len(world.shape.kinds) == 1 and rng.random() < 0.4:
            keys = [key for (key,) in world.shape.domain[:20]]
            options["hot_keys"] = pa.array(keys, world.shape.schema.field(0).type)
    elif algorithm == "optimised-x-hybridjoin":
        options["observe"] = rng.choice((1, 20, 60, 20_000))
    elif algorithm == "r-meshjoin" and rng.random() < 0.3:
        options["group_pages"] = rng.choice((1, 3))
    elif algorithm in ("cmeshjoin", "chybridjoin", "cinlj") and rng.random() < 0.5:
        options["front_stage"] = rng.choice((0.05, 0.5))
        options["threshold"] = rng.choice((1, 2, 5))
        options["cache"] = rng.choice(("recorder", "counting"))
    elif algorithm == "sweepjoin" and rng.random() < 0.5:
        options["front_stage"] = rng.choice((0.05, 0.5))
        options["cache"] = rng.choice(("counting", "counting", "recorder"))
    if rng.random() < 0.5:
        options["adapt"] = rng.choice((True, False))
    return options


class _Play:
    """A run, its input, its output, and the expected output."""

    def __init__(self, case: Case, memory: int, disk: Disk) -> None:
        self.case = case
        self.rng = Random(f"{case.seed}.acts")
        self.disk = disk
        self.expected: naive.Rows = []
        self.matches = self.pushed = 0
        self.failed = False  # since the last call that succeeded
        self.out: naive.Rows = []
        self.copy: Table | None = case.world.copy() if case.versions == "changing" else None
        self.table = self.copy or case.world.table
        self.wanted: int | None = None  # the version that batches meet; None follows the newest
        memory += case.around.buffer
        join = ss.join(case.algorithm, memory=memory, how=case.how, **case.options)
        self.folder = case.world.scratch()
        options = {
            "on": case.on,
            "select": case.select,
            "direct": case.access == "direct",
            "where": None if case.where is None else case.where.condition,
            **case.around.options(self.folder),
        }
        try:
            self.run = join.open(self._master(), **options)
        except BaseException:
            self._remove()
            raise
        self.columns = naive.master_columns(
            case.stream.schema.names, case.world.shape.schema.names, case.on, case.select
        )

    def _master(self) -> Any:
        mapped = {"mapped": True, "resident": "resident"}.get(self.case.access, False)
        if self.case.versions == "changing":
            return ss.MasterTable.open(self.table.path, mapped=mapped)
        if self.case.versions == "newest":
            return self.case.world.open(None, mapped)
        self.wanted = self.rng.choice(list(self.table.versions))
        return self.case.world.open(self.wanted, mapped)

    def __enter__(self) -> _Play:
        return self

    def __exit__(self, *_: object) -> None:
        self.disk.mend()
        self.run.close()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.copy is not None:
            shutil.rmtree(self.copy.path)

    def go(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 7)):
            self._act(rng)
        if self.case.ends == "close":
            self._close()
        else:
            self._finish()

    def _act(self, rng: Random) -> None:
        if self.case.faults and rng.random() < 0.4:
            self.disk.broken = rng.random() < 0.3
            self.disk.every = rng.choice((0, 0, 2, 3, 7))
            self._note(f"disk broken={self.disk.broken}, every={self.disk.every}")
        if self.case.versions == "jumping" and rng.random() < 0.4:
            if self.failed:  # a batch whose version could not be opened would go along
                self.disk.mend()
                assert self._collect(self.run.flush, None)
            self.wanted = rng.choice(list(self.table.versions))
            self._note(f"use version {self.wanted}")
            self.run.use(self.wanted)
        if self.copy is not None and rng.random() < 0.4:
            broken, self.disk.broken = self.disk.broken, False
            every, self.disk.every = self.disk.every, 0
            self._note(f"change: {self.copy.change(rng, self.case.world.page_bytes)}")
            self.disk.broken, self.disk.every = broken, every
        what = rng.choice(("push", "push", "push", "push", "step", "flush"))
        take = rng.choice((None, None, None, 0, 1, 3))
        if what == "push" and self.case.around.sheds and rng.random() < 0.6:
            self._offer(rng.choice((0, 1, 20, 60, 200)))
        elif what == "push":
            self._push(rng.choice((0, 1, 5, 20, 60)), take)
        else:
            self._note(f"{what}, take {take}")
            self._collect(self.run.step if what == "step" else self.run.flush, take)

    def _push(self, count: int, take: int | None) -> None:
        """A batch is taken in as a whole, or refused as a whole if a read fails."""
        batch = self._draw_batch(count)
        version = self.wanted or self.table.newest
        self._note(f"push {count} at version {version}, take {take}")
        before = self.run.stats.tuples_in
        self._collect(lambda: self.run.push(batch), take)
        taken = self.run.stats.tuples_in - before
        assert taken in (0, count), f"{taken} of {count} tuples were taken in"
        if taken:
            self._expect(batch, version)
        else:
            assert not count or not self.disk.whole, "a batch was refused without a fault"

    def _offer(self, count: int) -> None:
        """A batch is accepted as a whole, and what finds no room is shed."""
        batch = self._draw_batch(count)
        self._note(f"offer {count}")
        assert self.run.offer(batch)
        check_books(self.run)
        self._expect(batch, self.wanted or self.table.newest)

    def _draw_batch(self, count: int) -> pa.RecordBatch:
        start, self.pushed = self.pushed, self.pushed + count
        return self.case.stream.draw_batch(self.rng, self.case.world.shape, count, start)

    def _expect(self, batch: pa.RecordBatch, version: int) -> None:
        self.expected += self._joined(batch, version, self.case.how)
        self.matches += len(self._joined(batch, version, "left_semi"))

    def _joined(self, batch: pa.RecordBatch, version: int, how: str) -> naive.Rows:
        rows, stream, on = (
            self.table.versions[version],
            pa.Table.from_batches([batch]),
            self.case.on,
        )
        if self.case.where is not None:
            chosen = list(self.columns)
            return naive.conditional(stream, rows.table, on, how, chosen, self.case.where.holds)
        return naive.probe(stream, rows.by_key(self.columns), on, how, len(self.columns))

    def _collect(self, begin: Any, take: int | None) -> bool:
        """Take some or all of the batches. Returns whether a read failed."""
        try:
            self._take(begin(), take)
        except ss.MasterTableError:
            if self.disk.whole:
                raise  # no fault was injected
            check_books(self.run)
            self.failed = True
            return False
        check_books(self.run)
        self.failed = self.failed and take is not None
        return True

    def _take(self, batches: Iterator[pa.RecordBatch], take: int | None) -> None:
        for rows in itertools.islice(batches, take):
            check_books(self.run)
            assert rows.schema == self.run.schema
            self.out += naive.rows_of([rows])

    def _finish(self) -> None:
        for _ in range(3):
            if self._collect(self.run.flush, None):
                break
        else:
            self._note("the disk is mended")
            self.disk.mend()
            assert self._collect(self.run.flush, None)
        stats = self.run.stats
        assert stats.waiting == 0, f"flush leaves tuples waiting: {stats.as_dict()}"
        assert stats.rows_out == len(self.out)
        assert stats.matched == self.matches, f"{self.matches} should match: {stats.as_dict()}"
        naive.same_rows(self.out, self.expected)
        if self.case.around.is_ordered:
            numbers = [row[0] for row in self.out]
            assert numbers == sorted(numbers), "rows are not in the order of the stream"

    def _close(self) -> None:
        """Closed early: all returned rows are expected ones."""
        self.run.close()
        found = Counter(map(naive.canonical, self.out))
        wrong = found - Counter(map(naive.canonical, self.expected))
        assert not wrong, f"rows that should not be there: {wrong}"

    def _note(self, act: str) -> None:
        self.case.acts.append(act)
