"""Plots of a workload: is it as skewed, and as bursty, as it should be?

Needs matplotlib: ``pip install 'semistream[plot]'``. Colours differ in lightness as well as in
hue, so the plots are readable in greyscale.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semistream.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK, LIGHT = "#1b3a5c", "#e08214"
_POINTS = 400


def rank_frequency(
    keys: npt.NDArray[np.int64], path: str | Path, domain: int, exponent: float | None = None
) -> Path:
    """Rank against frequency, both on log axes; with the exponent, Zipf's law as a line."""
    _, counts = np.unique(keys, return_counts=True)
    counts = np.sort(counts)[::-1]
    figure, axes = _figure(1)
    ranks = _log_spaced(counts.size)
    label = f"{keys.size:,} tuples over {counts.size:,} distinct keys"
    axes[0].loglog(ranks, counts[ranks - 1], "o", markersize=7, color=DARK, label=label)
    if exponent is not None:
        line = _log_spaced(domain)
        expected = keys.size * line**-exponent / _harmonic(domain, exponent)
        shown = expected > 0.5
        law = f"Zipf's law, exponent {exponent:g}"
        axes[0].loglog(line[shown], expected[shown], linewidth=2, color=LIGHT, label=law)
    axes[0].set_xlabel("rank of the key (1 = most frequent)")
    axes[0].set_ylabel("frequency (tuples)")
    axes[0].legend(frameon=False, fontsize=14)
    return _save(figure, path)


def arrivals_over_time(
    counts: npt.NDArray[np.int64], path: str | Path, step_seconds: float = 1.0
) -> Path:
    """Arrivals at three time scales: the whole stream, its first tenth, its first hundredth.

    A self-similar stream looks equally rough at each; a Poisson stream smooths out.
    """
    if counts.size < 200:
        raise ConfigError(
            f"{counts.size} steps are too few for three time scales; generate 200 steps or more"
        )
    figure, axes = _figure(3)
    for axis, part in zip(axes, (1, 10, 100), strict=True):
        some = counts[: counts.size // part]
        width = max(1, some.size // _POINTS)
        heights = some[: some.size // width * width].reshape(-1, width).mean(axis=1)
        seconds = np.arange(heights.size + 1) * width * step_seconds
        axis.stairs(heights / step_seconds, seconds, fill=True, color=DARK)
        axis.set_xlim(0, seconds[-1])
        axis.set_ylim(bottom=0)
        axis.set_ylabel("tuples/s")
        axis.set_title(f"one bar = {width * step_seconds:g} s", loc="right", fontsize=13)
    axes[-1].set_xlabel("time since the start (s)")
    return _save(figure, path)


def _log_spaced(most: int) -> npt.NDArray[np.int64]:
    return np.unique(np.geomspace(1, most, _POINTS).astype(np.int64))


def _harmonic(domain: int, exponent: float) -> float:
    """Sum of k**-exponent: the head term by term, the tail by its integral."""
    head = min(domain, 100_000)
    total = float((np.arange(1, head + 1, dtype=np.float64) ** -exponent).sum())
    if domain > head:
        low, high = head + 0.5, domain + 0.5
        if exponent == 1.0:
            total += float(np.log(high / low))
        else:
            total += (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
    return total


def _figure(rows: int) -> tuple[Figure, list[Any]]:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib, which is not installed; run pip install 'semistream[plot]'"
        ) from error
    with rc_context({"font.size": 14, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 5.5 if rows == 1 else 2.6 * rows), layout="constrained")
        axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    return figure, list(axes)


def _save(figure: Figure, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path
