"""Master tables of many shapes, for `python -m lab.bench_shapes`.

Every row is derived from its number, so that an answer can be checked without looking R up:
``keys`` encodes a number as key columns, ``payload`` as the other columns, ``catalogue`` combines
both into the shapes that are measured, and ``data`` builds the tables and checks the answers.
"""
