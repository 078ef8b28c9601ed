"""Constants that kernels and joins share. Apart from the kernels, so that they load no numba."""

import numpy as np

WAITING = np.uint8(0)
MATCHED = np.uint8(1)
ABSENT = np.uint8(2)  # its key is not in the master table

LISTS = 256  # frequencies that the front stage tells apart; those above count as the last
