"""``FittedModel``, the result of ``Model.fit``: tables, predictions, criteria, pictures and reports.

eta ~ N(design m + offset, design V design')  at the learned hyperparameters;  y ~ family(eta)

One class serves every kind of fit. Its parts are those of ``FittedModel(model, found, integrated, answers, ...)``:

    found        the result of the search: theta, solution, likelihood, prior, converged, status, at_bounds, held, doubt
    solution     ``found.solution``, whose ``posterior`` is Gaussian, or estimated from random probes
    integrated   the posterior over theta, if it is integrated out; ``components`` are its fits
    answers      corrected marginals, which replace the Gaussian ones
    engine       ``base.Engine``: everything that depends on how the fit was computed
    parts        for a model of several fits (a hurdle), these by name

Everything that depends on the kind of model is in ``model.reduction`` (``base.Reduction``). ``capabilities.py`` lists
which methods which kinds of fit lack; every public method begins with ``capabilities.check``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, count
from ..distributed import is_dask
from ..files import Stored
from ..inputs.frames import Table
from . import averages, predictions
from .capabilities import check
from .fit_check import FitCheck, full_check
from .fit_names import FamiliarNames
from .proved import Proved, proved_events

if TYPE_CHECKING:
    import pandas as pd


class FittedModel(FamiliarNames, Stored):
    """A fitted model, the result of ``Model.fit`` and ``fenchel.fit``.

    Begin with ``summary()``, ``coefficients``, ``hyperparameters``, ``effects``, ``predict(new)`` and ``check()``.

    Attributes
    ----------
    model : Model
    solution : Solution
        The fit at the learned hyperparameters, with its certificate.
    theta : array (n_theta,)
        The hyperparameters on the scale of the search: those of the terms, then those of the likelihood.
    likelihood : Likelihood
        The likelihood with its learned parameters.
    converged : bool
        Whether the search and the fit reached their tolerances.
    elbo, gap : float
        Lower bound on log p(y), and the bound on its distance from that of the best Gaussian. Sums over ``parts``;
        intervals for the iterative engine.
    answers : Corrected or None
        The result of ``Solution.corrected``, from which tables and predictions are made; None: from the Gaussian.
    integrated : Integrated or None
        The posterior over the hyperparameters, if they are integrated out: points, weights and fits. Tables and
        predictions are then mixtures, ``gap`` is the largest of all fits, ``log_evidence`` (``log_evidence_error``)
        estimates log p(y), and ``elbo`` is the bound at the mode.
    parts : dict of str to FittedModel
        For a hurdle with ``zero=``: "count" (the positive counts) and "zero" (whether a row is 0), also ``fit.count``
        and ``fit.zero``. Else empty.

    Notes
    -----
    Without ``integrated`` all results are at the learned hyperparameters; their uncertainty is only in
    ``hyperparameters``. Exceptions are cutpoints, the share of extra zeros and the shape of a Weibull, which are
    averaged over (``mixture``), because standard deviations would otherwise be a tenth to a quarter too small.
    """

    # -- predictions -------------------------------------------------------------------------------
    def predict(
        self,
        new: Table = None,
        kind: str | None = None,
        *,
        interval: float | None = None,
        new_groups: str = "population",
        without: str | Sequence[str] = (),
        exposure: Any = None,
        trials: Any = None,
    ) -> Any:
        """Predict the mean of y, eta, y itself or probabilities at new rows.

        Beyond the times of the data ``rw1``, ``rw2``, ``ar1``, ``ar`` and ``seasonal`` are continued on either side,
        with growing variance. A region that is not in the graph is refused.

        Parameters
        ----------
        new : data frame or dict of columns, optional
            Default: all rows of the data, also those that were left out. Rows with a missing covariate are NaN. A Dask
            dataframe is predicted lazily.
        kind : {"mean", "link", "outcome", "probability"}, optional
            "mean" (default): E[y]. "link": eta. "outcome": y itself, whose interval includes the noise. "probability":
            of each label or level. For "multinomial" also "class", the most probable label; for a hurdle with ``zero=``
            also "zero", P(y = 0).
        interval : float, optional
            Probability of an interval, such as 0.95; the result is then a frame with mean, sd, lower and upper.
        new_groups : {"population", "error"}, default "population"
            A new group is a draw from the population of groups, or an error.
        without : "groups", "fixed", or name or list of names of terms
            Terms that are set to 0, such as "(1|school)" or ["s(x)", "year"]; their columns are not needed. "groups"
            are all effects of groups: the prediction is then for a group at the centre of the population (lme4's
            ``re.form=NA``). "fixed" are the covariates, the intercept and the offsets: "link" is then the sum of the
            other terms, such as a field by itself.
        exposure, trials : name of a column, number or array, optional
            Default: the columns that ``fit`` used, or 1.

        Returns
        -------
        pandas Series, or DataFrame with an interval or probabilities, with the index of ``new``

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0], "y": [1.1, 2.9, 5.1, 6.9]}
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.predict({"x": [4.0]}).round(0).tolist(), list(fit.predict({"x": [4.0]}, interval=0.95))
        ([9.0], ['mean', 'sd', 'lower', 'upper'])
        """
        check(self, "predict")
        reduction = self.model.reduction
        kind = reduction.kinds[0] if kind is None else kind
        choice("predict", "kind", kind, reduction.kinds)
        options = {"new_groups": new_groups, "without": without, "exposure": exposure, "trials": trials}
        if is_dask(new):
            return predictions.predict_lazily(self, new, kind, {"interval": interval, **options})
        self._check_table("predict", new)
        return reduction.predict(self, new, kind, interval, options)

    def exceedance(
        self,
        new: Table,
        threshold: float,
        kind: str = "mean",
        *,
        new_groups: str = "population",
        without: str | Sequence[str] = (),
        exposure: Any = None,
        trials: Any = None,
    ) -> pd.Series:
        """Posterior probability of each row that E[y] (or with ``kind`` eta or y) exceeds a threshold.

        Parameters
        ----------
        new : data frame, dict of columns or None
            None: the rows of the data.
        threshold : float
        kind : {"mean", "link", "outcome"}, default "mean"
            E[y], eta, or y itself.
        new_groups, without, exposure, trials
            As in ``predict``.
        """
        check(self, "exceedance")
        choice("exceedance", "kind", kind, ("mean", "link", "outcome"))
        self._check_table("exceedance", new)
        rows = predictions.read_rows(self, new, new_groups, without, exposure, trials)
        return predictions.exceedance(self, rows, threshold, kind)

    def sample(
        self,
        new: Table = None,
        size: int = 1000,
        rng: Any = None,
        *,
        kind: str = "mean",
        new_groups: str = "population",
        without: str | Sequence[str] = (),
        exposure: Any = None,
        trials: Any = None,
    ) -> np.ndarray:
        """Joint posterior draws of E[y] at new rows, or of eta or y.

        The posterior of a total over rows is ``fit.sample(new, 1000).sum(axis=1)``.

        Parameters
        ----------
        new : data frame or dict of columns, optional
            Default: the rows of the data.
        size : int, default 1000
            Number of draws.
        rng : numpy Generator or int, optional
        kind : {"mean", "link", "outcome"}, default "mean"
            E[y], eta or y. Labels are drawn as numbers, such as 0 and 1; ``simulate`` returns the labels themselves.
        new_groups, without, exposure, trials
            As in ``predict``.

        Returns
        -------
        array (size, M); for "multinomial" (size, M, K), the probabilities of the classes with the reference first
        """
        check(self, "sample")
        choice("sample", "kind", kind, self.model.reduction.drawn)
        self._check_table("sample", new)
        size, rng = count("sample", "size", size, 1), np.random.default_rng(rng)
        options = {"new_groups": new_groups, "without": without, "exposure": exposure, "trials": trials}
        return self.model.reduction.sample(self, new, size, rng, kind, options)

    def survival(
        self,
        new: Table,
        times: Any,
        *,
        interval: float | None = None,
        size: int = 1000,
        rng: Any = 0,
        new_groups: str = "population",
        without: str | Sequence[str] = (),
    ) -> pd.DataFrame:
        """Survival probabilities P(T > t) of new rows, for the families "cox", "weibull" and "exponential".

        Parameters
        ----------
        new : data frame or dict of columns
        times : float or array (T,)
        interval : float, optional
            Probability of an interval; each time then has the columns mean, lower and upper.
        size : int, default 1000
            Number of joint draws from which they are computed.
        rng, new_groups, without
            As in ``sample``. The curve of a new group is averaged over the population of groups;
            ``without="groups"`` gives the curve of a group whose effect is 0, such as a frailty of 1.

        Returns
        -------
        DataFrame with a row for each row of ``new`` and a column for each time

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"t": [1.0, 2.0, 3.0, 4.0], "seen": [1, 1, 1, 0]})
        >>> fit = fenchel.fit("cens(t, seen) ~ 1", data, "exponential", accuracy="fast")
        >>> fit.survival({"t": [1.0]}, [1.0, 5.0]).round(1)
        time  1.0  5.0
        0     0.8  0.3
        """
        check(self, "survival")
        self._check_table("survival", new)
        options = {"new_groups": new_groups, "without": without}
        times, drawn, index = self.model.reduction.survival(self, new, times, size, rng, options)
        return averages.survival_frame(index, times, drawn, interval)

    def simulate(self, size: int = 1, rng: Any = None, data: Table = None, **options: Any) -> np.ndarray:
        """Draw data sets (size, N) of y from the fitted model, at the rows of the data or of another table.

        Labels are those of y. Rows that were left out are NaN, or None among labels. ``options`` are those of
        ``sample``.
        """
        check(self, "simulate")
        return predictions.as_labels(self, self.sample(data, size, rng, kind="outcome", **options))

    @property
    def observed(self) -> np.ndarray:
        """y at the rows of the fit (for a hurdle at all rows of the data), NaN where it is missing."""
        check(self, "observed")
        return self.model.reduction.observed(self)

    def proved(
        self,
        what: Any = None,
        low: float | None = None,
        high: float | None = None,
        *,
        level: float = 0.95,
        kind: str = "mean",
        effort: str = "fast",
        **rows: Any,
    ) -> Proved:
        """Proved bounds on the posterior probability of an event, with the best estimate of it.

        They hold at the hyperparameters of the fit; for an integrated fit over the fitted points, whose weights are
        bounded by the bounds on their evidences.

        Parameters
        ----------
        what : str, tuple or table, optional
            The unknown: a coefficient by its name, a level of an effect as ("(1|school)", "Eton"), or E[y] (with
            ``kind="link"`` eta) at the rows of a table. Default: every coefficient.
        low, high : float, optional
            The event is low < unknown < high; one of them may be left out. Default: the interval of the fit's tables.
        level : float, default 0.95
            Probability of that interval.
        kind : {"mean", "link"}, default "mean"
        effort : {"fast", "high"}, default "fast"
            Effort of the bounds on the evidence that the proof needs.
        rows
            ``new_groups``, ``without``, ``exposure`` and ``trials``, as in ``predict``.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0, 0, 1, 0, 1, 1]}
        >>> fit = fenchel.fit("y ~ x", data, family="bernoulli", accuracy="fast")
        >>> result = fit.proved("x", low=0.0)
        >>> bool(result.lower <= result.estimate <= result.upper)
        True
        """
        check(self, "proved")
        return proved_events(self, what, low, high, level, kind, effort, rows)

    def check(self) -> FitCheck:
        """Check the fit for problems; the result prints as a list of sentences, the most severe first.

        It looks for results that the prior decides, corrections that are large or unreliable, separated rows, groups
        without information on their variance, coarse meshes, and rows that are predicted badly or have a large
        influence. The summary shows what is known without further computation; this call also predicts each row from
        the others.
        """
        return full_check(self)

    # -- pictures and files ------------------------------------------------------------------------
    def plot(self, name: Any = None, ax: Any = None) -> Any:
        """Plot the coefficients, the effect of a term, or the prediction along a covariate.

        Parameters
        ----------
        name : str, optional
            A term such as "(1|g)", or a column of the fixed part, along which E[y] at exposure 1 and one trial (for
            "cox" the log hazard ratio) is drawn with the others at typical values. Default: the coefficients.
        ax : matplotlib Axes, optional

        Returns
        -------
        Axes, or an array of Axes if there are several panels
        """
        from .pictures import plot

        check(self, "plot")
        return plot(self, name, ax)

    def plot_check(self, kind: str | None = None, ax: Any = None, by: Any = None) -> Any:
        """Plot a posterior predictive check: the data and data sets drawn from the fitted model.

        Parameters
        ----------
        kind : str, optional
            "rootogram" for counts, "density" for numbers, "reliability" for two labels and successes, "bars" for
            levels, "survival" for durations. "pit": probability integral transforms. "groups" (default for "cox"): the
            Kaplan-Meier estimate and the model's survival curve in groups. Default: what suits y.
        ax : matplotlib Axes, optional
        by : name of a column, optional
            The groups of "groups". Default: thirds of the rows by risk.
        """
        from .row_criteria import plot_check

        check(self, "plot_check")
        return plot_check(self, kind, ax, by)

    def plot_survival(
        self, new: Table, times: Any = None, *, interval: float | None = 0.95, ax: Any = None, **draws: Any
    ) -> Any:
        """Plot survival curves P(T > t) with bands, for up to seven new rows of "cox", "weibull" and "exponential".

        ``times``: default up to the last time (for "cox" the last event) of the data. ``draws`` as in ``survival``.
        """
        from .durations import plot_survival

        check(self, "plot_survival")
        return plot_survival(self, new, times, interval, ax, **draws)

    def plot_joint(self, first: Any, second: Any, ax: Any = None) -> Any:
        """Plot the joint posterior of two hyperparameters of an integrated fit: 50 and 90 % regions, and fitted points.

        ``first`` and ``second`` are names from ``hyperparameters``: ("(1|g)", "sd"), or "sd of (1|g)".
        """
        from .pictures import plot_joint

        check(self, "plot_joint")
        return plot_joint(self, first, second, ax)

    def plot_map(self, name: Any, geodata: Any, ax: Any = None, column: str | None = None) -> Any:
        """Draw an effect of regions on a map.

        Parameters
        ----------
        name : str
            The term or its column of regions. A product of regions and times has maps for six of the times.
        geodata : GeoDataFrame, GeoSeries or GeoJSON
            The outlines, labelled by their index or ids, or by a column or property with the name of the model's.
        ax : matplotlib Axes, optional
        column : str, optional
            Column of ``effects[name]``. Default: the ratio (relative risk, odds ratio), or the mean.
        """
        from .pictures import draw_map

        check(self, "plot_map")
        return draw_map(self, name, geodata, ax, column)

    def report(self, path: str | Path, geometry: dict[str, Any] | None = None) -> Path:
        """Write a self-contained html report for readers who do not write programs.

        It has the model in words and as a formula, the data, coefficients, possible problems, effects, checks, priors
        and how the fit was computed.

        Parameters
        ----------
        path : str or Path
        geometry : dict of column to outlines, optional
            Outlines of the regions of a column, for maps.

        Returns
        -------
        Path of the file
        """
        from .report_page import report

        check(self, "report")
        return report(self, path, geometry or {})

    def to_arviz(
        self, draws: int = 1000, *, chains: int = 4, rng: Any = 0, predictive: bool = True, prior: int = 0
    ) -> Any:
        """Independent posterior draws as an InferenceData of ArviZ 0.x, or a DataTree of ArviZ 1.x.

        Parameters
        ----------
        draws : int, default 1000
            Draws in each chain.
        chains : int, default 4
        rng : numpy Generator or int, default 0
        predictive : bool, default True
            Also add the groups posterior_predictive, log_likelihood, observed_data and constant_data.
        prior : int, default 0
            Number of draws of the groups prior and prior_predictive; 0 leaves them out.
        """
        from .export import to_arviz

        check(self, "to_arviz")
        return to_arviz(self, draws, chains, rng, predictive, prior)
