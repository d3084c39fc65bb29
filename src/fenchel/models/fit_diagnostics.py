"""Diagnostics of a fit: residuals and their tests, influence, R^2, the likelihood, sensitivity to priors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..tasks import Jobs
from . import influence, log_likelihoods, residual_tests, residuals, sensitivity, variance_shares
from .capabilities import check
from .fit_effects import FitEffects
from .log_likelihoods import LogLikelihood

if TYPE_CHECKING:
    import pandas as pd


class FitDiagnostics(FitEffects):
    """The part of a fitted model that answers for its residuals."""

    def residuals(self, kind: str = "quantile", *, leave_one_out: bool = True, rng: Any = 0) -> pd.Series:
        """One residual for each row of the data, NaN where y is missing or the row was left out.

        Parameters
        ----------
        kind : "quantile", "uniform", "pearson", "deviance" or "response"
            "uniform" is P(y <= y_n), drawn evenly within its jump where y is discrete and beyond where a duration is
            censored (DHARMa's scaled residual); "quantile" the same as a standard normal number (Dunn and Smyth).
            "pearson": y less its mean, over its sd. "deviance": the signed root of twice what log p(y | eta) lacks
            of its largest value. "response": y less its mean.
        leave_one_out : bool
            Whether each row is predicted from all others, so that it does not pull its own prediction; the sd of
            "pearson" is then that of the prediction. Without it "response" is y less ``predict()``, and "pearson" and
            "deviance" are at the mean of eta, as R's ``residuals(fit, type=)`` has them, "deviance" over the root of
            the dispersion. Weights of rows do not enter; R multiplies by their roots.
        rng : seed of what is drawn within jumps

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.residuals("response", leave_one_out=False).round(2).tolist()
        [0.06, -0.13, 0.18, -0.21, 0.1, 0.0]
        """
        check(self, "residuals")
        return residuals.residuals(self, kind, leave_one_out, rng)  # type: ignore[arg-type]

    def residual_tests(
        self,
        size: int = 200,
        *,
        by: Any = None,
        order: Any = None,
        rng: Any = 0,
        n_jobs: Jobs = None,
        progress: bool = False,
    ) -> pd.DataFrame:
        """Whether residuals look like those of data that the fitted model makes: a test each row.

        Every data set is drawn from the fitted model and fitted at the same hyperparameters, and its rows are predicted
        from the others as those of the data are: what a right model makes is known by simulation, dependence included.

        Parameters
        ----------
        size : int
            Data sets that are made; the smallest p-value is 1 / (size + 1), of two-sided tests twice that.
        by : str or several, optional
            Columns of groups in whose slopes residuals are looked at; default: those of the model's effects of groups.
        order : str, optional
            The column of time for "autocorrelation", within groups; default: that of a series in the model.
        n_jobs : int, None or Dask client
        progress : bool

        Returns
        -------
        pandas frame
            statistic; expected, lower and upper: its mean and the middle 95 % under the model; p_value; p_adjusted,
            for all tests together: the share of right models of which any test is as rare. The tests: uniformity
            (Kolmogorov's distance), dispersion (mean square of Pearson's residuals), outliers (share beyond 3 sds),
            zeros (of counts), link (curvature along the fixed part of eta), curve of x (along each column of numbers),
            slope of x by g (slopes that differ between groups), spread along fitted, along x and by g (the size of
            Pearson's residuals along eta, along a column and between levels), autocorrelation (of neighbours in time).

        Examples
        --------
        >>> import numpy as np, fenchel
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=80)
        >>> y = rng.poisson(np.exp(1.0 + x) * rng.gamma(0.5, 2.0, 80))
        >>> fit = fenchel.fit("y ~ x", {"x": x, "y": y}, "poisson", accuracy="fast")
        >>> bool(fit.residual_tests(99).loc["dispersion", "p_value"] < 0.05)
        True
        """
        check(self, "residual_tests")
        return residual_tests.residual_tests(self, size, by, order, rng, n_jobs, progress)  # type: ignore[arg-type]

    def influence(self, by: Any = None, *, n_jobs: Jobs = None, progress: bool = False) -> pd.DataFrame:
        """How far the coefficients move without each row, or without each group of ``by``, at the hyperparameters.

        Returns
        -------
        pandas frame
            cooks_distance; of rows ``moved``, by how many sds of its prediction from the others the row moves its own
            eta; log_density, that of what is left out given the rest (of groups a sum over their rows); of groups
            ``rows``; and for each coefficient ``shift_``, its change without them in its sds. Rows need no refit.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 9.0]}
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> int(fit.influence().cooks_distance.idxmax())
        5
        """
        check(self, "influence")
        return influence.influence(self, by, n_jobs, progress)  # type: ignore[arg-type]

    def r2(self, *, interval: float = 0.95, size: int = 1000, rng: Any = 0) -> pd.DataFrame:
        """Marginal and conditional R^2 and the ICC, on the scale of eta: estimate, conf_low, conf_high.

        Marginal is what the fixed part explains, conditional what all terms do (Nakagawa and Schielzeth); the ICC is
        the share of groups in what the fixed part leaves. ``size`` draws make the intervals.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.r2().loc["R2 marginal", ["estimate"]].round(2).tolist()
        [0.99]
        """
        check(self, "r2")
        return variance_shares.r2(self, interval, size, rng)  # type: ignore[arg-type]

    def variance_shares(self, *, interval: float = 0.95, size: int = 1000, rng: Any = 0) -> pd.DataFrame:
        """The variance of y on the scale of eta that each part of the model explains, and its share of the total.

        Parts are the fixed effects together, each term, and what is left. ``conf_low`` and ``conf_high`` are of the
        share. A term of groups has the variance of its population, another one that of its effect over the rows.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> list(fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").variance_shares().index)
        ['fixed', 'residual']
        """
        check(self, "variance_shares")
        return variance_shares.variance_shares(self, interval, size, rng)  # type: ignore[arg-type]

    def log_likelihood(self, kind: str = "marginal") -> LogLikelihood:
        """The log likelihood at the estimate with its degrees of freedom, to stand beside R's ``logLik``.

        "marginal": effects integrated out, as of ``lme4``, coefficients at their means, hyperparameters at their
        values; its degrees of freedom are the coefficients and the hyperparameters. "conditional": at the mean of eta;
        its degrees of freedom are what the data decide of eta. It has ``value``, ``df``, ``aic`` and ``bic``. It is
        for comparison with other software: priors are not in it, and ``loo`` predicts.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").log_likelihood().df
        3.0
        """
        check(self, "log_likelihood")
        return log_likelihoods.log_likelihood(self, kind)  # type: ignore[arg-type]

    def sensitivity(self, factors: Sequence[float] = (0.5, 2.0), *, size: int = 4000, rng: Any = 0) -> pd.DataFrame:
        """The posterior under priors ``factors`` times as wide, by weights of draws: nothing is fitted again.

        The priors of all coefficients together (the intercept aside), and that of every sd and range. Of a fit that is
        not integrated over hyperparameters, coefficients do not move with the priors of these.

        Returns
        -------
        pandas frame
            A row for each prior, factor and unknown: mean and sd, new_mean and new_sd, shift (of the mean, in sds), and
            k_hat: above 0.7 the weights are not reliable, and the other prior needs a fit of its own.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> found = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").sensitivity()
        >>> bool(found["shift"].abs().max() < 0.1), bool((found.k_hat < 0.7).all())
        (True, True)
        """
        check(self, "sensitivity")
        return sensitivity.sensitivity(self, factors, size, rng)  # type: ignore[arg-type]

    def plot_residuals(self, kind: Any = None, ax: Any = None) -> Any:
        """Quantile residuals of rows predicted from the others, in panels.

        Parameters
        ----------
        kind : "quantiles", "fitted", "map", "variogram" or the name of a covariate, optional
            One panel. Default: all of them, up to nine: quantiles against those of a normal, residuals against fitted
            values, the map of a field's coordinates, the variogram over these or over the time of a series, and
            residuals against each covariate (times of a series in order, groups and other levels with the average of
            each). They are an array of Axes with a ``figure``.
        ax : matplotlib Axes, optional
        """
        from .residual_pictures import plot_residuals

        check(self, "plot_residuals")
        return plot_residuals(self, kind, ax)  # type: ignore[arg-type]

    def plot_variance(self, ax: Any = None, *, interval: float = 0.95) -> Any:
        """The shares of ``variance_shares`` as bars with their intervals."""
        from .residual_pictures import plot_variance

        check(self, "variance_shares")
        return plot_variance(self, ax, interval)  # type: ignore[arg-type]
