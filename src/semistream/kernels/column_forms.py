"""How the nodes of columns are described to kernels, in a module that does not import numba."""

# The form of a node: the bytes of a value if positive, otherwise one of these.
EMPTY = 0  # no values of its own: a struct, a list of fixed size, a column of nulls
BITS = -1
TEXT = -4  # offsets of 4 bytes into bytes
LARGE_TEXT = -8
LIST = -12  # offsets of 4 bytes into items
LARGE_LIST = -16

# Rows of the array that describes pages, by node and page.
VALIDITY = 0  # address in bits of the first value's validity; 0: no nulls
VALUES = 1  # address of the first value or offset; of BITS, in bits
CONTENT = 2  # address of the texts' content
SIZE = 3  # bytes of the content; items of a list
PAGE_ROWS = 4

# Rows of the array that describes output buffers, by node.
OUT_BITMAP = 0  # address of the validity bits; 0: not allocated
OUT_VALUES = 1
OUT_CONTENT = 2
OUT_ROOM = 3  # bytes of the content buffer; items for which the buffers of a list have room
OUT_END = 4  # end of the last text or list; NO_BITMAP: a null was found, but there is no bitmap
OUT_NULLS = 5  # 1 if a null was written
OUT_ROWS = 6

NO_BITMAP = -1
DONE = -1
CORRUPT = -2
FULL = -3  # a message has no room for more
