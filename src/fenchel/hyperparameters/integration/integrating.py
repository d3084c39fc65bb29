"""``integrate``: find the mode of theta, fit at the points of a design about it, and weight them by their evidence.

p(theta | y) prop. to p(y | theta) p(theta),     p(z | y) = sum_k w_k p(z | y, theta_k)
w_k prop. to mass_k exp(log p(y, theta_k) + log |d theta / du| - log N(u_k; 0, I))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import choice, problem
from ...corrections.interpolated import Interpolated
from ...files import searched, stated
from ...likelihoods.base import Likelihood
from ...linalg.arrays import ArrayLike, to_numpy
from ...linalg.machine import one_thread
from ...problem import Problem
from ...solvers.base import Solver, reporting
from ...tasks import Jobs, Stopped, check_jobs
from ..base import Family, Learned, free_entries
from ..evidence import Evidence, doubt_of, not_used
from ..learning import learn
from . import designs
from .fitted_design import FittedDesign, fit_design, fit_lattice, integrate_composite, integrate_lattice, shares_of
from .integrated import Integrated
from .points import Centre, Finished, Fitter, Point, centred
from .theta import LogDensity, ThetaPosterior

COUNTING_SHARE = 0.01  # of a point whose correction has to be trusted, and of theta near a bound that is reported
CUT_SHARE = 0.15  # of the posterior just beyond a lattice that was stopped, above which that is said
NEAR_BOUND = 0.5  # sds
LEAST_SHARE = 1e-6  # of a point that is mixed
LIGHT_SHARE = 0.002  # of a point below which its correction is not looked at
MISSED = 0.03  # nats: a point whose correction is farther than this from what others say of it is followed by another
FAR = 3.0  # sds from known corrections, beyond which a point is no more in doubt,
NOT_FAR = 0.01  # and by which one is in doubt at least
GRID_UP_TO = 3  # hyperparameters for which "auto" is a grid
GRID_OF_TAILS_UP_TO = 4  # hyperparameters: the same where one of them has a long tail
GRID_OF_TAILS_ROWS = 20_000  # rows: at most so many then
LONG_TAIL = 0.5  # of a side of a coordinate, from which its tail is long: exponential in theta is 1 and more
LONG_TAIL_OF_MIXTURES = 0.3  # the same of a likelihood that is not log-concave, such as one with extra zeros


@stated("n_jobs", "progress", "checkpoint", "solver")
def integrate(
    likelihood: Likelihood,
    family: Family,
    y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    method: str = "auto",
    evidence: str = "corrected",
    mode: Learned | None = None,
    learn_likelihood: bool = True,
    tol: float = 1e-8,
    n_jobs: Jobs = None,
    progress: bool = False,
    checkpoint: str | Path | Finished | None = None,
    solver: str | Solver = "newton",
    hold: Iterable[int] = (),
) -> Integrated:
    """Integrate the hyperparameters out: the posterior as a mixture over fits at many values of theta.

    Parameters
    ----------
    likelihood : Likelihood
    family : Family
        A prior with hyperparameters and their log prior (flat if it has none).
    y : array (N,)
        Targets; NaN marks an unobserved one.
    weights : array (N,), optional
        Multiplies the log-likelihood of each observation.
    method : {"auto", "grid", "ccd", "star"}, default "auto"
        "grid": a lattice for up to four hyperparameters, which reaches to where the density has fallen by e^5 to e^7;
        about 7, 20, 30 and 60 points for a nearly normal posterior. "ccd": a central composite design with gradients
        for posteriors without long tails; 25 points for four hyperparameters, 45 for six, and a few more. "star": the
        mode and two points along each direction, which give means and variances only. "auto": a grid for up to three
        hyperparameters (four if one has a long tail and there are at most 20,000 rows), else "ccd".
    evidence : {"corrected", "elbo"}, default "corrected"
        What weights the points; "corrected" also corrects the marginals. If the correction is unreliable the elbo is
        used, and ``status`` says so.
    mode : Learned, optional
        The result of ``learn`` for the same model. Default: it is learned first.
    learn_likelihood : bool, default True
        Whether the parameters of the likelihood are integrated out, too.
    tol : float, default 1e-8
        Relative gap of every fit.
    n_jobs : int, None or Dask client
        Workers for the fits (``fenchel.tasks``).
    progress : bool, default False
        Show a progress line.
    checkpoint : path or Finished, optional
        File of finished fits, from which an interrupted integration resumes. Without one a KeyboardInterrupt has them
        as its attribute ``finished``.
    solver : str or Solver, default "newton"
        Solver of the fits, as in ``infer``.
    hold : sequence of int
        Entries of theta that stay at the mode and are not integrated out.

    Returns
    -------
    Integrated

    Notes
    -----
    Hyperparameters that end at a bound in learning are held there. Priors are densities of theta, which holds logs of
    sds. Under the default priors the posterior is proper even if a variance may be 0; it then has a long tail to one
    side, which the points follow.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.gmrf import iid, stack
    >>> from fenchel.hyperparameters.integration import integrate
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.hyperparameters import Normal, WeightVariances, independent
    >>> counts = np.array([2, 0, 4, 1, 9, 3, 2, 6])
    >>> groups = WeightVariances(np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    >>> posterior = integrate(Poisson(), groups, counts)
    >>> posterior.converged, posterior.method, posterior.theta.interval().shape
    (True, 'grid', (1, 2))
    """
    choice("integrate", "method", method, ("auto", "grid", "ccd", "star"))
    choice("integrate", "evidence", evidence, ("corrected", "elbo"))
    inner = Evidence(likelihood, family, y, weights=weights, tol=tol, own=learn_likelihood, method=solver)
    held, n = {*hold}, inner.start.size
    if not held <= {*range(n)}:
        raise problem("integrate", f"hold = {sorted(held)}", f"places of hyperparameters, 0 to {n - 1}")
    check_jobs("integrate", n_jobs)
    finished = checkpoint if isinstance(checkpoint, Finished) else Finished(checkpoint)
    finished.open(_about(inner, evidence))

    def search(kept: list[dict[str, Any]] | None = None, given: Learned | None = mode, n_fits: int = 0) -> Integrated:
        with reporting(progress, "integrating", None) as report:
            fitter = Fitter(inner, evidence == "corrected", n_jobs, finished, report, n_fits, kept)
            found = given if given is not None else finished.mode
            if found is None:
                found = learn(
                    likelihood,
                    family,
                    y,
                    weights=weights,
                    learn_likelihood=learn_likelihood,
                    method=solver,
                    progress=progress and report is None,
                )
            if finished.mode is None:
                finished.keep_mode(found)
            if found.theta.shape != inner.start.shape:
                raise problem("integrate", f"mode has {found.theta.size} hyperparameters", f"{inner.start.size}")
            with one_thread(found.solution.posterior.predictors.small, ours=True):
                return _integrated(fitter, family, found, method, held)

    def numbers(result: Integrated) -> dict[str, Any]:
        own = result.mode.numbers() if mode is None else None
        return {"points": [point.numbers() for point in finished.points.values()], "mode": own, "n_fits": result.n_fits}

    def restore(kept: dict[str, Any]) -> Integrated:
        return search(kept["points"], mode or inner.restored(kept["mode"]), int(kept["n_fits"]))

    try:
        return searched("integrate", search, numbers, restore)
    except (KeyboardInterrupt, Stopped) as stop:
        stop.finished = finished  # type: ignore[union-attr]
        kept = f"{len(finished)} fits are finished: integrate(..., checkpoint=error.finished) goes on from them."
        stop.__notes__ = [kept]  # in the place of that on the last few tasks
        raise


def _about(inner: Evidence, evidence: str) -> tuple[Any, ...]:
    """What the fits of a checkpoint are of: the rows, where theta starts, and what the prior there does to a vector."""
    rows = inner.targets.rows_of(inner.likelihood)
    digest = hashlib.sha256()
    for key in sorted(rows):
        digest.update(np.ascontiguousarray(to_numpy(rows[key])).tobytes())
    start = inner.start
    task = Problem(inner.likelihood, inner.family.at(start[: inner.n_family]), inner.targets)
    mt = task.predictors.mt
    prior = [to_numpy(mt), to_numpy(task.predictors.apply(0.0 * mt + 1.0))]
    digest.update(np.round(np.concatenate([x.ravel() for x in prior]), 6).tobytes())
    log_prior, names = float(inner.log_prior(start)[0]), tuple(inner.names)
    return repr(inner.likelihood), names, start.tobytes(), log_prior, inner.tol, evidence, digest.hexdigest()


# -- points and their weights -------------------------------------------------------------------------------
def _integrated(fitter: Fitter, family: Family, mode: Learned, method: str, hold: set[int]) -> Integrated:
    free = free_entries(fitter.evidence.bounds, {*mode.at_bounds, *hold})
    d = len(free)
    notes = [f"{fitter.evidence.names[i]} is held at its {side} bound" for i, side in mode.at_bounds.items()]
    if d == 0:
        return _alone(fitter, family, mode, notes)
    if method == "grid" and d > designs.MOST:
        raise problem(
            "integrate", f'method = "grid" and {d} hyperparameters', f"at most {designs.MOST}", 'Use method="ccd".'
        )
    centre = centred(
        fitter, mode, free, fitter.beyond, sloped=method in ("ccd", "star") or (method == "auto" and d > GRID_UP_TO)
    )
    long = LONG_TAIL if fitter.evidence.likelihood.objective.log_concave else LONG_TAIL_OF_MIXTURES
    tails = [fitter.evidence.names[i] for i, c in zip(free, centre.coordinates.stretch, strict=True) if c > long]
    word = method if method != "auto" else _chosen(d, bool(tails), len(fitter.evidence.targets.y))
    if word == "grid":
        laid = fit_lattice(fitter, centre)
    else:
        laid = fit_design(fitter, centre, designs.composite(d) if word == "ccd" else designs.star(d), sloped=True)
    laid, centre, missed = _checked(fitter, centre, laid)
    beyond, doubt = _trusted(laid, centre, fitter.beyond)
    if word == "grid":
        found = integrate_lattice(fitter, centre, laid, beyond)
    else:
        found = integrate_composite(fitter, centre, laid, beyond, more=word == "ccd")
    total, rule, through, points, w = found
    best = centre.known[0].corrected if beyond else None
    known = 0.0 if best is None else float(best.log_evidence_se) + missed
    kept = np.flatnonzero(w > LEAST_SHARE)
    notes += _at_bounds(fitter, through)
    doubts = [doubt] if doubt else []
    if not found.resolved:
        apart = f"two rules of integration are {abs(total - rule):.1g} nats apart"
        doubts.append(f"{apart}: the points do not resolve the posterior of theta; state priors of it")
        through.match(centre.coordinates.u(np.array([p.theta for p in points])), w)
    if laid.cut > CUT_SHARE:
        next_ones = f"the places next to them may hold {min(laid.cut, 1.0):.0%} of the posterior of theta"
        doubts.append(f"the lattice was stopped at {len(laid.points)} points, and {next_ones}: tails are cut off")
    if tails and word == "ccd":
        cure = ': a grid does, integrate="grid" of formulas' if d <= designs.MOST else ""
        said = f"{' and '.join(tails)}: a long tail, which a composite design does not follow{cure}"
        flat = method == "auto" and fitter.evidence.likelihood.objective.log_concave  # other answers hardly move
        (notes if flat else doubts).append(said)
    summary = {
        "evidence": "corrected" if beyond else "elbo",
        "log_evidence": total,
        "error": abs(total - rule) + known,
        "n_fits": fitter.n_fits,
        "method": word,
        "notes": notes,
        "doubts": doubts,
        "resolved": found.resolved,
    }
    peak = centre.peak if beyond else mode.theta
    theta = ThetaPosterior(fitter.evidence.names, centre.coordinates.centre, free, through, peak)
    points = [points[k] for k in kept]
    if beyond:
        points = _with_corrections(fitter, points, w[kept], centre, missed)
    return Integrated(points, w[kept] / w[kept].sum(), theta, family, mode, summary)


def _chosen(d: int, tails: bool, rows: int) -> str:
    """A design for d hyperparameters: a lattice for few, and for one more where tails are to be followed."""
    return "grid" if d <= GRID_UP_TO or (d <= GRID_OF_TAILS_UP_TO and tails and rows <= GRID_OF_TAILS_ROWS) else "ccd"


def _alone(fitter: Fitter, family: Family, mode: Learned, notes: list[str]) -> Integrated:
    """Nothing to integrate over: one point."""
    (point,) = fitter.at([mode.theta])
    beyond = fitter.beyond and point.usable
    value = point.plain + (point.gain if beyond else 0.0)
    summary: dict[str, Any] = {"evidence": "corrected" if beyond else "elbo", "log_evidence": value, "error": 0.0}
    doubt = doubt_of(point.corrected) if point.corrected is not None else ""
    summary |= {"n_fits": fitter.n_fits, "method": "none", "notes": [*notes, "no hyperparameter to integrate over"]}
    summary |= {"doubts": [doubt] if doubt else [], "resolved": True}
    theta = ThetaPosterior(fitter.evidence.names, mode.theta, [], None)
    return Integrated([point], np.ones(1), theta, family, mode, summary)


def _checked(fitter: Fitter, centre: Centre, laid: FittedDesign) -> tuple[FittedDesign, Centre, float]:
    """With the corrections of points that are far from known ones, until two in a row are what the others say of them.

    The first of two counts most, the second is farther out. And by how many nats the last two were not what was said.
    """
    points, missed = list(laid.points), [0.0, 0.0]
    carry = _carry(centre)
    while centre.model is not None:
        share = shares_of(laid, centre, True)
        known = {p.name for p in centre.known}  # a checkpoint has corrections beyond these
        wanted = np.array([p.name not in known for p in points]) & (share > LIGHT_SHARE)
        if not wanted.any() or (carry and len(missed) > 3 and max(missed[-2:]) <= MISSED):
            break
        away = np.minimum(centre.model.away(np.array([p.theta for p in points])).min(axis=1), FAR)
        counts = share if len(missed) % 2 == 0 else np.sqrt(share)
        k = int(np.argmax(np.where(wanted, counts * (away + NOT_FAR) ** 2, 0.0)))
        said = float(centre.model(points[k].theta[None])[0])
        (points[k],) = fitter.corrected([points[k]])
        centre = centre.with_correction(points[k])
        carry = _carry(centre)
        missed.append(abs(points[k].gain - said) if points[k].usable else 0.0)
    return laid._replace(points=points), centre, max(missed[-2:])


def _carry(centre: Centre) -> bool:
    """Whether the corrections that are known may be interpolated."""
    return all(p.corrected is not None and p.corrected.carries for p in centre.known)


def _with_corrections(
    fitter: Fitter, points: Sequence[Point], shares: np.ndarray, centre: Centre, missed: float
) -> list[Point]:
    """Points that have no correction with one: interpolated between those of others, or their own where these do not
    carry and the point counts.
    """
    given: list[Any] = [p.corrected for p in centre.known if p.usable]
    model = centre.model
    if model is None:
        return list(points)
    if not _carry(centre):
        return [p if w <= LIGHT_SHARE else fitter.corrected([p])[0] for p, w in zip(points, shares, strict=True)]
    out = []
    for point in points:
        if point.corrected is None:
            near = int(np.argmin(model.away(point.theta[None])[0]))
            mixed, gain = model.shares(point.theta), float(model(point.theta[None])[0])
            found = Interpolated(point.solution, given, mixed, near, gain, missed)
            point = replace(point, corrected=found)
        out.append(point)
    return out


def _trusted(laid: FittedDesign, centre: Centre, asked: bool) -> tuple[bool, str]:
    """Whether the correction is used at the points that count; where it is not to be trusted there, a sentence."""
    if not asked:
        return False, ""
    share = np.maximum(*(shares_of(laid, centre, beyond) for beyond in (True, False)))  # by either evidence
    light = {id(p) for p, w in zip(laid.points, share, strict=True) if w <= COUNTING_SHARE}
    corrections = [(p.usable, p.corrected) for p in centre.known if p.corrected is not None and id(p) not in light]
    for usable, each in corrections:
        if not usable:
            return False, not_used(each.status)
    worst = max((each for _, each in corrections if not each.trusted), key=lambda c: c.log_evidence_se, default=None)
    return True, "" if worst is None else doubt_of(worst)


def _at_bounds(fitter: Fitter, through: LogDensity) -> list[str]:
    """Where the posterior reaches a bound of theta."""
    bounds, names, out, (thetas, w) = fitter.evidence.bounds, fitter.evidence.names, [], through.draws
    for i in through.coordinates.free:
        spread = float(np.sqrt(w @ (thetas[:, i] - w @ thetas[:, i]) ** 2))
        near = np.minimum(thetas[:, i] - bounds[i, 0], bounds[i, 1] - thetas[:, i]) < NEAR_BOUND * spread
        if spread > 0.0 and w[near].sum() > COUNTING_SHARE:
            out.append(f"the posterior of {names[i]} is cut off at the end of its range")
    return out
