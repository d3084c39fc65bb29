"""Learn a kernel through inducing points: choose points, learn theta, choose again; double them until they cost little.

    points   pivoted Cholesky on (lam_n + alpha_n^2) c_n at the last fit; on c_n before the first
    theta    by the envelope's gradient at fixed points, from the last theta, and each fit from the last one's sites
    stop     when the bound on what the points cost is below ``loss`` nats, or at a number of points, or out of time

theta is learned with a quarter of the points first, and points are chosen again where it has moved since. While points
are too few theta is learned roughly: to a share of what the points cost. Many rows are learned from by a sample of
them first. Each of its rows counts once: if it counted for many, the fit would follow its noise, and theta with it. All
rows begin where the sample ended, with the curvature that its slopes have there, and take a few steps of Newton's. An
interrupt leaves the best fit so far on the exception, ``InterruptedLearning.finished``.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..checks import callers_line, count, finite, numeric, scalar
from ..files import searched
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, ArrayLike, asarray, is_numpy, out_of_memory, to_numpy
from ..priors.pivots import choose_rows
from ..solvers.base import Callback, reporting
from .base import Evaluated, Learned
from .evidence import Evidence, curvature_by_slopes
from .inducing_covariance import InducingCovariance
from .inducing_loss import ApproximationLoss, approximation_loss
from .search import Search, SearchOptions

FIRST_POINTS = 100  # where "auto" begins
MOST_POINTS = 2_000  # where "auto" ends
MOST_WORK = 1.5e10  # and (rows theta is learned from + 2 points) points^2: some 3 seconds a step on two cores
DEVICE_WORK = 1.5e12  # the same on a device
ROUGH_SHARE = 0.3  # of ``loss``: a search before the points are chosen again ends where a step gains less
FINE_SHARE = 0.01  # of ``loss``: and the last one
SLOPE = 0.02  # nats an e-fold: or where no slope is larger
GROWTH = 2  # times as many points
ROUGH_POINTS = 0.25  # of the points: with so many theta is learned first
LEAST_ROUGH = 100  # points: fewer blur short lengths, and theta would go to another peak
SAMPLE_ROWS = 10_000  # of a sample that theta is learned from first, at least
SAMPLE_SHARE = 20  # rows of a sample for each point, at least
LARGE_SHARE = 2  # times the rows of a sample: fewer rows are learned from at once
HOPELESS = 4.0  # times the loss: a plain bound above it is rarely more than twice the sharp one
CHEAP_WORK = 2e11  # multiplications up to which a bound is made sharper anyway: some 6 seconds on two cores
SAMPLE_TOL = 1e-8  # relative gap of the fits of a sample
MOVED = 0.3  # log units: points are chosen again where theta has gone farther since
LONGER = 5.0  # times as long as all before: what the next size takes, roughly
NATS_PER_ROW = 1e-3  # the default loss: what each row's log density may change by, on average


def default_loss(n_rows: int) -> float:
    """Nats that points may cost: a thousandth of a nat a row, and a tenth at least.

    With a bound of that size the means of eta at new rows moved by at most .25 of their sd (.05 on average), mean log
    scores by less than a twentieth of their standard error: ``python benchmarks/inducing.py --predictions``.
    """
    return max(0.1, NATS_PER_ROW * n_rows)


@dataclass
class InducingFit:
    """What was learned through inducing points, and what they cost.

    Attributes
    ----------
    learned : Learned
    family : InducingCovariance
        With the points of the last fit.
    loss : ApproximationLoss
        The bound of that fit.
    stages : list of dict
        Of every number of points: n_inducing, elbo, bound, standard_error, seconds since the start.
    ending : str
        Why no further points were added.
    """

    learned: Learned
    family: InducingCovariance
    loss: ApproximationLoss
    stages: list[dict[str, float]] = field(default_factory=list)
    ending: str = ""

    def numbers(self) -> dict[str, Any]:
        """What a file keeps of it."""
        own = {"points": self.family.points, "loss": asdict(self.loss), "stages": self.stages, "ending": self.ending}
        return {"learned": self.learned.numbers(), **own}


class InterruptedLearning(KeyboardInterrupt):
    """An interrupt after something was learned: ``finished`` is the best fit so far."""

    keeps_fit = True  # an estimator has that fit when this is raised

    def __init__(self, finished: InducingFit) -> None:
        super().__init__("interrupted; the best fit so far is kept")
        self.finished = finished


def learn_inducing(
    likelihood: Likelihood,
    family: InducingCovariance,
    y: ArrayLike,
    *,
    n_inducing: int | str | np.ndarray = "auto",
    loss: float | None = None,
    most_points: int = MOST_POINTS,
    seconds: float = np.inf,
    theta: Any = None,
    begin: InducingFit | None = None,
    learn_theta: bool = True,
    learn_likelihood: bool = True,
    weights: ArrayLike | None = None,
    tol: float = 1e-8,
    max_iter: int = 100,
    gtol: float = SLOPE,
    progress: bool = False,
    callback: Callback | None = None,
    rng: Any = 0,
) -> InducingFit:
    """Learn theta, with as many points as it takes.

    Parameters
    ----------
    likelihood, family, y, weights
        The model; the points of ``family`` are where it starts only if ``n_inducing`` says so.
    n_inducing : int, "auto" or array (M, D)
        How many; "auto": doubled from 100 until the bound is below ``loss`` or ``most_points``; or the points.
    loss : float, optional
        Nats of elbo that the points may cost. Default: ``default_loss``, a thousandth of a nat a row.
    most_points : int
        Of "auto", which also ends where a step of the search would take too many multiplications (``MOST_WORK``).
    seconds : float
        No number of points is begun that would probably take longer in all.
    theta : array, optional
        Where learning starts, as in ``learn``.
    begin : InducingFit, optional
        A fit of the same model with fewer points, which "auto" goes on from.
    learn_theta, learn_likelihood : bool
    tol, max_iter, gtol, progress, callback : as in ``learn``

    Returns
    -------
    InducingFit

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters import InducingCovariance, learn_inducing
    >>> from fenchel.likelihoods import Poisson
    >>> x = np.linspace(0, 6, 400)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> found = learn_inducing(Poisson(), InducingCovariance(1.0 * RBF(1.0), x, x[:1], level=10.0), y)
    >>> bool(found.loss.bound < 0.4), found.loss.n_points <= 100
    (True, True)
    """
    run = _Run(likelihood, family, y, weights, learn_theta, learn_likelihood, tol, max_iter, gtol, rng)
    run.theta = None if theta is None else numeric("learn_inducing", "theta", theta)
    N = family.X.shape[0]
    allowed = default_loss(N) if loss is None else scalar("learn_inducing", "loss", loss, 0.0)
    sizes = _sizes(n_inducing, N, min(most_points, N), MOST_WORK if is_numpy(family.X) else DEVICE_WORK)

    if begin is not None:
        run.go_on(begin)
        sizes = [size for size in sizes if size > len(begin.family.points)] or sizes[-1:]

    def search() -> InducingFit:
        with reporting(progress, "learning by inducing points", callback) as report:
            return _grown(run, sizes, n_inducing, allowed, seconds, report)

    return searched("learn inducing", search, InducingFit.numbers, run.restored)


def _sizes(n_inducing: Any, N: int, most: int, work: float) -> list[int]:
    """The numbers of points to try, in order; none where the points are given."""
    if np.ndim(n_inducing) > 0 or n_inducing != "auto":
        return [] if np.ndim(n_inducing) > 0 else [min(N, count("learn_inducing", "n_inducing", n_inducing, 1))]
    out = [min(FIRST_POINTS, most)]
    while out[-1] < most:
        size = min(most, GROWTH * out[-1])
        if (_learned_rows(N, size) + 2.0 * size) * size**2 > work:
            break
        out.append(size)
    return out


def _learned_rows(N: int, size: int) -> int:
    """How many rows theta is learned from first: a sample of many."""
    wanted = max(SAMPLE_ROWS, SAMPLE_SHARE * size)
    return wanted if LARGE_SHARE * wanted <= N else N


def _grown(
    run: _Run, sizes: list[int], given: Any, allowed: float, seconds: float, report: Callback | None
) -> InducingFit:
    finished, stages = run.finished, list(run.finished.stages) if run.finished else []
    began = time.perf_counter() - (stages[-1]["seconds"] if stages else 0.0)
    ending = "the points were given" if not sizes else "so many points were asked for"
    rough = ROUGH_SHARE * allowed
    rise = reached = rough if len(sizes) > 1 else FINE_SHARE * allowed
    for size in sizes or [0]:
        try:
            final = not sizes or size == sizes[-1]
            run.stage(size, given, rough, rise, report, final)
            loss = ApproximationLoss.unknown(size, 0.0) if final else run.loss(allowed, rough=True)
            too_long = LONGER * (time.perf_counter() - began) > seconds
            if final or loss.bound <= allowed or loss.n_points < size or too_long:
                run.finish(size, FINE_SHARE * allowed, report)
                loss, reached = run.loss(allowed), FINE_SHARE * allowed
            else:
                reached, rise = rise, max(rough, FINE_SHARE * loss.bound) if np.isfinite(loss.bound) else rise
        except KeyboardInterrupt:
            run.fit_as_the_sample(report)
            last = run.learned
            if last is not None and (finished is None or last.solution.elbo > finished.learned.solution.elbo):
                loss = ApproximationLoss.unknown(len(run.family.points), last.solution.gap)
                finished = InducingFit(last, run.family, loss, stages, "the fit was interrupted")
            if finished is None:
                raise
            raise InterruptedLearning(finished) from None
        except Exception as error:
            if finished is None or not out_of_memory(error):
                raise
            finished.ending = f"memory ended with {size} points, and the fit is that of {finished.loss.n_points}"
            finished.ending += f", whose theta was learned to {reached:.2g} nats"
            warnings.warn(f"learn_inducing: {finished.ending}", UserWarning, stacklevel=callers_line())
            break
        told = {"n_inducing": loss.n_points, "elbo": run.found.solution.elbo, "bound": loss.bound}
        stages.append({**told, "standard_error": loss.standard_error, "seconds": time.perf_counter() - began})
        enough = False
        if np.ndim(given) == 0 and given == "auto":
            ending = f"the bound is above loss = {allowed:.3g} nats at the most points that are tried"
            if loss.bound <= allowed:
                ending, enough = f"the bound is below loss = {allowed:.3g} nats", True
            elif loss.n_points < size:
                ending, enough = "further points explain nothing more in double precision", True
            elif too_long:
                ending, enough = f"the bound is above loss = {allowed:.3g} nats, and more take too long", True
        finished = InducingFit(run.found, run.family, loss, stages, ending)
        if enough:
            break
    assert finished is not None
    return finished


class _Run:
    """The state of one search: the family with its points, theta, and the last fit."""

    evidence: Evidence  # of the last search
    fitted: InducingCovariance  # of the last fit

    def __init__(
        self,
        likelihood: Likelihood,
        family: InducingCovariance,
        y: ArrayLike,
        weights: Any,
        learn_theta: bool,
        own: bool,
        tol: float,
        max_iter: int,
        gtol: float,
        rng: Any,
    ) -> None:
        self.likelihood, self.family, self.y, self.rng = likelihood, family, y, np.random.default_rng(rng)
        own = own and learn_theta and likelihood.theta.size > 0
        self.learn_theta = learn_theta and (own or family.theta.size > 0)  # a kernel may be fixed
        self.max_iter, self.gtol = max_iter, gtol
        self.settings: dict[str, Any] = {"weights": weights, "tol": tol, "own": own}
        self.theta: np.ndarray | None = None
        self.chosen_at: np.ndarray | None = None
        self.learned: Learned | None = None
        self.few: _Run | None = None
        self.n_evaluations = self.n_newton = 0
        self.share = 1.0  # of the weight of all rows that these rows have
        self.finished: InducingFit | None = None  # by another run, which this one goes on from

    @property
    def found(self) -> Learned:
        """What was learned last, once there is something."""
        assert self.learned is not None
        return self.learned

    def go_on(self, before: InducingFit) -> None:
        """Begin where another run of the same model ended."""
        self.family = self.fitted = before.family
        self.learned, self.theta = before.learned, before.learned.theta
        self.n_evaluations, self.n_newton = before.learned.n_evaluations, before.learned.n_newton
        self.finished = before

    def points(self, points: Array) -> None:
        self.family = self.family.with_points(points)

    def stage(self, size: int, given: Any, rough: float, rise: float, report: Callback | None, final: bool) -> None:
        """Choose so many points, or take those given, and learn theta with them until a step gains less than ``rise``.

        With a sample of the rows where they are many: all of them are then fitted once, at its theta; not with the
        ``final`` number of points, with which ``finish`` learns theta from all of them.
        """
        few = self._sampled(size or len(given)) if self.learn_theta else None
        first = self if few is None else few
        if not size:
            first.points(finite("learn_inducing", "points", numeric("learn_inducing", "points", given)))
        else:
            if first.learned is None and self.learn_theta and ROUGH_POINTS * size >= LEAST_ROUGH:
                first.choose(int(ROUGH_POINTS * size))
                first.learn(rough, report)
            first.choose(size)
        first.learn(rise, report)
        if few is not None and not final:
            self._all_rows(few, None, report)

    def finish(self, size: int, rise: float, report: Callback | None) -> None:
        """Learn theta to the end, with points chosen again where it has moved far since they were."""
        if not self.learn_theta:
            return
        few = self._sampled(size or len(self.family.points))
        first = self if few is None else few
        if size and (first.chosen_at is None or np.abs(first.found.theta - first.chosen_at).max() > MOVED):
            first.choose(size)
        first.learn(rise, report)
        if few is not None:
            self._all_rows(few, rise, report)

    def fit_as_the_sample(self, report: Callback | None) -> None:
        """After an interrupt: the family of the last fit, or one fit of all rows at the theta of their sample."""
        for run in (self, self.few):
            if run is not None and run.learned is not None:
                run.family = run.fitted
        if self.learned is None and self.few is not None and self.few.learned is not None:
            self._all_rows(self.few, None, report)

    def _all_rows(self, few: _Run, rise: float | None, report: Callback | None) -> None:
        """A fit of all rows from where the search with a sample ended, or the end of the search."""
        before = self.family, self.theta, self.learned
        self.points(few.family.points)
        self.theta, self.learned = few.theta, None
        try:
            self.learn(rise, report, few)
        except KeyboardInterrupt:
            if self.learned is None:
                self.family, self.theta, self.learned = before
            raise

    def _sampled(self, size: int) -> _Run | None:
        """The search with a sample of the rows, each of which counts once; None where rows are few."""
        total = len(self.family.X)
        wanted = _learned_rows(total, size)
        if wanted == total:
            return None
        weights = self.settings["weights"]
        w = np.ones(total) if weights is None else np.asarray(weights, dtype=np.float64)
        weighted = np.flatnonzero(w > 0.0)
        wanted = min(wanted, weighted.size)
        if self.few is not None and len(self.few.family.X) >= wanted:
            return self.few
        rows = np.sort(self.rng.choice(weighted, wanted, replace=False))
        family, y = self.family.with_rows(rows), np.asarray(self.y)[rows]
        own, tol = bool(self.settings["own"]), max(SAMPLE_TOL, self.settings["tol"])
        options = (self.learn_theta, own, tol, self.max_iter, self.gtol, self.rng)
        out = _Run(self.likelihood.take(rows), family, y, w[rows], *options)
        out.share = float(w[rows].sum() / w.sum())
        before = self.few or self
        out.theta = before.theta
        self.few = out
        return out

    def choose(self, size: int) -> None:
        """Rows whose remainder counts most at the last fit."""
        family, solution = self.family, None if self.learned is None else self.learned.solution
        theta = family.theta if self.theta is None else self.theta[: family.theta.size]
        w = None if solution is None else to_numpy(solution.lam + solution.alpha**2).sum(axis=1)
        if w is not None and not (np.isfinite(w).all() and w.any()):
            w = None
        self.chosen_at = self.theta
        self.points(family.X[choose_rows(family.kernel_at(theta), family.X, size, w, self.rng)])

    def learn(self, rise: float | None, report: Callback | None, few: _Run | None = None) -> None:
        """theta at these points, from where the last search ended, until a step gains no more than ``rise`` nats.

        None: a fit at this theta alone. ``few`` is the search with a sample of the rows, where there was one.
        """
        evidence = self.evidence = Evidence(self.likelihood, self.family, self.y, **self.settings)
        theta = evidence.start if self.theta is None else self.theta
        if report is not None:
            evidence.on_iteration = lambda row: report({**row, "iteration": evidence.n_evaluations + 1.0})
        evidence.begin(None if self.learned is None else self.learned.solution)
        if few is not None:
            evidence.first_start = few.marginals_of(self.family)
        if self.learn_theta and rise is not None:
            evidence.allowed_gap = 0.0
            if few is not None:
                # what rows say of the likelihood's own parameters adds up; of a kernel many say hardly more than few
                each = np.where(np.arange(theta.size) < evidence.n_family, 1.0, few.share**-0.5)
                evidence.known_curvature = curvature_by_slopes(few.evidence, few.found) * np.outer(each, each)
            value, slope = evidence(theta)
            start = Evaluated(value, theta, slope, evidence.solution, evidence.prior)
            rise *= self.share
            options = SearchOptions(ftol=rise / max(1.0, abs(value)), accepts_flat=True, rise=rise)
            search = Search(evidence, self.max_iter, self.gtol, report, options)
            try:
                self._keep(search.run(start), evidence)
            except KeyboardInterrupt:
                self._keep(search.learned(), evidence)
                raise
            return
        fit = evidence.fit(theta)
        likelihood = evidence.split(theta)[1]
        where = (theta, fit, fit.elbo, np.zeros(0), fit.optimal, fit.ending, 1, fit.n_iter)
        self._keep(Learned(*where, likelihood=likelihood, prior=evidence.prior), evidence)

    def _keep(self, found: Learned, evidence: Evidence) -> None:
        self.learned, self.theta, self.fitted = found, found.theta, self.family
        self.n_evaluations += evidence.n_evaluations
        self.n_newton += evidence.n_newton
        found.n_evaluations, found.n_newton = self.n_evaluations, self.n_newton

    def marginals_of(self, family: InducingCovariance) -> Any:
        """Mean and variance of eta under this fit at the rows of another family; None for several predictors."""
        post = self.found.solution.posterior
        if post.predictors.n_predictors > 1:
            return None
        prior = family.at(self.found.theta[: family.theta.size])
        root = asarray(np.linalg.cholesky(to_numpy(post.latent_covariance())), post.alpha)
        h = to_numpy(prior.design.times(post.latent_mean)) + np.ravel(to_numpy(prior.offset))
        rho = to_numpy(prior.design.row_squares(root)) + to_numpy(prior.extra_variance)
        return SimpleNamespace(posterior=SimpleNamespace(mean=h, variance=rho))

    def loss(self, allowed: float, rough: bool = False) -> ApproximationLoss:
        """The bound of the last fit, plain where it is far above ``allowed`` and a sharper one takes seconds.

        ``rough``: where that takes any time at all.
        """
        theta = self.found.theta[: self.family.theta.size]
        work = 4.0 * float(len(self.family.X)) ** 2 * len(self.family.points)
        hopeless = HOPELESS * allowed if rough or work > CHEAP_WORK else np.inf
        prior = self.family.at(theta)
        return approximation_loss(self.found.solution, prior, self.rng, allowed, hopeless=hopeless)

    def restored(self, numbers: dict[str, Any]) -> InducingFit:
        self.points(np.asarray(numbers["points"], dtype=np.float64))
        learned = Evidence(self.likelihood, self.family, self.y, **self.settings).restored(numbers["learned"])
        loss = ApproximationLoss(**numbers["loss"])
        return InducingFit(learned, self.family, loss, list(numbers["stages"]), str(numbers["ending"]))
