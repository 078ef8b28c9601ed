"""Batches that are drained one by one, for `python -m lab.bench_drain`."""
