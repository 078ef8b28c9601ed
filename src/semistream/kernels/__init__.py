"""Compiled inner loops: pure functions on arrays, and the only place that imports numba."""
