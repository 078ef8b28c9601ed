"""Constants of the codes of keys, in a module that does not import numba.

The kernels get the key columns as an int64 array with one row per column and the columns below.
"""

KIND, WIDTH, BITS, OFFSET = range(4)
"""Kind; bytes of a value, or of a text's offset; if packed, the bits of a value, and the number
that is added to it."""

SIGNED, UNSIGNED, BIT, DECIMAL, WIDE_DECIMAL, TEXT, BYTES = range(7)
"""Kinds: integers and all that is stored as one; booleans; decimals of up to 38 digits, and of
more; text or binary with offsets; binary of a fixed width."""

SINGLE, PACKED, HASHED = range(3)
"""How the code is made from the columns."""
