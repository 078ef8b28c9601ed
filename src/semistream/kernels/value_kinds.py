"""How columns that are compared are described to kernels, in a module without numba."""

# Kinds of values.
INT64 = 0
INT32 = 1
INT16 = 2
INT8 = 3
UINT32 = 4
UINT16 = 5
UINT8 = 6
FLOAT64 = 7
FLOAT32 = 8

# Rows of the array that describes the columns of one side, by comparison.
NODE = 0  # the column in the array of addresses
KIND = 1
SCALE = 2  # so many units make one unit of the other side
STEP = 3  # bytes from a row's value to that of the next
VALID_STEP = 4  # bits from a row's validity to that of the next
OPEN = 5  # 1: a null passes
COLUMN_ROWS = 6
