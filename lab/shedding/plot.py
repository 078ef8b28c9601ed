"""The picture of a burst over time."""

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
    every = max(1, len(samples) // 60)
    middle = (seconds[every::every] + seconds[:-every:every]) / 2
    for name, label in (("arrived", "arriving"), ("served", "served")):
        values = np.array([sample[name] for sample in samples])[::every]
        rates = np.diff(values) / np.maximum(np.diff(seconds[::every]), 1e-9)
        axes[0].plot(middle[: len(rates)], np.maximum(rates, 1), label=label)
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
