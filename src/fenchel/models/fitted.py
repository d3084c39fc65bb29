"""A fitted model: what it found, as frames, and what it says of new rows.

eta ~ N(design m + offset, design V design')  at the learned hyperparameters;  y ~ family(eta)
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, count
from ..criticism import InformationCriterion, KFold, LeaveGroupOut
from ..files import Stored
from ..hyperparameters.learned import Learned
from ..hyperparameters.mode import Mode
from ..inputs.frames import Table
from ..marginals import Answers
from ..row_scores import LeaveOneOut
from ..tasks import Jobs
from . import averages, cox, over_theta, predictions, remarks, row_criteria, tables
from .picture_methods import Pictures
from .stated_priors import prior_table

if TYPE_CHECKING:
    import pandas as pd

    from ..corrections.corrected import Corrected
    from ..corrections.importance import ImportanceSample
    from ..hyperparameters.integration import Integrated
    from .model import Model

    Corrections = Corrected | ImportanceSample


class FittedModel(Pictures, Stored):
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
    answers : what ``Solution.corrected`` returns, by which tables and predictions then are; None: by the Gaussian
    integrated : Integrated or None
        The posterior over the hyperparameters too, of ``fit(integrate=...)``: the points, their weights and fits, and
        ``theta``, the posterior of the hyperparameters. Tables and predictions are mixtures over it, ``gap`` is the
        largest of all fits, and ``log_evidence`` (with ``log_evidence_error``) estimates log p(y); ``elbo`` is the
        bound at the mode.

    Without ``integrated`` everything is at the learned hyperparameters, whose own uncertainty is in ``hyperparameters``
    alone; but cutpoints, a share of extra zeros and a Weibull's shape are averaged over (``mixed``).
    """

    integrated: Integrated | None = None
    answers: Corrections | None = None
    leaves_rows_out: bool = True  # whether ``loo`` answers
    evidence: Any = None  # as a function of theta, where the rows are out of memory

    def __init__(
        self,
        model: Model,
        found: Learned,
        integrated: Integrated | None = None,
        answers: Corrections | None = None,
        *,
        at_theta: bool = False,
    ) -> None:
        self.model, self.found, self.at_theta = model, found, at_theta
        self.solution, self.theta, self.elbo = found.solution, found.theta, found.solution.elbo
        self.integrated, self.answers = integrated, answers
        self.converged = found.converged if integrated is None else integrated.converged
        self.gap = found.solution.gap if integrated is None else integrated.gap
        if integrated is not None:
            self.log_evidence, self.log_evidence_error = integrated.log_evidence, integrated.log_evidence_error
        self.likelihood, self.shift = tables.reported(self)

    @cached_property
    def mixed(self) -> Integrated | None:
        """The posterior over theta that tables and predictions are of; None: they are at the learned one."""
        if self.integrated is not None or self.at_theta:
            return self.integrated
        return over_theta.over_own(self)

    @cached_property
    def views(self) -> list[FittedModel]:
        """The model as fitted at each theta of ``mixed``."""
        return over_theta.views_of(self)

    @property
    def posterior(self) -> Answers:
        """What tables and predictions are of: a mixture over theta, what ``corrected`` gave, or the Gaussian."""
        if self.mixed is not None:
            return self.mixed
        return self.solution.posterior if self.answers is None else self.answers

    def _plain_state(self) -> dict[str, Any]:
        """Without the fits at other theta of one that was not asked to integrate: they are made again."""
        return {key: value for key, value in self.__dict__.items() if key not in ("mixed", "views")}

    @cached_property
    def remarks(self) -> list[str]:
        """Of the data of each term, and of what the prior decides and the data do not, a sentence each."""
        return [*remarks.of_terms(self.model), *remarks.of_fit(self)]

    def corrected(self) -> FittedModel:
        """The same fit beyond the Gaussian: coefficients, effects and predictions by ``Solution.corrected``.

        Intervals are then skewed where the posterior is, which shows with few labels or small counts. Hyperparameters
        and the certificate stay; joint draws are the Gaussian's, each unknown moved to its corrected marginal.
        An integrated fit is itself: every theta has its marginals beyond the Gaussian, or says why not.
        """
        if self.integrated is not None:
            if self.integrated.evidence != "corrected":
                warnings.warn(f"corrected: Gaussian given theta: {self.integrated.status}.", stacklevel=2)
            return self
        out = copy.copy(self)
        out.answers = self.solution.corrected()
        if not out.answers.marginals_trusted:
            warnings.warn(f"corrected: {out.answers.status}.", UserWarning, stacklevel=2)
        return out

    # -- tables ------------------------------------------------------------------------------------
    @property
    def coefficients(self) -> pd.DataFrame:
        """The intercept (where every column is 0) and the coefficients (per unit): mean, sd, 95 % interval."""
        return over_theta.coefficients(self)

    @property
    def covariance(self) -> pd.DataFrame:
        """The posterior covariance of the coefficients."""
        return over_theta.covariance(self)

    @property
    def effects(self) -> Mapping[Any, pd.DataFrame]:
        """Each special term as a frame, one row a level: by its text, ``"(1|g)"``, or by its column, ``"g"``."""
        return tables.Effects(self)

    @cached_property
    def theta_mode(self) -> Mode:
        """The evidence about its mode: its curvature, and which hyperparameters are at a bound."""
        return tables.theta_mode(self)

    @property
    def theta_covariance(self) -> np.ndarray:
        """Of theta, by the curvature of the evidence; 0 for an entry that ended at a bound."""
        return self.theta_mode.covariance

    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Standard deviations, correlations, shares and the likelihood's parameters: value and 95 % interval.

        Cutpoints are those where every column is 0, and their intervals include how well the coefficients are known.
        Of an integrated fit ``value`` is where the density that was integrated is largest, on the scale of ``theta``,
        beside the posterior mean, sd and median.
        """
        if self.integrated is None:
            return tables.hyperparameters(self)
        return over_theta.hyperparameters(self, self.integrated)

    @property
    def priors(self) -> pd.DataFrame:
        """Every prior of the model, in words."""
        return prior_table(self.model)

    def summary(self) -> str:
        """A page for a reader: the certificate first, then the model, its rows and what it found."""
        return tables.summary(self)

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        word += ", corrected" if self.answers is not None else "" if self.integrated is None else ", integrated"
        return f"FittedModel({self.model.formula!r}, {word}, elbo={self.elbo:.4f}, gap={self.gap:.1e})"

    # -- predictions -------------------------------------------------------------------------------
    def predict(
        self,
        new: Table = None,
        kind: str = "mean",
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
            Default: the rows of the data, those left out as well. A row in which a covariate is missing has NaN.
        kind : "mean", "link", "outcome", "probability"
            E[y] (of "outcome" too, whose interval is that of y itself, not of its mean), eta, or of labels the
            probability of each.
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
        choice("predict", "kind", kind, ("mean", "link", "outcome", "probability"))
        cox.check_rows("predict", self.model, new)
        where = predictions.rows_at(self, new, new_groups, without)
        y = over_theta.predictive(self, where, {"exposure": exposure, "trials": trials}, kind)
        return predictions.predict(self, where, y, kind, interval)

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
        choice("exceedance", "kind", kind, ("mean", "link", "outcome"))
        cox.check_rows("exceedance", self.model, new)
        where = predictions.rows_at(self, new, new_groups, without)
        y = over_theta.predictive(self, where, {"exposure": exposure, "trials": trials}, kind)
        return predictions.exceedance(self, where, y, threshold, kind)

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
        0 and 1 for two words; ``simulate`` has the words.
        """
        choice("sample", "kind", kind, ("mean", "link", "outcome"))
        where, rng = predictions.rows_at(self, new, new_groups, without), np.random.default_rng(rng)
        size = count("sample", "size", size, 1)
        return over_theta.drawn(self, where, size, rng, kind, {"exposure": exposure, "trials": trials})

    def survival(self, new: Table, times: Any, *, interval: float | None = None, **draws: Any) -> pd.DataFrame:
        """P(T > t) of new rows at ``times``, of "cox", "weibull" and "exponential": a row each, a column for each time.

        With ``interval`` the columns are mean, lower and upper of each time. ``draws``: size=1000 joint draws, rng=0,
        new_groups="population".
        """
        by_family = averages.survival if self.model.cox is None else cox.survival
        return by_family(self, new, times, interval, **draws)

    def simulate(self, size: int = 1, rng: Any = None, data: Table = None, **options: Any) -> np.ndarray:
        """Data sets as the fitted model would make them (size, N): draws of y at the rows of the data, or of others.

        Labels are those of y. Where a row was left out it is NaN, or None among labels. ``options`` as in ``sample``.
        """
        cox.check_rows("simulate", self.model, None)
        return predictions.as_labels(self, self.sample(data, size, rng, kind="outcome", **options))

    def contrast(
        self, first: Table, second: Table, kind: str = "link", *, interval: float = 0.95, without: Any = ()
    ) -> pd.DataFrame:
        """``first`` minus ``second``, row by row: mean, sd, interval and the probability to be above 0.

        ``kind`` "link" compares eta, "mean" E[y] at exposure 1 and one trial. A frame of one row is compared with every
        row of the other. Columns that neither of them names are the same in both, numbers at their mean and others at
        their most frequent level: of terms that add up they cancel in eta, and beside an interaction, a slope of groups
        or in E[y] they do not, where naming them says at which values the two are compared. ``without`` names terms
        that are 0 in both, as in ``predict``: "groups" compares at the centre of the population.
        """
        choice("contrast", "kind", kind, ("link", "mean"))
        return averages.contrast(self, first, second, kind, interval, without)

    def average_effect(
        self,
        name: str,
        new: Table = None,
        *,
        kind: str = "mean",
        step: float | None = None,
        size: int | None = None,
        interval: float = 0.95,
    ) -> pd.DataFrame:
        """The slope of E[y] (or eta) along a column, d E[y] / dx, averaged over rows; with ``step``, such as 1, what so
        much more of the column does; of a factor, each level against the first. At exposure 1 and one trial. Of eta
        it is exact, of E[y] by ``size`` draws of a fixed seed (default: 2,000 to 20,000, by the number of rows).

        The average is over the rows given, by default those of the data, each with its own groups: beside ``(x|g)`` it
        is that of the slopes of these rows' groups, the coefficient and what the group has beyond it, and a group with
        many rows counts for many. A group that fit has not seen has the population's slope, with its variance.
        """
        choice("average_effect", "kind", kind, ("link", "mean"))
        return averages.average_effect(self, name, new, kind, step, size, interval)

    @property
    def observed(self) -> np.ndarray:
        """y of the rows of the fit, NaN where it is missing."""
        return np.where(self.model.target.seen > 0.0, self.model.target.y, np.nan)

    def loo(self, corrected: bool = False) -> LeaveOneOut:
        """Leave-one-out predictive densities, without a refit, of every row of the data: NaN for those left out.
        Of ``family="cox"`` the rows are pieces of durations; ``leave_group_out(range(n))`` leaves out people.

        ``corrected`` takes them from marginals beyond the Gaussian, as those of a corrected fit are, with the
        probabilities ``pit`` of what was seen. A row with a weight is left out whole, and counts once.
        """
        return row_criteria.loo(self, corrected)

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
        return row_criteria.groups_left_out(self, by, neighbours=neighbours, refit=refit, joint=joint, **run)

    def k_fold(
        self, folds: Any = 10, *, by: Any = None, learn: bool = True, rng: Any = 0, n_jobs: Jobs = None, **run: Any
    ) -> KFold:
        """Each fold predicted from the others by a refit, hyperparameters learned, or integrated over, anew.

        ``folds`` is how many, or a column or array that says which; ``by``: rows of one group are in one fold;
        ``learn=False`` keeps the learned hyperparameters. ``n_jobs`` (an int, None or a Dask client) and ``progress``
        are those of ``fenchel.tasks``.
        """
        return row_criteria.folds(self, folds, by, learn, rng, n_jobs=n_jobs, **run)

    def waic(self) -> InformationCriterion:
        """The widely applicable information criterion, row by row; ``loo`` is the better one."""
        return row_criteria.information(self)

    # -- files -------------------------------------------------------------------------------------
    def report(self, path: str | Path, geometry: dict[str, Any] | None = None) -> Path:
        """Write one html page: the certificate, the model, tables, pictures and a predictive check.

        ``geometry`` maps a column of regions to their outlines, for maps.
        """
        from .page import report

        return report(self, path, geometry or {})

    def to_arviz(self, draws: int = 1000, *, chains: int = 4, rng: Any = 0, predictive: bool = True) -> Any:
        """Draws for ArviZ: an InferenceData of ArviZ 0.x, a DataTree for ArviZ 1.x.

        Groups posterior (coefficients, effects over their levels), posterior_predictive, log_likelihood, observed_data
        and constant_data; ``predictive=False`` leaves out all but the first. Draws are independent.
        """
        from .export import to_arviz

        return to_arviz(self, draws, chains, rng, predictive)
