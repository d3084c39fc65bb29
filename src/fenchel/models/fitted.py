"""A fitted model: what it found, as frames, and what it says of new rows.

eta ~ N(design m + offset, design V design')  at the learned hyperparameters;  y ~ family(eta)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..checks import choice, count
from ..criteria import LeaveOneOut
from ..files import save
from ..hyperparameters.learned import Learned
from . import averages, predictions, tables
from .frames import Table
from .uncertainty import theta_covariance

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model


class FittedModel:
    """What ``Model.fit`` returns.

    Attributes
    ----------
    model : Model
    solution : Solution
        The fit at the learned hyperparameters, with its certificate.
    theta : array
        The hyperparameters on the scale on which they are learned: the terms', then the likelihood's.
    likelihood : Likelihood
        With its learned parameters.
    converged : bool
    elbo, gap : float
        A lower bound on log p(y), and how far it can be from the best Gaussian's.

    Everything is at the learned hyperparameters; their own uncertainty is in ``hyperparameters`` alone.
    """

    def __init__(self, model: Model, found: Learned) -> None:
        self.model, self.found = model, found
        self.solution, self.theta = found.solution, found.theta
        self.converged, self.elbo, self.gap = found.converged, found.solution.elbo, found.solution.gap
        self.likelihood, self.shift = found.likelihood.reported()
        if model.ordered and model.sum.fixed_names:  # learned where columns are at their means, stated at x = 0
            self.shift = tables.level_of_ordered(self)
            own = found.likelihood.theta
            self.likelihood = found.likelihood.with_theta(np.r_[own[0] + self.shift, own[1:]])
        self._warn()

    def _warn(self) -> None:
        if not self.converged:
            warnings.warn(
                f"Model did not converge: {self.found.status}. What it says is of the best point reached, and gap says "
                "how far that is from its optimum.",
                ConvergenceWarning,
                stacklevel=4,
            )
        names = [f"{t.name}: {h.label}" for t in self.model.sum.effects for h in t.hyperparameters]
        names += self.found.likelihood.theta_names
        held = [f"{names[i]!r} at its {self.found.at_bounds[i]} bound" for i in self.found.held]
        if held:
            warnings.warn(
                f"Model ended with {', '.join(held[:3])}, and the evidence still rises beyond: the bound decides, not "
                "the data.",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- tables ------------------------------------------------------------------------------------
    @property
    def coefficients(self) -> pd.DataFrame:
        """The intercept (where every column is 0) and the coefficients (per unit): mean, sd, 95 % interval."""
        return tables.coefficients(self)

    @property
    def covariance(self) -> pd.DataFrame:
        """The posterior covariance of the coefficients."""
        return tables.covariance(self)

    @property
    def effects(self) -> Mapping[Any, pd.DataFrame]:
        """Each special term as a frame, one row a level: by its text, ``"(1|g)"``, or by its column, ``"g"``."""
        return tables.Effects(self)

    @cached_property
    def theta_covariance(self) -> np.ndarray:
        """Of theta, by the curvature of the evidence; 0 for an entry that ended at a bound."""
        return theta_covariance(self)

    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Standard deviations, correlations, shares and the likelihood's parameters: value and 95 % interval."""
        return tables.hyperparameters(self)

    @property
    def priors(self) -> pd.DataFrame:
        """Every prior of the model, in words."""
        return self.model.priors

    def summary(self) -> str:
        """A page for a reader: the certificate first, then the model, its rows and what it found."""
        return tables.summary(self)

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        return f"FittedModel({self.model.formula!r}, {word}, elbo={self.elbo:.4f}, gap={self.gap:.1e})"

    # -- predictions -------------------------------------------------------------------------------
    def predict(
        self,
        new: Table = None,
        kind: str = "mean",
        *,
        interval: float | None = None,
        new_groups: str = "population",
        exposure: Any = None,
        trials: Any = None,
    ) -> Any:
        """What the model says of new rows.

        Parameters
        ----------
        new : data frame or dict of columns, optional
            Default: the rows of the data, those left out as well. A row in which a covariate is missing has NaN.
        kind : "mean", "link", "outcome", "probability"
            E[y] (of "outcome" too, whose interval is that of y itself, not of its mean), eta, or of labels the
            probability of each.
        interval : float, optional
            The probability of an interval, such as 0.95; a frame with mean, lower and upper then comes back.
        new_groups : "population" or "error"
            A group that fit has not seen is one more of the population, or refused.
        exposure, trials : name of a column, number or array, optional
            Default: the columns that fit read, or 1.

        Returns
        -------
        pandas Series, or frame with an interval or probabilities, with the index of ``new``
        """
        choice("predict", "kind", kind, ("mean", "link", "outcome", "probability"))
        where = predictions.rows_at(self, new, new_groups)
        return predictions.predict(self, where, kind, interval, {"exposure": exposure, "trials": trials})

    def sample(
        self,
        new: Table = None,
        size: int = 1000,
        rng: Any = None,
        *,
        kind: str = "mean",
        new_groups: str = "population",
        exposure: Any = None,
        trials: Any = None,
    ) -> np.ndarray:
        """Joint posterior draws (size, M) of E[y] at new rows, of eta ("link") or of y ("outcome").

        A total over rows is ``fit.sample(new, 1000).sum(axis=1)``.
        """
        choice("sample", "kind", kind, ("mean", "link", "outcome"))
        where, rng = predictions.rows_at(self, new, new_groups), np.random.default_rng(rng)
        size = count("sample", "size", size, 1)
        return predictions.draws(self, where, size, rng, kind, {"exposure": exposure, "trials": trials})

    def simulate(self, size: int = 1, rng: Any = None) -> np.ndarray:
        """Data sets as the fitted model would make them (size, N): draws of y at the rows of the data, NaN where a row
        was left out.
        """
        return self.sample(None, size, rng, kind="outcome")

    def contrast(self, first: Table, second: Table, kind: str = "link", *, interval: float = 0.95) -> pd.DataFrame:
        """``first`` minus ``second``, row by row: mean, sd, interval and the probability to be above 0.

        ``kind`` "link" compares eta, "mean" E[y] at exposure 1 and one trial. A frame of one row is compared with every
        row of the other.
        """
        choice("contrast", "kind", kind, ("link", "mean"))
        return averages.contrast(self, first, second, kind, interval)

    def average_effect(
        self, name: str, new: Table = None, *, kind: str = "mean", size: int = 1000, interval: float = 0.95
    ) -> pd.DataFrame:
        """What one more unit of a column does to E[y] (or eta), averaged over rows; of a factor, each level against
        its first. At exposure 1 and one trial; draws of a fixed seed give the interval.
        """
        choice("average_effect", "kind", kind, ("link", "mean"))
        return averages.average_effect(self, name, new, kind, count("average_effect", "size", size, 2), interval)

    def loo(self) -> LeaveOneOut:
        """Leave-one-out predictive densities, without a refit, of every row of the data: NaN for those left out."""
        found, n = self.solution.loo(), len(self.model.data_index)
        out = {}
        for name in ("log_density", "mean", "variance"):
            values = np.asarray(getattr(found, name))
            out[name] = np.full((n, *values.shape[1:]), np.nan)
            out[name][self.model.kept] = values
        return LeaveOneOut(**out)

    # -- pictures ----------------------------------------------------------------------------------
    def plot(self, name: Any = None, ax: Any = None) -> Any:
        """The coefficients, or the effect of a term: along time or a number with a band, of groups as a forest, of two
        numbers as a surface. Several panels (slopes, curves of groups) come back as an array of Axes.
        """
        from .pictures import plot

        return plot(self, name, ax)

    def plot_check(self, kind: str | None = None, ax: Any = None) -> Any:
        """A posterior predictive check: the data beside data sets that the fitted model makes.

        ``kind``: "rootogram" of counts, "density" of numbers, "reliability" of two labels and of successes, "bars" of
        levels, "survival" of durations; default: what suits the response.
        """
        from .checking import plot_check

        return plot_check(self, kind, ax)

    def plot_map(self, name: Any, geodata: Any, ax: Any = None, column: str | None = None) -> Any:
        """An effect of regions on a map: a GeoDataFrame or GeoSeries, or GeoJSON, whose labels are the regions'.

        ``column`` of the effect's frame; default: the ratio (relative risk, odds ratio), or the mean. Regions go by the
        index or the ids, or by a column or property that is called as the regions are in the model. A product of
        regions and times has a map for six of the times.
        """
        from .pictures import draw_map

        return draw_map(self, name, geodata, ax, column)

    def report(self, path: str | Path, geometry: dict[str, Any] | None = None) -> Path:
        """Write one html page: the certificate, the model, tables, pictures and a predictive check.

        ``geometry`` maps a column of regions to their outlines, for maps.
        """
        from .page import report

        return report(self, path, geometry or {})

    # -- keeping -----------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Keep the fitted model in a file of arrays and json; ``fenchel.load`` brings it back, in another process too.

        Functions of one's own in the formula, and terms and likelihoods of one's own, cannot be saved.
        """
        save(self, path)
