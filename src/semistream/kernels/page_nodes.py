"""Constants of the page checks, in a module that does not import numba.

A page is an Arrow IPC record batch. Its *nodes* are the columns and their children, depth first.
The kernels get them as an int64 array with one row per node and the columns below.
"""

KIND, SIZE, PARENT, VALIDITY, VALUES, CONTENT, COLUMN, NULLS = range(8)
"""Kind; bytes of a value or an offset, or items of a fixed-size list; node of the parent, or -1;
numbers of the IPC buffers, or -1 (``VALUES`` has the offsets of texts and lists); top-level
column; whether nulls are allowed."""

FIXED, BOOLEAN, TEXT, LIST, STRUCT, FIXED_LIST, NULL, UNION, UNKNOWN = range(9)
"""Kinds. A map is a list of structs. Only Arrow can check unions; the number of buffers of an
unknown kind is unknown, too."""

ANY_NULLS, NO_KEY_NULLS, NO_MAP_NULLS = range(3)

(
    FINE,
    UNREADABLE,
    WRONG_ROWS,
    COMPRESSED,
    WRONG_COLUMNS,
    OUTSIDE,
    WRONG_LENGTH,
    WRONG_NULLS,
    TOO_SHORT,
    WRONG_OFFSETS,
    NULL_KEY,
    NULL_IN_MAP,
    OUT_OF_ORDER,
    WRONG_ENDS,
    WRONG_CODES,
) = range(15)
"""Problems of a page."""
