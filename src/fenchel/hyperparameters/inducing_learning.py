"""Learn a kernel through inducing points: choose points, learn theta, choose again; double them until they cost little.

    points   pivoted Cholesky on (lam_n + alpha_n^2) c_n at the last fit; on c_n before the first
    theta    by the envelope's gradient at fixed points, from the last theta, and each fit from the last one's sites
    stop     when the bound on what the points cost is below ``loss`` nats, or at a number of points, or out of time

At a given number of points they are chosen, theta is learned, and both once more.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..checks import count, finite, numeric, scalar
from ..files import searched
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike, to_numpy
from ..priors.pivots import choose_rows
from ..solvers.base import Callback, reporting
from ..solvers.solution import Solution
from .base import Evaluated, Learned
from .evidence import Evidence
from .inducing_covariance import InducingCovariance
from .inducing_loss import ApproximationLoss, approximation_loss
from .search import Search, SearchOptions

FIRST_POINTS = 100  # where "auto" begins
MOST_POINTS = 2_000  # where "auto" ends, on a machine of a few cores
ROUGH_SHARE = 0.3  # of ``loss``: a search before the points are chosen again ends where a step gains less
FINE_SHARE = 0.01  # of ``loss``: and the last one
SLOPE = 0.02  # nats an e-fold: or where no slope is larger
GROWTH = 2  # times as many points
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
        How many; "auto": doubled from 100 until the bound is below ``loss``; or the points themselves.
    loss : float, optional
        Nats of elbo that the points may cost. Default: ``default_loss``, a thousandth of a nat a row.
    most_points : int
        Of "auto".
    seconds : float
        No number of points is begun that would probably take longer in all.
    theta : array, optional
        Where learning starts, as in ``learn``.
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
    sizes = _sizes(n_inducing, N, min(most_points, N))

    def search() -> InducingFit:
        with reporting(progress, "learning by inducing points", callback) as report:
            return _grown(run, sizes, n_inducing, allowed, seconds, report)

    return searched("learn inducing", search, InducingFit.numbers, run.restored)


def _sizes(n_inducing: Any, N: int, most: int) -> list[int]:
    """The numbers of points to try, in order; none where the points are given."""
    if np.ndim(n_inducing) > 0:
        return []
    if n_inducing != "auto":
        return [min(N, max(1, count("learn_inducing", "n_inducing", n_inducing)))]
    out = [min(FIRST_POINTS, most)]
    while out[-1] < most:
        out.append(min(most, GROWTH * out[-1]))
    return out


def _grown(
    run: _Run, sizes: list[int], given: Any, allowed: float, seconds: float, report: Callback | None
) -> InducingFit:
    began, stages = time.perf_counter(), list[dict[str, float]]()
    ending = "the points were given" if not sizes else "so many points were asked for"
    if not sizes:
        run.points(finite("learn_inducing", "points", numeric("learn_inducing", "points", given)))
    for size in sizes or [0]:
        if size:
            run.choose(size)
            run.learn(ROUGH_SHARE * allowed, report)
            run.choose(size)
        run.learn(FINE_SHARE * allowed, report)
        loss = run.loss()
        spent = time.perf_counter() - began
        stages.append(
            {
                "n_inducing": loss.n_points,
                "elbo": run.learned.solution.elbo,
                "bound": loss.bound,
                "standard_error": loss.standard_error,
                "seconds": spent,
            }
        )
        if np.ndim(given) == 0 and given == "auto":
            if loss.bound <= allowed:
                ending = f"the bound is below loss = {allowed:.3g} nats"
                break
            if loss.n_points < size:
                ending = "further points explain nothing more in double precision"
                break
            ending = f"the bound is above loss = {allowed:.3g} nats at the most points"
            if LONGER * spent > seconds:
                ending = f"the bound is above loss = {allowed:.3g} nats, and more points would take too long"
                break
    return InducingFit(run.learned, run.family, loss, stages, ending)


class _Run:
    """The state of one search: the family with its points, theta, and the last fit."""

    learned: Learned

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
        self.learn_theta, self.max_iter, self.gtol = learn_theta, max_iter, gtol
        self.settings: dict[str, Any] = {"weights": weights, "tol": tol, "own": own and learn_theta}
        self.theta: np.ndarray | None = None
        self.solution: Solution | None = None
        self.n_evaluations = self.n_newton = 0

    def points(self, points: np.ndarray) -> None:
        self.family = self.family.with_points(points)

    def choose(self, size: int) -> None:
        """Rows whose remainder counts most at the last fit."""
        family, solution = self.family, self.solution
        theta = family.theta if self.theta is None else self.theta[: family.theta.size]
        w = None if solution is None else to_numpy(solution.lam + solution.alpha**2).sum(axis=1)
        if w is not None and not (np.isfinite(w).all() and w.any()):
            w = None
        self.points(family.X[choose_rows(family.kernel_at(theta), family.X, size, w, self.rng)])

    def learn(self, rise: float, report: Callback | None) -> None:
        """theta at these points, from where the last search ended, until a step gains no more than ``rise`` nats."""
        evidence = Evidence(self.likelihood, self.family, self.y, **self.settings)
        theta = evidence.start if self.theta is None else self.theta
        evidence.begin(self.solution)
        if self.learn_theta:
            evidence.allowed_gap = 0.0
            value, slope = evidence(theta)
            start = Evaluated(value, theta, slope, evidence.solution, evidence.prior)
            options = SearchOptions(ftol=rise / max(1.0, abs(value)), accepts_flat=True)
            found = Search(evidence, self.max_iter, self.gtol, report, options).run(start)
            found.n_evaluations, found.n_newton = evidence.n_evaluations, evidence.n_newton
        else:
            fit = evidence.fit(theta)
            where = (theta, fit, fit.elbo, np.zeros(0), fit.optimal, fit.ending, 1, fit.n_iter)
            found = Learned(*where, likelihood=self.likelihood, prior=evidence.prior)
        self.learned, self.theta, self.solution = found, found.theta, found.solution
        self.n_evaluations += found.n_evaluations
        self.n_newton += found.n_newton
        found.n_evaluations, found.n_newton = self.n_evaluations, self.n_newton

    def loss(self) -> ApproximationLoss:
        theta = self.learned.theta[: self.family.theta.size]
        return approximation_loss(self.learned.solution, self.family.at(theta), self.rng)

    def restored(self, numbers: dict[str, Any]) -> InducingFit:
        self.points(np.asarray(numbers["points"], dtype=np.float64))
        learned = Evidence(self.likelihood, self.family, self.y, **self.settings).restored(numbers["learned"])
        loss = ApproximationLoss(**numbers["loss"])
        return InducingFit(learned, self.family, loss, list(numbers["stages"]), str(numbers["ending"]))
