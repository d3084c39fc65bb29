"""``learn``: maximise elbo(theta) + log p(theta) over the hyperparameters, from one start or several.

``evidence.py`` has the objective, ``starting_points.py`` the start, ``search.py`` a single search. theta holds the
hyperparameters of the family and then the parameters of the likelihood.
"""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from ..checks import Refusal, callers_line, count, numeric, problem, scalar
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

MOST_ROUNDS = 4  # models of the correction, each about the mode that the previous one gave
MISSED = 0.02  # nats of error of such a model from which another one is made
NEAR = 0.4  # log units from its centre up to which such a model is used
_DRAWN = 10.0  # log units about the start within which random starts of the likelihood's parameters lie


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
    """Learn hyperparameters by maximising the evidence.

    Parameters
    ----------
    likelihood : Likelihood
    family : Family
        A prior with hyperparameters: ``KernelCovariance``, ``WeightVariances``, those of ``gmrf``, ...
    y : array (N,)
        Targets; NaN marks an unobserved one.
    theta : array, optional
        Starting point. Default: the best ratio of signal to noise in a Gaussian working model, or the current values of
        family and likelihood if they are better (``starting_points.py``).
    weights : array (N,), optional
        Multiplies the log-likelihood of each observation.
    learn_likelihood : bool, default True
        Whether the parameters of the likelihood (a variance, cutpoints) are learned, too.
    n_restarts : int, default 0
        Number of further starts, drawn uniformly within the bounds (which must be finite) with ``rng``.
    rng : numpy Generator or int, optional
    tol : float, default 1e-10
        Relative gap of the inner fits.
    max_iter : int, default 100
        Iterations of the search from each start; 0: a fit there.
    gtol : float, default 1e-3
        The search ends if no slope within the bounds exceeds this, in nats per log unit of a hyperparameter.
    progress : bool, default False
        Show a progress line.
    callback : callable, optional
        Called with a dict (iteration, seconds, elbo, gap, step) at each certified fit, unless several starts run in
        parallel.
    method : str or Solver, default "newton"
        Solver of the inner fits, as in ``infer``.
    evidence : {"elbo", "corrected"}, default "elbo"
        "corrected" goes on from the maximum of the elbo to that of the corrected evidence (``Solution.corrected``). The
        elbo underestimates variances, most of all those of groups with few binary rows. It takes a further fit and
        correction for each hyperparameter, none if the correction is below 0.05 nats or the noise is Gaussian. If the
        correction is unreliable a warning says which evidence is used; see ``Learned.doubt`` and ``.maximises``.
    n_jobs : int, None or Dask client
        Workers for searches from several starts (``fenchel.tasks``).

    Returns
    -------
    Learned
        With ``theta``, ``solution``, ``likelihood``, ``prior``, ``converged`` and ``status``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from fenchel.hyperparameters import KernelCovariance, learn
    >>> from fenchel.likelihoods import Poisson
    >>> x = np.linspace(0, 6, 30)
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x)))
    >>> result = learn(Poisson(), KernelCovariance(1.0 * RBF(1.0), x[:, None], mean=1.0), counts)
    >>> result.converged
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
        before = plain.n_evaluations, plain.n_newton  # spent on finding a start
        here, title = alone(n_jobs, len(starts)), f"learning {plain.start.size} hyperparameters"
        with reporting(progress and here, title, None) as draw, counting() as done:

            def report(row: dict[str, float]) -> None:
                for listener in (draw, callback):
                    if listener is not None:
                        listener(row)

            if draw is not None:  # a fit of many rows takes minutes, so its iterations are shown, too
                plain.on_iteration = lambda row: draw({**row, "iteration": plain.n_evaluations + 1.0})
            shared = (plain, max_iter, gtol, report if here else None)
            options: dict[str, Any] = {"where": "learn", "n_jobs": n_jobs, "progress": progress and not here}
            runs = run_tasks(_searched, list(enumerate(starts)), shared, **options)
            ends = sorted((end for end, *_ in runs if end is not None), key=lambda end: -end.objective)
            best = ends[0]
            best.n_evaluations = before[0] + sum(n for _, n, _, _ in runs)
            best.n_newton = before[1] + sum(n for _, _, n, _ in runs)
            note(begun.factorisations, begun.inverses, begun.products)
            for *_, spent in runs if not here else []:  # counted in other processes
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
    """Search from one start: its end, evaluations, Newton steps and linear algebra; on a copy if run in parallel."""
    (evidence, max_iter, gtol, report), (place, start), end = shared, item, None
    own = copy.copy(evidence) if report is None else evidence
    before = own.n_evaluations, own.n_newton
    with counting() as spent, suppress(*([Refusal] if place else [])):  # skip a random start that overflows
        if type(start) is np.ndarray and max_iter:  # not evaluated yet
            start = quick_start(own, start, gtol, max_iter)
        end = Search(own, max_iter, gtol, report).run(start)
    return end, own.n_evaluations - before[0], own.n_newton - before[1], spent


def _beyond(best: Learned, evidence: CorrectedEvidence, max_iter: int, gtol: float, report: Callback) -> Learned:
    """Go on from the maximum of the elbo to that of the corrected evidence; for Gaussian noise they are the same."""
    if evidence.likelihood.objective.conjugate:
        best.maximises = "corrected"
        return best
    out, correction = best, correct(best.solution, rough=True)
    if not correction.nearer:
        warnings.warn(f"learn: {doubt_of(correction)}.", stacklevel=callers_line())
        best.doubt = doubt_of(correction)
        return best
    for _ in range(MOST_ROUNDS if abs(correction.log_evidence - correction.elbo) > NEGLIGIBLE else 0):
        before = out.theta
        evidence.begin(out.solution)
        exact = evidence.about(before, correction)
        out = Search(evidence, max_iter, gtol, report).run(before)
        known = evidence.correction_at(out.theta) if exact else None
        correction = correct(out.solution, True, correction.like) if known is None else known
        missed = abs(correction.log_evidence + evidence.log_prior(out.theta)[0] - out.objective)
        if exact or (missed <= MISSED and np.abs(out.theta - before).max(initial=0.0) <= NEAR):
            break
    out.objective = float(correction.log_evidence + evidence.log_prior(out.theta)[0])
    out.n_evaluations = best.n_evaluations + evidence.n_evaluations
    out.n_newton, out.maximises, out.correction = best.n_newton + evidence.n_newton, "corrected", correction
    out.doubt = doubt_of(correction)
    if out.doubt:
        warnings.warn(f"learn: {out.doubt}.", stacklevel=callers_line())
    return out


def _starts(evidence: Evidence, theta: ArrayLike, n_restarts: int, rng: Seed) -> list[np.ndarray | Evaluated]:
    """The starts: theta, or those of ``starting_points``, and random points within the bounds."""
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
