"""Types of the columns used by the engine: each array has an entry for every target, or names rows of targets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Vector = NDArray[np.float64]
Counts = NDArray[np.int64]
# Positions of targets in the columns.
Rows = NDArray[np.intp]
