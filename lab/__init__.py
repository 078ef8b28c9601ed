"""Benchmarks and figures: uses the library as any user would, and is not shipped with it."""
