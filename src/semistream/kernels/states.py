"""Constants shared by kernels and joins, in a module that does not import numba."""

import numpy as np

WAITING = np.uint8(0)
MATCHED = np.uint8(1)
ABSENT = np.uint8(2)  # its key is not in the master table
REFUSED = np.uint8(3)  # waiting; its key has rows, but none so far that passes the conditions

LISTS = 256  # distinct frequencies in the front stage; higher ones count as the last
