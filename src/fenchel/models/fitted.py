"""A fitted model: what it found, as frames, and what it says of new rows.

eta ~ N(design m + offset, design V design')  at the learned hyperparameters;  y ~ family(eta)

There is one class over any posterior. ``FittedModel(model, found, integrated, answers, engine=, parts=)``:

    found        what a search returned: theta, solution, likelihood, prior, converged, status, at_bounds, held, doubt
    solution     its ``posterior`` answers ``at(new rows)`` and ``sample_latents``; it may be Gaussian, or of probes
    integrated   the posterior over theta, whose fits are ``components``
    answers      the marginals beyond the Gaussian
    engine       ``base.Engine``: what depends on how the fit was computed (factors, probes, rows out of memory)
    parts        the fits of a model of several (a hurdle), by name

What depends on the kind of model is asked of ``model.reduction`` (``base.Reduction``). What is not answered stands in
``capabilities.py``: every question begins with ``capabilities.check``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, count
from ..criticism import InformationCriterion, KFold, LeaveGroupOut
from ..distributed import is_dask
from ..files import Stored
from ..inputs.frames import Table
from ..proofs import EvidenceBounds
from ..row_scores import LeaveOneOut
from ..tasks import Jobs
from . import averages, predictions, row_criteria
from .capabilities import check
from .fit_check import FitCheck, in_full
from .fit_names import FamiliarNames
from .proved import Proved, bounds_of_fit, bounds_over_theta, proved_events

if TYPE_CHECKING:
    import pandas as pd


class FittedModel(FamiliarNames, Stored):
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
        A lower bound on log p(y), and how far it can be from the best Gaussian's. Sums over the parts, where there are
        some; intervals of an iterative engine, of which ``gap.upper`` decides ``converged``.
    answers : what ``Solution.corrected`` returns, by which tables and predictions then are; None: by the Gaussian
    integrated : Integrated or None
        The posterior over the hyperparameters too, of ``fit(integrate=...)``: the points, their weights and fits, and
        ``theta``, the posterior of the hyperparameters. Tables and predictions are mixtures over it, ``gap`` is the
        largest of all fits, and ``log_evidence`` (with ``log_evidence_error``) estimates log p(y); ``elbo`` is the
        bound at the mode.
    parts : dict
        Of a hurdle with ``zero=`` the fits "count", of the counts above 0, and "zero", of whether a row is 0, which
        are also ``fit.count`` and ``fit.zero``; else empty.

    Without ``integrated`` everything is at the learned hyperparameters, whose own uncertainty is in ``hyperparameters``
    alone; but cutpoints, a share of extra zeros and a Weibull's shape are averaged over (``mixture``): sds at their
    mode would be a tenth to a quarter too small.
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
        """What the model says of new rows.

        Beyond the times of a fit ``rw1``, ``rw2``, ``ar1``, ``ar`` and ``seasonal`` go on as their own steps say, with
        a variance that grows, on either side; a region that is not in the graph is refused.

        Parameters
        ----------
        new : data frame or dict of columns, optional
            Default: the rows of the data, those left out as well. A row in which a covariate is missing has NaN. A Dask
            dataframe is predicted lazily, partition by partition.
        kind : "mean", "link", "outcome", "probability", optional
            E[y] (of "outcome" too, whose interval is that of y itself, not of its mean), eta, or of labels the
            probability of each. Of labels of several kinds "probability", the most probable "class", or "link"; of a
            hurdle with ``zero=`` "mean", "outcome", or "zero" for P(y = 0). Default: the first of these.
        interval : float, optional
            The probability of an interval, such as 0.95; a frame with mean, sd, lower and upper then comes back.
        new_groups : "population" or "error"
            A group that fit has not seen is one more of the population, with the variance of its groups, or refused.
        without : "groups", or names of terms, such as "(1|school)" or ["s(x)", "year"]
            Terms that are 0 in the prediction, of every row: their columns are not needed, and their variance is not in
            the interval. "groups" are all effects of groups (lme4's ``re.form=NA``): what is said of a group at the
            centre of the population, where ``new_groups`` speaks of one drawn from it.
        exposure, trials : name of a column, number or array, optional
            Default: the columns that fit read, or 1.

        Returns
        -------
        pandas Series, or frame with an interval or probabilities, with the index of ``new``
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
        """P(E[y] > threshold | data) of each row, by its marginal; of eta ("link") or of y itself ("outcome").

        Parameters are those of ``predict``; None in the place of ``new`` are the rows of the data.
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
        """Joint posterior draws (size, M) of E[y] at new rows, of eta ("link") or of y ("outcome").

        A total over rows is ``fit.sample(new, 1000).sum(axis=1)``. Labels are drawn as the numbers that they stand for,
        0 and 1 for two words; ``simulate`` has the words. Of labels of several kinds the draws (size, M, K) are
        probabilities of the classes, the reference first.
        """
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
    ) -> pd.DataFrame:
        """P(T > t) of new rows at ``times``, of "cox", "weibull" and "exponential": a row each, a column for each time.

        With ``interval`` the columns are mean, lower and upper of each time. By ``size`` joint draws.

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
        times, drawn, index = self.model.reduction.survival(self, new, times, size, rng, new_groups)
        return averages.survival_frame(index, times, drawn, interval)

    def simulate(self, size: int = 1, rng: Any = None, data: Table = None, **options: Any) -> np.ndarray:
        """Data sets as the fitted model would make them (size, N): draws of y at the rows of the data, or of others.

        Labels are those of y. Where a row was left out it is NaN, or None among labels. ``options`` as in ``sample``.
        """
        check(self, "simulate")
        return predictions.as_labels(self, self.sample(data, size, rng, kind="outcome", **options))

    @property
    def observed(self) -> np.ndarray:
        """y of the rows of the fit, of a hurdle of all rows of the data; NaN where it is missing."""
        check(self, "observed")
        return self.model.reduction.observed(self)

    def loo(self, corrected: bool = False) -> LeaveOneOut:
        """Leave-one-out predictive densities, without a refit, of every row of the data: NaN for those left out.
        Of ``family="cox"`` the rows are pieces of durations; ``leave_group_out(range(n))`` leaves out people.

        ``corrected`` takes them from marginals beyond the Gaussian, as those of a corrected fit are, with the
        probabilities ``pit`` of what was seen. A row with a weight is left out whole, and counts once.
        """
        check(self, "loo")
        return self.model.reduction.scores(self, lambda part: row_criteria.loo(part, corrected))

    def leave_group_out(
        self, by: Any, *, neighbours: int = 20, refit: str = "flagged", joint: bool = False, **run: Any
    ) -> LeaveGroupOut:
        """Each row predicted without its group, by small fits about the group (``fenchel.criticism``): Gaussian at
        the learned hyperparameters, of a corrected model too, or mixed over them where they are integrated out.

        Parameters
        ----------
        by : str, array or int
            A column of the model, one label for each row of the data, or a number of levels: each row is then predicted
            without the rows whose eta is most correlated with its own.
        neighbours : int
            Rows beside the group that are fitted again without it.
        refit : "flagged", "all" or "none"
            Groups whose absence moves more than these are fitted again with all rows.
        joint : bool
            Whether to compute the joint density of each group, too; integrated fits always do.
        n_jobs, progress : of the groups that are fitted again, as in ``fenchel.tasks``
        """
        check(self, "leave_group_out")
        return row_criteria.groups_left_out(self, by, neighbours=neighbours, refit=refit, joint=joint, **run)

    def k_fold(
        self, folds: Any = 10, *, by: Any = None, learn: bool = True, rng: Any = 0, n_jobs: Jobs = None, **run: Any
    ) -> KFold:
        """Each fold predicted from the others by a refit, hyperparameters learned, or integrated over, anew.

        ``folds`` is how many, or a column or array that says which; ``by``: rows of one group are in one fold;
        ``learn=False`` keeps the learned hyperparameters. ``n_jobs`` (an int, None or a Dask client) and ``progress``
        are those of ``fenchel.tasks``.
        """
        check(self, "k_fold")
        return row_criteria.folds(self, folds, by, learn, rng, n_jobs=n_jobs, **run)

    def waic(self) -> InformationCriterion:
        """The widely applicable information criterion, row by row; ``loo`` is the better one."""
        check(self, "waic")
        return self.model.reduction.scores(self, row_criteria.information)

    def evidence_bounds(self, effort: str = "fast", at: str = "mode") -> EvidenceBounds:
        """log p(y) between two proved bounds, at the learned hyperparameters.

        ``kl`` bounds how far q is from the posterior, whatever the posterior is. ``effort="high"`` computes longer
        for bounds that are nearer to each other. Of an integrated fit ``at="points"`` bounds the evidence with theta
        integrated out, by a proof at each point that was fitted; what the rule of points misses is not in it.
        """
        check(self, "evidence_bounds")
        choice("evidence_bounds", "at", at, ("mode", "points"))
        return bounds_of_fit(self, effort) if at == "mode" else bounds_over_theta(self, effort)

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
        """How probable an event is under the posterior: two proved bounds and the best estimate, as a sentence.

        Parameters
        ----------
        what : str, tuple or table, optional
            A coefficient by its name, a level of an effect as ("(1|school)", "Eton"), or rows whose E[y] (of ``kind``
            "link": eta) is asked for. Default: every coefficient.
        low, high : float, optional
            The event is that the unknown lies between them; one of them alone is one-sided. Without both it is the
            interval of the fit's own tables.
        level : float
            Of that interval.
        effort : "fast" or "high"
            Of the bounds of the evidence that the proof needs.
        rows : ``new_groups``, ``without``, ``exposure``, ``trials``, as in ``predict``

        All of it is at the hyperparameters of the fit; of an integrated fit it is over the points that were fitted,
        with bounds of their evidences as bounds of their weights.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0, 0, 1, 0, 1, 1]}
        >>> fit = fenchel.fit("y ~ x", data, family="bernoulli", accuracy="fast")
        >>> found = fit.proved("x", low=0.0)
        >>> bool(found.lower <= found.estimate <= found.upper)
        True
        """
        check(self, "proved")
        return proved_events(self, what, low, high, level, kind, effort, rows)

    def check(self) -> FitCheck:
        """What to worry about in this fit, the worst first: it prints as a list of sentences.

        Whether a prior decides, a correction is large or not to be trusted, rows are separated, groups say nothing of
        their variance, a mesh is coarse, predictions of single rows are off, or a few rows pull. The summary shows the
        worst of what is known without further work; this call also predicts each row from the others.
        """
        return in_full(self)

    # -- pictures and files ------------------------------------------------------------------------
    def plot(self, name: Any = None, ax: Any = None) -> Any:
        """The coefficients, the effect of a term, or E[y] (of Cox the log hazard ratio) along a column of the fixed
        part, the others typical. Several panels (slopes, curves of groups) are an array of Axes with a ``figure``."""
        from .pictures import plot

        check(self, "plot")
        return plot(self, name, ax)

    def plot_check(self, kind: str | None = None, ax: Any = None, by: Any = None) -> Any:
        """A posterior predictive check: the data beside data sets that the fitted model makes.

        ``kind``: "rootogram" of counts, "density" of numbers, "reliability" of two labels and of successes, "bars" of
        levels, "survival" of durations; default: what suits y. "pit": where y lies in its prediction from the rest.
        "groups", the default of Cox fits: Kaplan and Meier's estimate with its band beside the model's survival, of
        thirds of the rows by risk, or of the levels (thirds of the numbers) of the column ``by``.
        """
        from .row_criteria import plot_check

        check(self, "plot_check")
        return plot_check(self, kind, ax, by)

    def plot_survival(
        self, new: Table, times: Any = None, *, interval: float | None = 0.95, ax: Any = None, **draws: Any
    ) -> Any:
        """P(T > t) of up to seven new rows over time, of "cox", "weibull" and "exponential", with bands.

        ``times``: up to the last time of the data, of Cox the last event, by default. ``draws`` as in ``survival``.
        """
        from .durations import plot_survival

        check(self, "plot_survival")
        return plot_survival(self, new, times, interval, ax, **draws)

    def plot_joint(self, first: Any, second: Any, ax: Any = None) -> Any:
        """Two hyperparameters of an integrated fit: the regions that hold 50 and 90 %, and the points that were fitted.
        Each by its names in ``hyperparameters``: ("(1|g)", "sd"), or "sd of (1|g)".
        """
        from .pictures import plot_joint

        check(self, "plot_joint")
        return plot_joint(self, first, second, ax)

    def plot_map(self, name: Any, geodata: Any, ax: Any = None, column: str | None = None) -> Any:
        """An effect of regions on a map: a GeoDataFrame or GeoSeries, or GeoJSON, whose labels are the regions'.

        ``column`` of the effect's frame; default: the ratio (relative risk, odds ratio), or the mean. Regions go by the
        index or the ids, or by a column or property that is called as the regions are in the model. A product of
        regions and times has a map for six of the times.
        """
        from .pictures import draw_map

        check(self, "plot_map")
        return draw_map(self, name, geodata, ax, column)

    def report(self, path: str | Path, geometry: dict[str, Any] | None = None) -> Path:
        """Write one html page for readers who do not write programs; it needs nothing else, and prints.

        The model in words and as a formula, the data, coefficients as a picture and a table, what to worry about, what
        covariates do, effects, checks, priors, and how the fit was computed. ``geometry`` maps a column of regions to
        their outlines, for maps.
        """
        from .report_page import report

        check(self, "report")
        return report(self, path, geometry or {})

    def to_arviz(
        self, draws: int = 1000, *, chains: int = 4, rng: Any = 0, predictive: bool = True, prior: int = 0
    ) -> Any:
        """Draws for ArviZ: an InferenceData of ArviZ 0.x, a DataTree for ArviZ 1.x.

        Groups posterior (coefficients, effects over their levels), posterior_predictive, log_likelihood, observed_data
        and constant_data; ``predictive=False`` leaves out all but the first. ``prior`` is how many draws the groups
        prior and prior_predictive have; 0 leaves them out. Draws are independent.
        """
        from .export import to_arviz

        check(self, "to_arviz")
        return to_arviz(self, draws, chains, rng, predictive, prior)
