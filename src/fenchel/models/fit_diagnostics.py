"""Criteria and diagnostics of a fit: cross-validation, residuals and their tests, influence, R^2, sensitivity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..checks import choice
from ..criticism import InformationCriterion, KFold, LeaveGroupOut
from ..proofs import EvidenceBounds
from ..row_scores import LeaveOneOut
from ..tasks import Jobs
from . import influence, log_likelihoods, residual_tests, residuals, row_criteria, sensitivity, variance_shares
from .capabilities import check
from .fit_effects import FitEffects
from .log_likelihoods import LogLikelihood
from .proved import bounds_of_fit, bounds_over_theta

if TYPE_CHECKING:
    import pandas as pd


class FitDiagnostics(FitEffects):
    """The criteria and diagnostics of a fitted model."""

    # -- criteria ----------------------------------------------------------------------------------
    def loo(self, corrected: bool = False) -> LeaveOneOut:
        """Leave-one-out predictive densities of the rows of the data, without refitting; NaN for dropped rows.

        Parameters
        ----------
        corrected : bool, default False
            Use corrected marginals, as a corrected or an integrated fit does by itself.

        Returns
        -------
        LeaveOneOut
            With ``log_density``, ``elpd`` and ``elpd_se``. A row of any weight is left out whole and counts once. Rows
            of "cox" are intervals of time; ``leave_group_out(range(n))`` leaves out people. R-INLA's CPO are
            ``np.exp(log_density)``; PIT are ``residuals("uniform")``.
        """
        check(self, "loo")
        scores = self.model.reduction.scores
        return scores(self, lambda part: row_criteria.loo(part, corrected))  # type: ignore[arg-type]

    def leave_group_out(
        self, by: Any, *, neighbours: int = 20, refit: str = "flagged", joint: bool = False, **run: Any
    ) -> LeaveGroupOut:
        """Leave-group-out predictive densities: each row is predicted without its group.

        Small fits about each group replace the refit of all rows (``fenchel.criticism``). Predictions are Gaussian at
        the learned hyperparameters, also for a corrected fit, or mixtures if these are integrated out.

        Parameters
        ----------
        by : str, array or int
            A column, an array with one label for each row of the data, or a number m: each row is then predicted
            without the rows whose correlation of eta with its own is one of the m largest values.
        neighbours : int, default 20
            Number of rows close to the group that are fitted again without it.
        refit : {"flagged", "all", "none"}, default "flagged"
            Which groups are fitted again with all other rows. "flagged": those whose absence changes more than the
            neighbours.
        joint : bool, default False
            Also compute the joint density of each group; fits with integrated hyperparameters always do.
        n_jobs, progress
            For the groups that are fitted again, as in ``fenchel.tasks``.
        """
        check(self, "leave_group_out")
        run |= {"neighbours": neighbours, "refit": refit, "joint": joint}
        return row_criteria.groups_left_out(self, by, **run)  # type: ignore[arg-type]

    def k_fold(
        self, folds: Any = 10, *, by: Any = None, learn: bool = True, rng: Any = 0, n_jobs: Jobs = None, **run: Any
    ) -> KFold:
        """K-fold cross-validation: each fold is predicted from a fit to the others.

        Parameters
        ----------
        folds : int, name of a column or array (N,), default 10
            The number of folds, or the fold of each row.
        by : name of a column or array (N,), optional
            Groups whose rows stay in the same fold.
        learn : bool, default True
            Learn (or integrate over) the hyperparameters in each fold, or keep those of this fit.
        rng : numpy Generator or int, default 0
        n_jobs, progress
            As in ``fenchel.tasks``.
        """
        check(self, "k_fold")
        return row_criteria.folds(self, folds, by, learn, rng, n_jobs=n_jobs, **run)  # type: ignore[arg-type]

    def waic(self) -> InformationCriterion:
        """The widely applicable information criterion (WAIC) of the rows; ``loo`` is more reliable."""
        check(self, "waic")
        return self.model.reduction.scores(self, row_criteria.information)  # type: ignore[arg-type]

    def evidence_bounds(self, effort: str = "fast", at: str = "mode") -> EvidenceBounds:
        """Proved lower and upper bounds on log p(y), and on the divergence ``kl`` of q from the exact posterior.

        Parameters
        ----------
        effort : {"fast", "high"}, default "fast"
            "high" takes longer and gives closer bounds.
        at : {"mode", "points"}, default "mode"
            At the learned hyperparameters; or, for an integrated fit, with theta integrated out over the fitted points.
            The error of that quadrature is not included.
        """
        check(self, "evidence_bounds")
        choice("evidence_bounds", "at", at, ("mode", "points"))
        return bounds_of_fit(self, effort) if at == "mode" else bounds_over_theta(self, effort)

    # -- residuals and influence -------------------------------------------------------------------
    def residuals(self, kind: str = "quantile", *, leave_one_out: bool = True, rng: Any = 0) -> pd.Series:
        """Residuals of the rows of the data; NaN if y is missing or the row was left out.

        Parameters
        ----------
        kind : {"quantile", "uniform", "pearson", "deviance", "response"}, default "quantile"
            "uniform": P(y <= y_n), with a random number within the jump of a discrete y, and above the time of a
            censored one (the scaled residual of DHARMa). "quantile": the same transformed to a standard normal (Dunn
            and Smyth). "pearson": (y - mean) / sd. "deviance": signed root of twice the difference between the largest
            log p(y | eta) and that of the fit. "response": y - mean.
        leave_one_out : bool, default True
            Whether each row is predicted from all others; the sd of "pearson" is then the predictive one. Without it
            "response" is y - ``predict()``, and "pearson" and "deviance" are at the mean of eta as in R's
            ``residuals(fit, type=)``, "deviance" divided by the root of the dispersion. Weights are not used (R
            multiplies by their roots).
        rng : numpy Generator or int, default 0
            Seed of the random numbers within jumps.

        Returns
        -------
        Series (N,)

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
        """Test the residuals against those of data sets drawn from the fitted model.

        Every data set is drawn from the fitted model and fitted at the same hyperparameters, and its rows are predicted
        from the others, as those of the data are. The distribution of each statistic under the model, including the
        dependence between rows, is therefore known by simulation.

        Parameters
        ----------
        size : int, default 200
            Number of data sets. The smallest p-value is 1 / (size + 1), for two-sided tests twice that.
        by : str or list of str, optional
            Columns of groups between which slopes are compared. Default: those of the model's effects of groups.
        order : str, optional
            Column of time for "autocorrelation" within groups. Default: that of a series in the model.
        n_jobs : int, None or Dask client
        progress : bool, default False

        Returns
        -------
        DataFrame with a row for each test
            statistic; expected, lower and upper: its mean and central 95 % under the model; p_value; p_adjusted for all
            tests together. Tests: uniformity (Kolmogorov's distance), dispersion (mean square of Pearson residuals),
            outliers (share beyond 3 sds), zeros (of counts), link (curvature along the fixed part of eta), curve of x
            (along a column), slope of x by g (differences between groups), spread along fitted, along x and by g (size
            of Pearson residuals along eta, along a column, between levels), autocorrelation (of successive times).

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
        """Influence of each row, or of each group of ``by``, on the coefficients at the learned hyperparameters.

        Parameters
        ----------
        by : name of a column or array (N,), optional
            The groups that are left out. Default: single rows, which need no refit.
        n_jobs, progress
            As in ``fenchel.tasks``.

        Returns
        -------
        DataFrame
            cooks_distance; log_density of what is left out given the rest, summed over the rows of a group; for each
            coefficient ``shift_``, its change in its standard deviations. Rows: ``moved``, the change of the row's own
            eta in standard deviations of its prediction from the others. Groups: ``rows``, their size.

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

        Marginal R^2 is the share of variance that the fixed part explains, conditional R^2 that of all terms (Nakagawa
        and Schielzeth). The ICC is the share of groups in the variance that the fixed part does not explain. Intervals
        of probability ``interval`` come from ``size`` draws.

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
        """Variance on the scale of eta that each part of the model explains, and its share of the total.

        Parts are the fixed effects together, each term, and the residual. ``conf_low`` and ``conf_high`` belong to the
        share. The variance of a term of groups is that of its population; of other terms that of the effect over rows.

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
        """Log likelihood at the estimates with its degrees of freedom, for comparison with ``logLik`` of R.

        It leaves out the priors; use ``loo`` to compare models of fenchel.

        Parameters
        ----------
        kind : {"marginal", "conditional"}, default "marginal"
            "marginal": effects integrated out as in lme4, at the means of the coefficients and the values of the
            hyperparameters, which are also the degrees of freedom. "conditional": at the mean of eta, with the
            effective number of parameters.

        Returns
        -------
        LogLikelihood
            With ``value``, ``df``, ``aic`` and ``bic``.

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
        """Sensitivity of the posterior to its priors, by reweighting draws without refitting.

        The prior of all coefficients (without the intercept), and that of each sd and range, is made wider by each of
        ``factors``. If the hyperparameters are not integrated out, their priors do not affect the coefficients.

        Parameters
        ----------
        factors : list of float, default (0.5, 2.0)
        size : int, default 4000
            Number of draws.
        rng : numpy Generator or int, default 0

        Returns
        -------
        DataFrame with a row for each prior, factor and unknown
            mean, sd, new_mean, new_sd, shift (of the mean, in sds) and k_hat; above 0.7 the weights are unreliable, and
            the other prior needs a new fit.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> table = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").sensitivity()
        >>> bool(table["shift"].abs().max() < 0.1), bool((table.k_hat < 0.7).all())
        (True, True)
        """
        check(self, "sensitivity")
        return sensitivity.sensitivity(self, factors, size, rng)  # type: ignore[arg-type]

    def plot_residuals(self, kind: Any = None, ax: Any = None) -> Any:
        """Plot quantile residuals, each row being predicted from the others.

        Parameters
        ----------
        kind : {"quantiles", "fitted", "map", "variogram"} or the name of a covariate, optional
            One panel: quantiles against those of a normal, residuals against fitted values, on a map of the
            coordinates of a field, their variogram in space or time, or against a covariate. Default: all of them, up
            to nine.
        ax : matplotlib Axes, optional

        Returns
        -------
        Axes, or an array of Axes if there are several panels
        """
        from .residual_pictures import plot_residuals

        check(self, "plot_residuals")
        return plot_residuals(self, kind, ax)  # type: ignore[arg-type]

    def plot_variance(self, ax: Any = None, *, interval: float = 0.95) -> Any:
        """Plot the shares of ``variance_shares`` as bars with their intervals."""
        from .residual_pictures import plot_variance

        check(self, "variance_shares")
        return plot_variance(self, ax, interval)  # type: ignore[arg-type]
