"""What every criterion of prediction has: a log density of each row, their sum, and its standard error.

elpd = sum_n log p(y_n | what the criterion leaves),   se = sqrt(n) sd(log p)
"""

from __future__ import annotations

import numpy as np

from ..linalg.arrays import Array, to_numpy


class RowScores:
    """Log densities of rows, NaN where y is unobserved: ``log_density`` is the subclass's."""

    log_density: Array

    @property
    def elpd(self) -> float:
        """The sum of the log densities: the expected log predictive density."""
        return float(np.nansum(to_numpy(self.log_density)))

    @property
    def elpd_se(self) -> float:
        """Its standard error over the rows: sqrt(n) times their standard deviation; NaN for fewer than two."""
        return standard_error(self._seen)

    def units(self, values: np.ndarray) -> np.ndarray:
        """Values of rows (N,), NaN where unobserved, summed over what was predicted together: here each row alone."""
        return values[~np.isnan(values)]

    @property
    def _seen(self) -> np.ndarray:
        density = to_numpy(self.log_density)
        return density[~np.isnan(density)]

    def __repr__(self) -> str:
        name, seen, density = type(self).__name__, self._seen, to_numpy(self.log_density)
        if not seen.size:
            return f"{name}(none of {density.size} rows observed)"
        worst = int(np.nanargmin(density))
        return (
            f"{name}(elpd={self.elpd:.4f}, elpd_se={self.elpd_se:.2g}, {seen.size} of {density.size} rows "
            f"observed, log densities from {density[worst]:.3g} (row {worst}) to {seen.max():.3g})"
        )


def standard_error(values: np.ndarray) -> float:
    """Of the sum of values (n,), as draws of one population."""
    return float(np.sqrt(values.size) * values.std(ddof=1)) if values.size > 1 else float("nan")
