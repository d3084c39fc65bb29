"""Learn theta by its evidence: elbo(theta) + log p(theta) maximised from one start or several.

``evidence.py`` is the objective, ``starting_points.py`` says where to begin, ``search.py`` is one search. theta holds
the family's hyperparameters and then the likelihood's own.
"""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from ..checks import Refusal, count, numeric, problem, scalar
from ..corrections.corrected import correct
from ..files import searched, stated
from ..likelihoods.base import Likelihood
from ..linalg.arrays import ArrayLike, Seed
from ..linalg.machine import Tally, counting, note
from ..solvers.base import Callback, Solver, reporting
from ..tasks import Jobs, alone, check_jobs, run_tasks
from .base import Evaluated, Family, Learned
from .correction_model import NEGLIGIBLE
from .evidence import CorrectedEvidence, Evidence, doubt_of
from .gaussian_rows import quick_start
from .search import Search
from .starting_points import beginnings

MOST_ROUNDS = 4  # models of the correction, each about the mode by the last
MISSED = 0.02  # nats: a correction that is farther from its model has another about it
NEAR = 0.4  # e-folds: the longest way along which a model serves
_DRAWN = 10.0  # random starts lie within this of the likelihood's own parameters: their bounds are far wider


@stated("theta", "n_restarts", "rng", "max_iter", "gtol", "progress", "callback", "method", "n_jobs")
def learn(
    likelihood: Likelihood,
    family: Family,
    y: ArrayLike,
    *,
    theta: Any = None,
    weights: ArrayLike | None = None,
    learn_likelihood: bool = True,
    n_restarts: int = 0,
    rng: Any = None,
    tol: float = 1e-10,
    max_iter: int = 100,
    gtol: float = 1e-3,
    progress: bool = False,
    callback: Callback | None = None,
    method: str | Solver = "newton",
    evidence: str = "elbo",
    n_jobs: Jobs = None,
) -> Learned:
    """Maximise the evidence over hyperparameters.

    Parameters
    ----------
    likelihood, family, y, weights
        The model; ``family`` is a prior with hyperparameters (``KernelCovariance``, ``WeightVariances``, ``gmrf``...).
    theta : array, optional
        Where to start. Default: at a peak of the evidence of a Gaussian working model over the ratio of signal to
        noise, or where the family and the likelihood stand if that is better (``starting_points.py``).
    learn_likelihood : bool
        Whether the likelihood's own parameters (a variance, cutpoints) are learned too.
    n_restarts : int
        Further starts, drawn uniformly within the (finite) bounds with ``rng``; the likelihood's own parameters within
        a factor of e^10 of where they start.
    tol : float
        Relative gap of the inner fits.
    max_iter : int
        Iterations of the search, each start. A search of few rows of labels first takes as many at most without
        certified fits, which ``callback`` does not hear.
    gtol : float
        It ends where no slope within the bounds exceeds this, in nats for an e-fold of a hyperparameter.
    progress : bool
        Draw a live line.
    callback : callable, optional
        Hears each evaluation as a dict (iteration, seconds, elbo, gap, step).
    method : str or Solver
        Of the inner fits, as in ``infer``.
    evidence : "elbo" or "corrected"
        "corrected" goes on from the best theta of the elbo to the mode of the evidence beyond the Gaussian
        (``Solution.corrected``): a further fit and correction for each hyperparameter, none where the correction is
        below 0.05 nats and moves theta by a few hundredths of its standard deviations at most. The elbo falls short of
        the evidence by more the larger a variance is, and so puts variances too low, most of all where a group has few
        binary rows. For Gaussian noise the two are the same, and no further fit is made. Where its own error says that
        the elbo is as near, theta stays the elbo's; where it is nearer but not to be trusted, it is used: a warning
        says so, ``Learned.doubt`` and ``Learned.maximises``.
    n_jobs : int, None or Dask client
        Who searches from several starts side by side (``fenchel.tasks``); callback then hears none of them.

    Returns
    -------
    Learned

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters import KernelCovariance, learn
    >>> from fenchel.likelihoods import Poisson
    >>> x = np.linspace(0, 6, 30)
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x)))
    >>> found = learn(Poisson(), KernelCovariance(1.0 * RBF(1.0), x[:, None], mean=1.0), counts)
    >>> found.converged
    True
    """
    if evidence not in ("elbo", "corrected"):
        raise problem("learn", f"evidence = {evidence!r}", '"elbo" or "corrected"')
    settings: dict[str, Any] = {"weights": weights, "tol": tol, "own": learn_likelihood, "method": method}
    plain = Evidence(likelihood, family, y, **settings)
    n_restarts, max_iter = count("learn", "n_restarts", n_restarts), count("learn", "max_iter", max_iter)
    gtol = scalar("learn", "gtol", gtol, 0.0)
    if callback is not None and not callable(callback):
        raise problem("learn", f"callback is a {type(callback).__name__}", "a function of a trace row, or None")
    check_jobs("learn", n_jobs)

    def search() -> Learned:
        with counting() as begun:
            starts = _starts(plain, theta, n_restarts, rng)
        looked = plain.n_evaluations, plain.n_newton  # for a start
        here, title = alone(n_jobs, len(starts)), f"learning {plain.start.size} hyperparameters"
        with reporting(progress and here, title, None) as draw, counting() as done:

            def report(row: dict[str, float]) -> None:
                for listener in (draw, callback):
                    if listener is not None:
                        listener(row)

            if draw is not None:  # a fit of many rows takes minutes: its iterations show too
                plain.on_iteration = lambda row: draw({**row, "iteration": plain.n_evaluations + 1.0})
            shared = (plain, max_iter, gtol, report if here else None)
            options: dict[str, Any] = {"where": "learn", "n_jobs": n_jobs, "progress": progress and not here}
            found = run_tasks(_searched, list(enumerate(starts)), shared, **options)
            ends = sorted((end for end, *_ in found if end is not None), key=lambda end: -end.objective)
            best = ends[0]
            best.n_evaluations = looked[0] + sum(n for _, n, _, _ in found)
            best.n_newton = looked[1] + sum(n for _, _, n, _ in found)
            note(begun.factorisations, begun.inverses, begun.products)
            for *_, spent in found if not here else []:  # by other processes
                note(spent.factorisations, spent.inverses, spent.products)
            if evidence == "corrected":
                best = _beyond(best, CorrectedEvidence(likelihood, family, y, **settings), max_iter, gtol, report)
        best.restarts = [(end.theta, end.objective) for end in ends]
        best.n_factorisations, best.n_inverses, best.n_products = done.factorisations, done.inverses, done.products
        return best

    return searched("learn", search, Learned.numbers, plain.restored)


def _searched(
    shared: tuple[Evidence, int, float, Callback | None], item: tuple[int, np.ndarray | Evaluated]
) -> tuple[Learned | None, int, int, Tally]:
    """Where a search from one start ends, its evaluations, Newton steps and linear algebra; not alone: on a copy."""
    (evidence, max_iter, gtol, report), (place, start), end = shared, item, None
    own = copy.copy(evidence) if report is None else evidence
    before = own.n_evaluations, own.n_newton
    with counting() as spent, suppress(*([Refusal] if place else [])):  # a random start beyond double precision is none
        if type(start) is np.ndarray:  # not evaluated yet
            start = quick_start(own, start, gtol, max_iter)
        end = Search(own, max_iter, gtol, report).run(start)
    return end, own.n_evaluations - before[0], own.n_newton - before[1], spent


def _beyond(best: Learned, evidence: CorrectedEvidence, max_iter: int, gtol: float, report: Callback) -> Learned:
    """From the elbo's best theta to the corrected evidence's; for Gaussian noise they are the same."""
    if evidence.likelihood.objective.conjugate:
        best.maximises = "corrected"
        return best
    out, found = best, correct(best.solution, rough=True)
    if not found.nearer:
        warnings.warn(f"learn: {doubt_of(found)}.", stacklevel=3)
        best.doubt = doubt_of(found)
        return best
    for _ in range(MOST_ROUNDS if abs(found.log_evidence - found.elbo) > NEGLIGIBLE else 0):
        before = out.theta
        evidence.begin(out.solution)
        exact = evidence.about(before, found)
        out = Search(evidence, max_iter, gtol, report).run(before)
        known = evidence.correction_at(out.theta) if exact else None
        found = correct(out.solution, True, found.like) if known is None else known
        missed = abs(found.log_evidence + evidence.log_prior(out.theta)[0] - out.objective)
        if exact or (missed <= MISSED and np.abs(out.theta - before).max(initial=0.0) <= NEAR):
            break
    out.objective = float(found.log_evidence + evidence.log_prior(out.theta)[0])
    out.n_evaluations = best.n_evaluations + evidence.n_evaluations
    out.n_newton, out.maximises, out.correction = best.n_newton + evidence.n_newton, "corrected", found
    out.doubt = doubt_of(found)
    if out.doubt:
        warnings.warn(f"learn: {out.doubt}.", stacklevel=3)
    return out


def _starts(evidence: Evidence, theta: ArrayLike, n_restarts: int, rng: Seed) -> list[np.ndarray | Evaluated]:
    """Where to begin: at theta, or where ``starting_points`` says, and at random points within the bounds."""
    lower, upper = evidence.bounds.T
    first = evidence.start if theta is None else numeric("learn", "theta", theta)
    if first.shape != evidence.start.shape or not np.isfinite(first).all():
        names = ", ".join(evidence.family.names)
        wanted = f"{evidence.start.size} finite numbers: {names}, then the likelihood's"
        raise problem("learn", f"theta has shape {first.shape}", wanted)
    first = np.clip(first, lower, upper)
    starts: list[np.ndarray | Evaluated] = [first] if theta is not None else beginnings(evidence, first)
    if n_restarts:
        if not np.isfinite(evidence.bounds).all():
            got = f"n_restarts = {n_restarts} requires that all bounds are finite, and some are not"
            raise problem("learn", got, "bounds on every hyperparameter")
        reach = np.where(np.arange(first.size) < evidence.n_family, np.inf, _DRAWN)
        low, high = np.maximum(lower, first - reach), np.minimum(upper, first + reach)
        starts += list(np.random.default_rng(rng).uniform(low, high, size=(n_restarts, lower.size)))
    return starts
