"""Where a likelihood's own parameters may lie when they are learned from y: logs of bounds that follow the data.

    a noise variance v     FLOOR * spread(y) <= v <= CEILING * largest(y)^2

Below the floor 1 + S/v keeps fewer than six digits of its 1 in double precision, for S of the size of the data; nor can
the noise be below the rounding of y itself. The ceiling is beyond what y can be. ``spread`` is the variance, or from
the quartiles where the tails are heavy: one outlier of 1e10 must not hide noise of 1.
"""

from __future__ import annotations

import numpy as np

FLOOR, CEILING = 1e-10, 1e3
_NORMAL_QUARTILES = 1.3489795003921634  # their distance under N(0, 1)


def log_noise_variance(y: np.ndarray, start: float, robust: bool = False) -> tuple[float, float]:
    """Bounds of log v for targets y, NaN where unobserved; about ``start`` where y has no spread.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods.ranges import log_noise_variance
    >>> np.exp(log_noise_variance(np.array([0.0, 2.0, np.nan]), 1.0))
    array([1.e-10, 4.e+03])
    """
    seen = y[np.isfinite(y)]
    largest = float(np.abs(seen).max(initial=0.0))
    typical = float(np.median(np.abs(seen))) if robust and seen.size else largest
    rounding = (np.finfo(np.float64).eps * typical) ** 2
    with np.errstate(over="ignore"):
        spread = float(np.var(seen)) if seen.size else 0.0
        if robust and seen.size:
            middle = float(np.subtract(*np.quantile(seen, [0.75, 0.25]))) / _NORMAL_QUARTILES
            spread = middle**2 if middle > 0.0 else spread
    if not rounding < spread < np.inf:  # constant, or beyond squares
        spread = start
    with np.errstate(divide="ignore"):
        highest = max(2.0 * np.log(largest), np.log(spread))  # the square itself may overflow
    return float(np.log(max(FLOOR * spread, rounding))), float(np.log(CEILING) + highest)
