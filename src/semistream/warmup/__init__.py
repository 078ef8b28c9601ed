"""Compiles all kernels ahead of time, when an image is built or while Spark starts."""
