"""Integrate theta out: the mode, coordinates about it, fits at the points of a design, weights by their evidence.

p(theta | y) prop. to p(y | theta) p(theta),     p(z | y) = sum_k w_k p(z | y, theta_k)
w_k prop. to mass_k exp(log p(y, theta_k) + log |d theta / du| - log N(u_k; 0, I))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator
from scipy.special import logsumexp, softmax
from scipy.stats import chi2

from ...checks import choice, problem
from ...files import searched, stated
from ...likelihoods.base import Likelihood
from ...linalg.arrays import ArrayLike, to_numpy
from ...problem import Problem
from ...solvers.base import Solver, reporting
from ...tasks import Jobs, Stopped, check_jobs
from ..base import Family
from ..evidence import Evidence, doubt_of, not_used
from ..learning import learn
from ..objective import Learned
from . import designs
from .designs import ThetaDesign
from .integrated import Integrated
from .points import Centre, Finished, Fitter, Point, centred, value_of
from .theta import LogDensity, ThetaPosterior

LATTICE_LEAVES_OUT = 0.007  # share of a normal outside of a lattice
LEAST_FALL = 5.0  # nats by which the density has fallen at the end of a lattice
LEAST_FALL_OF_LINE = 7.0  # nats: the same of one hyperparameter
MOST_POINTS = 150  # of a lattice
COUNTING_SHARE = 0.01  # of a point whose correction has to be trusted, and of theta near a bound that is reported
CUT_SHARE = 0.05  # of the posterior just beyond a lattice that was stopped, above which that is said
RULES_APART = 0.3  # nats between two rules above which the integration is not to be believed
NEAR_BOUND = 0.5  # sds
LEAST_SHARE = 1e-6  # of a point that is mixed
LIGHT_SHARE = 0.004  # of a point below which its correction is that of its neighbours
MOST_DIFFERENCE = 0.5  # nats by which a correction may differ from that of the nearest point
SMOOTHING = 1e-6  # nats: rounding of corrections
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
    """The posterior with the hyperparameters integrated out.

    Parameters
    ----------
    likelihood, family, y, weights
        The model; ``family`` is a prior with hyperparameters and log p(theta) (flat where it states none).
    method : "auto", "grid", "ccd" or "star"
        "grid": a lattice of up to four hyperparameters that goes on to where the density has fallen by some e^5 to
        e^7, along tails too: some 7, 20, 30 and 60 points where the posterior is nearly normal. "ccd": a central
        composite design, 25 points for four hyperparameters and 45 for six, for posteriors without long tails. "star":
        the mode and two points along each direction, which have means and variances right and no more. "auto": a grid
        for up to three, and for four where one of them has a long tail and rows are at most 20,000.
    evidence : "corrected" or "elbo"
        What weights a point, and whether its marginals are those beyond the Gaussian. Where the correction is not to
        be used it is the elbo, and ``status`` says so.
    mode : Learned, optional
        What ``learn`` found of the same model; default: it is learned first.
    learn_likelihood : bool
        Whether the likelihood's own parameters are integrated over too.
    tol : float
        Relative gap of every fit.
    n_jobs : int, None or Dask client
        Who fits points side by side (``fenchel.tasks``).
    progress : bool
    checkpoint : path, or Finished, optional
        Keeps every fit as it ends; given again, nothing that was finished is fitted again. An interrupted integration
        without one leaves its ``Finished`` on the exception: ``except KeyboardInterrupt as stop: stop.finished``.
    solver : str or Solver
        Of the fits, as in ``infer``.
    hold : sequence of int
        Entries of theta that stay at the mode and are not integrated over.

    Returns
    -------
    Integrated

    Hyperparameters that learning leaves at a bound are held there. Priors are densities on the scale of theta (logs of
    sds): under the default ones of a size the posterior is proper there, also where a variance may vanish; it then has
    a long tail to one side, which the points follow.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.gmrf import iid, stack
    >>> from fenchel.hyperparameters.integration import integrate
    >>> from fenchel.likelihoods import Poisson
    >>> from fenchel.hyperparameters import Normal, WeightVariances, independent
    >>> counts = np.array([2, 0, 4, 1, 9, 3, 2, 6])
    >>> groups = WeightVariances(np.eye(8), log_prior=independent({0: Normal(0.0, 1.0)}))
    >>> found = integrate(Poisson(), groups, counts)
    >>> found.converged, found.method, found.theta.interval().shape
    (True, 'grid', (1, 2))
    """
    choice("integrate", "method", method, ("auto", "grid", "ccd", "star"))
    choice("integrate", "evidence", evidence, ("corrected", "elbo"))
    inner = Evidence(likelihood, family, y, weights=weights, tol=tol, own=learn_likelihood, method=solver)
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
            return _integrated(fitter, family, found, method, {*hold})

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
class FittedDesign(NamedTuple):
    """A design with its fits; ``cut``: the share of the posterior that is expected just beyond one that was stopped."""

    design: ThetaDesign
    points: list[Point]
    cut: float = 0.0


def _integrated(fitter: Fitter, family: Family, mode: Learned, method: str, hold: set[int]) -> Integrated:
    free = [i for i in range(mode.theta.size) if i not in mode.at_bounds and i not in hold]
    d = len(free)
    notes = [f"{fitter.evidence.names[i]} is held at its {side} bound" for i, side in mode.at_bounds.items()]
    if d == 0:
        return _alone(fitter, family, mode, notes)
    if method == "grid" and d > designs.MOST:
        raise problem(
            "integrate", f'method = "grid" and {d} hyperparameters', f"at most {designs.MOST}", 'Use method="ccd".'
        )
    centre = centred(fitter, mode, free, fitter.beyond)
    long = LONG_TAIL if fitter.evidence.likelihood.objective.log_concave else LONG_TAIL_OF_MIXTURES
    tails = [fitter.evidence.names[i] for i, c in zip(free, centre.coordinates.stretch, strict=True) if c > long]
    word = method if method != "auto" else _chosen(d, bool(tails), len(fitter.evidence.targets.y))
    if word == "grid":
        laid = _lattice(fitter, centre)
    else:
        laid = _fitted(fitter, centre, designs.composite(d) if word == "ccd" else designs.star(d))
    beyond, doubt = _trusted(laid, centre, fitter.beyond)
    log_w = _log_weights(laid, centre, beyond)
    through = _through(fitter, centre, laid, beyond)
    total, rule = through.log_total, float(logsumexp(log_w))
    best = centre.points[0].corrected
    known = float(best.log_evidence_se) if beyond and best is not None else 0.0
    w = np.exp(log_w - rule)
    kept = np.flatnonzero(w > LEAST_SHARE)
    notes += _at_bounds(fitter, through)
    doubts = [doubt] if doubt else []
    if abs(total - rule) > RULES_APART:
        apart = f"two rules of integration are {abs(total - rule):.1g} nats apart"
        doubts.append(f"{apart}: the points do not resolve the posterior of theta; state priors of it")
        through.match(laid.design.u, w)
    if laid.cut > CUT_SHARE:
        next_ones = f"the places next to them may hold {min(laid.cut, 1.0):.0%} of the posterior of theta"
        doubts.append(f"the lattice was stopped at {len(laid.points)} points, and {next_ones}: tails are cut off")
    if tails and word == "ccd":
        cure = ': method="grid" does' if d <= designs.MOST else ""
        doubts.append(f"{' and '.join(tails)}: a long tail, which a composite design does not follow{cure}")
    summary = {
        "evidence": "corrected" if beyond else "elbo",
        "log_evidence": total if word == "grid" else rule,
        "error": abs(total - rule) + known,
        "n_fits": fitter.n_fits,
        "method": word,
        "notes": notes,
        "doubts": doubts,
    }
    peak = centre.peak if beyond else mode.theta
    theta = ThetaPosterior(fitter.evidence.names, centre.coordinates.centre, free, through, peak)
    return Integrated([laid.points[k] for k in kept], w[kept] / w[kept].sum(), theta, family, mode, summary)


def _chosen(d: int, tails: bool, rows: int) -> str:
    """A design for d hyperparameters: a lattice for few, and for one more where tails are to be followed."""
    return "grid" if d <= GRID_UP_TO or (d <= GRID_OF_TAILS_UP_TO and tails and rows <= GRID_OF_TAILS_ROWS) else "ccd"


def _alone(fitter: Fitter, family: Family, mode: Learned, notes: list[str]) -> Integrated:
    """Nothing to integrate over: one point."""
    (point,) = fitter.at([mode.theta])
    beyond = fitter.beyond and point.usable
    value = value_of(point, beyond)
    summary: dict[str, Any] = {"evidence": "corrected" if beyond else "elbo", "log_evidence": value, "error": 0.0}
    doubt = doubt_of(point.corrected) if point.corrected is not None else ""
    summary |= {"n_fits": fitter.n_fits, "method": "none", "notes": [*notes, "no hyperparameter to integrate over"]}
    summary["doubts"] = [doubt] if doubt else []
    theta = ThetaPosterior(fitter.evidence.names, mode.theta, [], None)
    return Integrated([point], np.ones(1), theta, family, mode, summary)


def _values(points: Sequence[Point], beyond: bool) -> np.ndarray:
    """The log density at points; where a correction is not there or not trusted, with what the others say of it."""
    plain = np.array([p.plain for p in points])
    if not beyond:
        return plain
    gains, thetas = np.array([p.gain for p in points]), np.array([p.theta for p in points])
    known = np.isfinite(gains)
    if not known.any():
        return plain
    if not known.all():
        gains[~known] = _continued(thetas[known], gains[known], thetas[~known])
    return np.asarray(plain + gains)


def _continued(thetas: np.ndarray, gains: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Corrections at other thetas (m,): those of the nearest, and of a plane through all where there are enough."""
    scale = np.where(np.ptp(thetas, axis=0) > 0.0, np.ptp(thetas, axis=0), 1.0)
    apart = np.linalg.norm((there[:, None] - thetas[None]) / scale, axis=2)
    nearest = gains[np.argmin(apart, axis=1)]
    moving = np.flatnonzero(np.ptp(thetas, axis=0) > 0.0)
    if len(gains) < 2 * moving.size + 3:
        return np.asarray(nearest)
    through = RBFInterpolator(thetas[:, moving] / scale[moving], gains, kernel="linear", degree=1, smoothing=SMOOTHING)
    return np.clip(through(there[:, moving] / scale[moving]), nearest - MOST_DIFFERENCE, nearest + MOST_DIFFERENCE)


def _fitted(fitter: Fitter, centre: Centre, design: ThetaDesign, light: np.ndarray | None = None) -> FittedDesign:
    """Fits at the points of a design within the bounds; ``light``: which of them are not worth a correction."""
    inside = _inside(fitter, centre, design)
    some = ThetaDesign(design.u[inside], design.log_mass[inside])
    plain = False if light is None else light[inside]
    return FittedDesign(some, fitter.at(list(centre.coordinates.theta(some.u)), plain=plain))


def _log_weights(laid: FittedDesign, centre: Centre, beyond: bool) -> np.ndarray:
    """The logs of the shares of points (K,), up to a constant: log p(y)."""
    density = _values(laid.points, beyond) + centre.coordinates.log_jacobian(laid.design.u)
    return np.asarray(laid.design.log_mass + density - designs.log_normal(laid.design.u))


def _shares(laid: FittedDesign, centre: Centre, beyond: bool) -> np.ndarray:
    return np.asarray(softmax(_log_weights(laid, centre, beyond)))


def _settled(fitter: Fitter, centre: Centre, laid: FittedDesign) -> FittedDesign:
    """With the corrections of the points that turned out to have a share worth one."""
    if not fitter.beyond:
        return laid
    share = _shares(laid, centre, True)
    points = [fitter.corrected([p])[0] if w > LIGHT_SHARE else p for p, w in zip(laid.points, share, strict=True)]
    return FittedDesign(laid.design, points)


def _lattice(fitter: Fitter, centre: Centre) -> FittedDesign:
    """A lattice that grows from the centre to where the density is expected to have fallen far enough."""
    d = centre.coordinates.dimension
    places, least = designs.block(d), LEAST_FALL_OF_LINE if d == 1 else LEAST_FALL
    deep = max(least, float(chi2.isf(LATTICE_LEAVES_OUT, d)) / 2)
    light, scale = np.zeros(len(places), dtype=bool), np.ones(fitter.evidence.start.size)
    scale[list(centre.coordinates.free)] = centre.coordinates.scale
    while True:
        laid = _settled(fitter, centre, _fitted(fitter, centre, designs.lattice(places), light))
        fitter.start_near(laid.points, scale)
        beyond = _trusted(laid, centre, fitter.beyond)[0]
        inside = _inside(fitter, centre, designs.lattice(places))
        places, light = places[inside], light[inside]
        values = _values(laid.points, beyond) + centre.coordinates.log_jacobian(laid.design.u)
        edge = designs.edge(places)
        design = designs.lattice(edge)
        expected = _through(fitter, centre, laid, beyond).at_u(design.u, free=True)
        expected = np.maximum(expected, designs.continued(places, values, edge))
        wanted = (values.max() - expected < deep) & _inside(fitter, centre, design)
        if not wanted.any():
            return laid
        share = np.exp(expected - logsumexp(values))[wanted]
        if len(places) + int(wanted.sum()) > MOST_POINTS:
            return laid._replace(cut=float(share.sum()))
        places, light = np.concatenate([places, edge[wanted]]), np.r_[light, share < LIGHT_SHARE]


def _inside(fitter: Fitter, centre: Centre, design: ThetaDesign) -> np.ndarray:
    """Which points are within the bounds of theta."""
    low, high = fitter.evidence.bounds.T
    thetas = centre.coordinates.theta(design.u)
    return np.asarray(((thetas >= low) & (thetas <= high)).all(axis=1))


def _through(fitter: Fitter, centre: Centre, laid: FittedDesign, beyond: bool) -> LogDensity:
    """The interpolated density: through the design and what the widths were read off."""
    points = [*laid.points, *centre.points]
    u = np.concatenate([laid.design.u, centre.coordinates.u(np.array([p.theta for p in centre.points]))])
    return LogDensity(centre.coordinates, u, _values(points, beyond), fitter.evidence.bounds)


def _trusted(laid: FittedDesign, centre: Centre, asked: bool) -> tuple[bool, str]:
    """Whether the correction is used at the points that count; where it is not to be trusted there, a sentence."""
    if not asked:
        return False, ""
    found: dict[int, Point] = {}
    for beyond in (True, False):  # those that count by either evidence
        share = _shares(laid, centre, beyond)
        found |= {
            id(p): p for p, w in zip(laid.points, share, strict=True) if w > COUNTING_SHARE and p.corrected is not None
        }
    corrections = [(p.usable, p.corrected) for p in found.values() if p.corrected is not None]
    for usable, each in corrections:
        if not usable:
            return False, not_used(each.status)
    worst = max((each for _, each in corrections if not each.trusted), key=lambda c: c.log_evidence_se, default=None)
    return True, "" if worst is None else doubt_of(worst)


def _at_bounds(fitter: Fitter, through: LogDensity) -> list[str]:
    """Where the posterior reaches a bound of theta."""
    bounds, out, (thetas, w) = fitter.evidence.bounds, [], through.draws
    for i, name in enumerate(fitter.evidence.names):
        spread = float(np.sqrt(w @ (thetas[:, i] - w @ thetas[:, i]) ** 2))
        near = np.minimum(thetas[:, i] - bounds[i, 0], bounds[i, 1] - thetas[:, i]) < NEAR_BOUND * spread
        if spread > 0.0 and w[near].sum() > COUNTING_SHARE:
            out.append(f"the posterior of {name} reaches a bound of it and is cut off there")
    return out
