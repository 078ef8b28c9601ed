"""Pictures: a burst over time; figures 6 to 8 of 003."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def plot_burst(burst: dict[str, Any], path: Path) -> None:
    """Rates, tuples in the store, and memory against its budget."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    samples = burst["samples"]
    seconds = np.array([sample["seconds"] for sample in samples])
    figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True)
    edges = np.linspace(seconds[0], seconds[-1], 121)
    for name, label in (("arrived", "accepted"), ("served", "served")):
        values = np.interp(edges, seconds, [sample[name] for sample in samples])
        rates = np.diff(values) / np.diff(edges)
        axes[0].stairs(np.where(rates > 0, rates, np.nan), edges, label=label, baseline=None)
    axes[0].set(ylabel="tuples/s", yscale="log")
    stored = np.array([sample["stored"] for sample in samples])
    axes[1].fill_between(seconds, stored, color="tab:orange", alpha=0.5, label="in the store")
    axes[1].set_ylabel("tuples")
    memory = np.array([sample["memory"] for sample in samples]) / 1e6
    axes[2].plot(seconds, memory, color="tab:green", label="memory")
    axes[2].axhline(burst["budget"] / 1e6, color="black", linestyle=":", label="budget")
    axes[2].set(ylabel="MB", xlabel="seconds", ylim=(0, None))
    for axis in axes:
        axis.axvspan(burst["calm"], burst["calm"] + burst["seconds"], color="tab:red", alpha=0.08)
        axis.legend(loc="upper right", frameon=False)
    figure.suptitle("A burst of ten times the service rate: shed, and served later")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def plot_figures(reports: dict[str, dict[str, Any]], path: Path) -> None:
    """Figures 6, 7 and 8 of 003: a column for each disk. ``reports`` by part."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    disks = {"2011": "a disk of 2011 (modelled)", "this": "this disk"}
    figure, axes = plt.subplots(3, 2, figsize=(9, 9))
    for column, (clock, title) in enumerate(disks.items()):
        time, position, rate = axes[:, column]
        cells = [c for c in reports["figure6"]["figure6"]["cells"] if c["clock"] == clock]
        for join in dict.fromkeys(cell["join"] for cell in cells):
            mine = [cell for cell in cells if cell["join"] == join]
            time.plot([c["rows"] for c in mine], [c["seconds"] for c in mine], "o-", label=join)
        time.set(title=title, xlabel="rows of R", ylabel="seconds in the join", yscale="log")
        time.set_xticks(sorted({cell["rows"] for cell in cells}))
        found = reports[clock][clock]
        for ranks in ("scattered", "clustered"):
            mine = [cell for cell in found["positions"] if cell["ranks"] == ranks]
            places = [cell["position"] for cell in mine]
            position.plot(places, [c["service"] for c in mine], "o-", label=f"{ranks} ranks")
        position.set(xlabel="look-up position", ylabel="tuples/s")
        position.set_ylim(0, 1.1 * position.get_ylim()[1])
        for strategy in dict.fromkeys(cell["strategy"] for cell in found["arrivals"]):
            mine = [cell for cell in found["arrivals"] if cell["strategy"] == strategy]
            rate.plot(
                [c["arrival"] for c in mine], [c["service"] for c in mine], "o-", label=strategy
            )
        rate.set(xlabel="tuples/s arriving", ylabel="tuples/s served", ylim=(0, None))
    for axis in axes.flat:
        axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
