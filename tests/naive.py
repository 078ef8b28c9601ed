"""The oracle: a naive join, simple enough to be obviously correct.

Both sides become lists of Python rows, the master's rows go into a dictionary of lists, and
every stream row looks its key up. Slow and entirely in memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

Rows = list[tuple[Any, ...]]
RowsByKey = dict[tuple[Any, ...], Rows]
On = str | Sequence[str] | Mapping[str, str]
Select = Sequence[str] | Mapping[str, str] | None
Where = Callable[[dict[str, Any], dict[str, Any]], bool] | None

HOWS = ("inner", "left", "left_semi", "left_anti")
_PLAIN = {int, str, bytes, bool, type(None)}


def join(
    stream: pa.Table,
    master: pa.Table,
    on: On,
    how: str = "inner",
    select: Select = None,
    where: Where = None,
) -> Rows:
    """All rows of the join, in stream order, as tuples of Python values."""
    assert how in HOWS, how
    chosen = master_columns(stream.column_names, master.column_names, on, select)
    if where is not None:
        return conditional(stream, master, on, how, list(chosen), where)
    return probe(stream, rows_by_key(master, on, chosen), on, how, len(chosen))


def conditional(
    stream: pa.Table, master: pa.Table, on: On, how: str, chosen: list[str], where: Any
) -> Rows:
    """Every stream row meets every master row; ``where`` decides about those with equal keys."""
    pairs, rows, out = key_pairs(on).items(), master.to_pylist(), []
    for row in stream.to_pylist():
        found = [
            other
            for other in rows
            if all(row[s] is not None and row[s] == other[m] for s, m in pairs)
            and where(row, other)
        ]
        values = tuple(row.values())
        if how in ("left_semi", "left_anti"):
            out += [values] if bool(found) == (how == "left_semi") else []
        elif found or how == "inner":
            out += [values + tuple(other[name] for name in chosen) for other in found]
        else:
            out.append(values + (None,) * len(chosen))
    return out


def as_of(master: pa.Table, key: str, time: str, begin: str, end: str | None = None) -> Where:
    """The condition that a row was valid at a tuple's time: it began last, and has not ended."""
    rows = master.to_pylist()

    def was_valid(row: dict[str, Any], other: dict[str, Any]) -> bool:
        now = row[time]
        if now is None or other[begin] > now:
            return False
        if end is not None and other[end] is not None and other[end] <= now:
            return False
        later = (one[begin] for one in rows if one[key] == other[key])
        return not any(other[begin] < moment <= now for moment in later)

    return was_valid


def rows_by_key(master: pa.Table, on: On, chosen: Iterable[str]) -> RowsByKey:
    """The chosen columns of the master's rows, by their key."""
    names, columns = list(key_pairs(on).values()), list(chosen)
    found: RowsByKey = defaultdict(list)
    for row in master.to_pylist():
        found[tuple(row[name] for name in names)].append(tuple(row[name] for name in columns))
    return found


def probe(stream: pa.Table, masters_of_key: RowsByKey, on: On, how: str, width: int) -> Rows:
    """Every stream row looks its key up; ``width`` is the number of columns that it gains."""
    names = list(key_pairs(on))
    out: Rows = []
    for row in stream.to_pylist():
        key = tuple(row[name] for name in names)
        values = tuple(row.values())
        matches = [] if None in key else masters_of_key.get(key, [])
        if how == "left_semi":
            out += [values] if matches else []
        elif how == "left_anti":
            out += [] if matches else [values]
        elif matches:
            out += [values + match for match in matches]
        elif how == "left":
            out.append(values + (None,) * width)
    return out


def columns(
    stream: pa.Table, master: pa.Table, on: On, how: str = "inner", select: Select = None
) -> list[str]:
    """The names of the output columns: the stream's, then the master's."""
    if how in ("left_semi", "left_anti"):
        return list(stream.column_names)
    chosen = master_columns(stream.column_names, master.column_names, on, select)
    return list(stream.column_names) + list(chosen.values())


def key_pairs(on: On) -> dict[str, str]:
    """``on`` in any of its three forms, as {stream column: master column}."""
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping):
        return dict(on)
    return {name: name for name in on}


def master_columns(
    stream_names: Sequence[str], master_names: Sequence[str], on: On, select: Select
) -> dict[str, str]:
    """{master column: its name in the output}.

    A key column of the same name on both sides is there once, unless ``select`` asks for it.
    Any other name that the stream also has gets the suffix ``_master``, except if ``select`` is
    a mapping, which defines the names.
    """
    if isinstance(select, Mapping):
        return dict(select)
    if select is None:
        shared_keys = {left for left, right in key_pairs(on).items() if left == right}
        select = [name for name in master_names if name not in shared_keys]
    return {name: f"{name}_master" if name in stream_names else name for name in select}


def rows_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> Rows:
    """The rows of record batches as tuples of Python values."""
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def same_rows(actual: Rows, expected: Rows) -> None:
    """Assert that two lists of rows are equal as multisets; the message shows the difference."""
    extra, missing = Counter(map(canonical, actual)), Counter(map(canonical, expected))
    if extra == missing:
        return
    extra, missing = extra - missing, missing - extra
    raise AssertionError(
        f"{len(actual)} rows, {len(expected)} expected; "
        f"{missing.total()} missing, {extra.total()} that should not be there\n"
        f"missing:\n{_examples(missing)}\nshould not be there:\n{_examples(extra)}"
    )


def canonical(value: Any) -> Hashable:
    """A hashable stand-in for a value: equal exactly if the values are the same.

    Nested values become tuples, NaN equals NaN, and 1, 1.0 and True are different.
    """
    if type(value) in _PLAIN:
        return (type(value).__name__, value)
    if isinstance(value, Mapping):
        return ("struct", tuple((name, canonical(field)) for name, field in value.items()))
    if isinstance(value, tuple | list):
        return (type(value).__name__, tuple(canonical(item) for item in value))
    if isinstance(value, float):
        return ("float", value.hex())
    return (type(value).__name__, value)


def _examples(rows: Counter[Hashable], most: int = 5) -> str:
    lines = [f"  {count} x {_plain(row)}" for row, count in list(rows.items())[:most]]
    if len(rows) > most:
        lines.append(f"  ... and {len(rows) - most} more kinds of row")
    return "\n".join(lines) or "  (none)"


def _plain(value: Any) -> Any:
    """Undo :func:`canonical` for a reader."""
    kind, content = value
    if kind == "struct":
        return {name: _plain(field) for name, field in content}
    if kind in ("tuple", "list"):
        items = [_plain(item) for item in content]
        return tuple(items) if kind == "tuple" else items
    return float.fromhex(content) if kind == "float" else content
