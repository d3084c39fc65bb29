"""Starting points of searches for theta: the peaks of a coarse grid over the ratio of signal to noise.

The evidence may have several peaks: a large noise that explains a curve, or a large sd with a small noise. A Gaussian
working model (``working.py``) is evaluated on a grid of the sd of each summand in a row relative to that of the noise,
with ranges and correlations at the start, smaller and larger. One summand is varied at a time, from several points. The
noise is optimal for each ratio, and the parameters of the likelihood are optimal given the working model's distribution
of eta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from ..linalg.arrays import to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..priors.predictors import LatentPredictors
from ..solvers.initial_point import is_enough
from ..solvers.row_steps import common_level
from .base import Evaluated, Summand
from .working import NODE_WEIGHTS, NODES, WorkingModel, working_rows

if TYPE_CHECKING:
    from .evidence import Evidence

LEVELS = np.arange(-2.5, 6.0)  # log of the sd of a summand in a row relative to that of the noise
_SHIFTS = (-3.0, -1.5, 1.5)  # log units by which ranges and correlations are shifted together
_ALONE_BY = 1.5  # log units by which one of them is shifted against the others
_MOST_ALONE = 4  # number of such entries up to which that is done
_SHIFT_GAIN = 2.0  # nats that such a shift must gain
_TOGETHER = (0, 4, 6)  # indices in LEVELS at which all summands begin together
_ALONE = 5  # index at which one summand begins, with the others at the lowest level
_DOUBT = 5.0  # nats: error of the working model at a peak
_ROW_DOUBT = 0.05  # nats per row: the same
_WITHIN = 4.0  # nats below the best start up to which another peak is searched, too
_ROUGHLY = 0.01  # nats: gap of fits that compare starts
_MOST_PEAKS = 3  # number of peaks that are evaluated
_SAME = 1.0  # log units below which starts count as equal
_SEEN = 2  # index in LEVELS from which the data determine a summand
_SWEEPS = 3  # sweeps over the summands, each optimised given the others
_MOST_LATENTS = 2_000  # latents above which the grid would be too expensive
_FEW_LATENTS = 60  # the same with many rows, where there is almost always one peak
_MOST_ENTRIES = 20_000  # entries of the design of the working model
_FEW_ROWS = 100  # rows that are always used
_WIDE = 32.0  # prior variance of eta for the working data, relative to that of the summands at the start
_OWN_SEARCH = {"maxiter": 4, "ftol": 1e-2}  # search for the parameters of the likelihood
_MOVED = 0.7  # log units of change of the noise from which they are searched
_SCALES = (-2.0, 2.0)  # bounds of the log factor by which eta is scaled with them
_OWN_REACH = 4.0  # log units by which one of them may change

Place = tuple[tuple[int, int], ...]  # (shape, level) of each summand


@dataclass(frozen=True)
class StartingPoint:
    """A theta with its values under the working model, in nats."""

    theta: np.ndarray
    value: float
    gain: float  # over the best place with ranges and correlations at the start


@dataclass(frozen=True)
class Shape:
    """A summand with one shape: its covariance in units of the noise, and the shift of theta."""

    M: np.ndarray
    signal: float  # log of its sd in a row, at the sizes of the start, relative to that of the noise
    shift: np.ndarray


def beginnings(evidence: Evidence, first: np.ndarray) -> list[np.ndarray | Evaluated]:
    """The starts of searches for theta, the best first; almost always there is one.

    The evidence is evaluated at peaks of the working model, and at ``first``, the current values, which may be better
    if the rows are far from Gaussian. Of several peaks those with nearly as much evidence are searched, too, and those
    at which other ranges and correlations gain much: the maximum near them may be higher.
    """
    if evidence.is_large:
        first = _by_moments(evidence, first)
    points = starting_points(evidence, _DOUBT + _ROW_DOUBT * len(evidence.targets.y))
    if all(_apart(point.theta, first) < _SAME for point in points):
        return [first]
    each = [(point, _reached(evidence, point.theta, None)) for point in points]
    peaks = [(point, result) for point, result in each if result is not None]
    best = max((result for _, result in peaks), key=lambda result: result.value, default=None)
    here = _reached(evidence, first, best)
    if here is not None and (best is None or best.value < here.value):
        best = here
    if best is None:
        return [first]
    others = [
        result
        for point, result in peaks
        if point.gain > _DOUBT or (len(peaks) > 1 and result.value > best.value - _WITHIN)
    ]
    return [best, *(result for result in others if _apart(result.theta, best.theta) >= _SAME)]


def _by_moments(evidence: Evidence, first: np.ndarray) -> np.ndarray:
    """``first``, or the family's start by moments of the rows, for rows that determine every weight."""
    likelihood, n = evidence.likelihood, len(evidence.targets.y)
    if likelihood.n_predictors > 1 or first.size > evidence.n_family:
        return first
    predictors = evidence.family.at(first).bind(n, 1, False)
    if predictors.n_weights is not None and is_enough(n, predictors.n_weights):
        return first
    rows, mean = evidence.targets.rows_of(likelihood), to_numpy(predictors.mt)
    at, weight = mean + common_level(likelihood, rows, mean), to_numpy(rows["weight"])
    slope, bend = (weight * to_numpy(x)[:, 0] for x in likelihood.derivatives(at, rows)[1:])
    if not bend.sum() > 0.0:
        return first
    theta = evidence.family.start_by_moments(-slope, bend)
    return first if theta is None or not np.isfinite(theta).all() else theta


def _apart(theta: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(theta - other).max(initial=0.0))


def _reached(evidence: Evidence, theta: np.ndarray, near: Evaluated | None) -> Evaluated | None:
    """The evidence at theta, roughly if a fit ``near`` it is known; None if it overflows."""
    evidence.begin(None if near is None else near.solution)
    evidence.allowed_gap, evidence.limit = _ROUGHLY, None
    try:
        value, gradient = evidence(theta)
    except ValueError:  # beyond double precision
        return None
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return None
    return Evaluated(value, theta, gradient, evidence.solution, evidence.prior)


def starting_points(evidence: Evidence, within: float) -> list[StartingPoint]:
    """The peaks of the grid of an evidence, the best first, and down to ``within`` nats below it.

    The list is empty if the family does not know its summands, rows have several predictors, or there are many latents.
    """
    if evidence.likelihood.n_predictors > 1 or not evidence.n_family:
        return []
    summands = evidence.family.summands()
    if not summands:
        return []
    predictors = evidence.family.at(evidence.start[: evidence.n_family]).bind(len(evidence.targets.y), 1, False)
    most = _FEW_LATENTS if evidence.is_large else _MOST_LATENTS
    if not isinstance(predictors, LatentPredictors) or predictors.latents[0].n > most:
        return []
    with np.errstate(all="ignore"):
        try:
            return StartingGrid(evidence, predictors, summands).peaks(within)
        except (NotPositiveDefinite, np.linalg.LinAlgError, ValueError):  # beyond double precision: no grid
            return []


class StartingGrid:
    """The working model of an evidence on its grid."""

    def __init__(self, evidence: Evidence, predictors: LatentPredictors, summands: Sequence[Summand]) -> None:
        self.evidence, self.summands = evidence, summands
        self.first = evidence.start[: evidence.n_family]
        self.keep = _kept(*predictors.designs[0].shape)
        everyone = self.keep.size == predictors.n_observations
        self.likelihood = evidence.likelihood if everyone else evidence.likelihood.take(self.keep)
        self.rows = {key: x[self.keep] for key, x in evidence.targets.rows_of(evidence.likelihood).items()}
        here = self._seen(predictors)
        mean = to_numpy(here.mt)[:, 0]
        self.working = working_rows(self.likelihood, self.rows, mean, _WIDE * self._typical_variance(here))
        noisy = evidence.start.size > evidence.n_family
        self.model = WorkingModel(self.working, here, [part.latents for part in self.summands], noisy)
        self.shapes = [self._shapes(j, here) for j in range(len(self.summands))]
        self.known: dict[Place, tuple[float, np.ndarray, float]] = {}  # value, theta of the family, log phi

    def _seen(self, predictors: LatentPredictors) -> LatentPredictors:
        return predictors if self.keep.size == predictors.n_observations else predictors.restrict(self.keep)

    def _at(self, theta: np.ndarray) -> LatentPredictors:
        """The prior at theta, seen by the rows of the working model."""
        predictors = self.evidence.family.at(theta).bind(len(self.evidence.targets.y), 1, False)
        assert isinstance(predictors, LatentPredictors)
        return self._seen(predictors)

    def _typical_variance(self, predictors: LatentPredictors) -> float:
        """Typical prior variance of eta without fixed effects, over the rows that a summand affects."""
        W = to_numpy(predictors.designs[0].toarray())
        G = to_numpy(predictors.latents[0].covariance_times(W.T))
        each = [np.einsum("nl,ln->n", W[:, part.latents], G[part.latents]) for part in self.summands]
        total = np.sum(each, axis=0)
        if not (total > 0.0).any():
            raise ValueError("no summand reaches a row")
        return float(np.median(total[total > 0.0]))

    def _shapes(self, j: int, here: LatentPredictors) -> list[Shape]:
        """Summand j with its current shape, and with its ranges and correlations shifted."""
        entries, low, high = list(self.summands[j].shapes), *self.evidence.family.bounds.T
        out = [self._shape(j, here, np.zeros(self.first.size))]
        for by in _moves(len(entries)):
            shift = np.zeros(self.first.size)
            shift[entries] = np.clip(self.first[entries] + by, low[entries], high[entries]) - self.first[entries]
            out.append(self._shape(j, self._at(self.first + shift), shift))
        return out

    def _shape(self, j: int, predictors: LatentPredictors, shift: np.ndarray) -> Shape:
        M = self.model.covariance(predictors, j)
        return Shape(M, self.model.signal(M), shift)

    # -- the grid ------------------------------------------------------------------------------------
    def evaluate(self, places: list[Place]) -> None:
        """Evaluate the working model at places and store the results in ``known``."""
        new = [place for place in places if place not in self.known]
        if not new:
            return
        shapes = [[self.shapes[j][shape] for j, (shape, _) in enumerate(place)] for place in new]
        levels = np.array([[LEVELS[level] for _, level in place] for place in new])
        ratios = levels - np.array([[shape.signal for shape in each] for each in shapes])
        result = self.model.evaluate([[shape.M for shape in each] for each in shapes], ratios)
        for place, each, ratio, (value, log_phi) in zip(new, shapes, ratios, result, strict=True):
            theta = self._theta(each, ratio + 0.5 * log_phi)
            moved = sum(shape > 0 for shape, _ in place)
            value += self.evidence.family.log_prior(theta)[0] - _SHIFT_GAIN * moved
            self.known[place] = value, theta, log_phi

    def _theta(self, shapes: list[Shape], log_sd: np.ndarray) -> np.ndarray:
        """theta of the family for the shapes and the log sds of the summands relative to the start."""
        theta = self.first.copy()
        for part, shape, t in zip(self.summands, shapes, log_sd, strict=True):
            theta += shape.shift + t * part.size
        return np.clip(theta, *self.evidence.family.bounds.T)

    def value(self, place: Place) -> float:
        """The value of a place that has been evaluated."""
        return self.known[place][0]

    def _options(self, place: Place, j: int) -> list[Place]:
        """The places that differ only in summand j."""
        each = [(shape, level) for shape in range(len(self.shapes[j])) for level in range(LEVELS.size)]
        return [(*place[:j], option, *place[j + 1 :]) for option in each]

    def climb(self, place: Place) -> Place:
        """Optimise each summand given the others, in turn."""
        for _ in range(_SWEEPS):
            before = place
            for j in range(len(self.summands)):
                options = self._options(place, j)
                self.evaluate(options)
                place = max(options, key=self.value)
            if place == before:
                break
        return place

    def peaks(self, within: float) -> list[StartingPoint]:
        """Places that are best along every summand, or along the levels of one summand from the best place."""
        J = len(self.summands)
        begin = [((0, level),) * J for level in _TOGETHER]
        if J > 1:
            begin += [tuple((0, _ALONE if i == j else 0) for i in range(J)) for j in range(J)]
        tops = {self.climb(place) for place in begin}
        best = max(tops, key=self.value)
        for j in range(J):
            tops |= self._along(best, j)
        if self.keep.size < len(self.evidence.targets.y):  # a sample may miss a summand
            tops = {top for top in tops if all(level >= _SEEN for _, level in top)}
        lowest = self.value(best) - within
        ranked = sorted((top for top in tops if self.value(top) >= lowest), key=self.value, reverse=True)
        return [self._point(top, exactly=len(ranked) > 1) for top in ranked[:_MOST_PEAKS]]

    def _along(self, place: Place, j: int) -> set[Place]:
        """Peaks along the levels of one summand, with the best shape at each level."""
        options = self._options(place, j)
        self.evaluate(options)
        rows = np.array([self.value(option) for option in options]).reshape(-1, LEVELS.size)
        profile, shape = rows.max(axis=0), rows.argmax(axis=0)
        padded = np.concatenate([[-np.inf], profile, [-np.inf]])
        inner = np.flatnonzero((profile > padded[:-2]) & (profile >= padded[2:]))
        return {(*place[:j], (int(shape[k]), int(k)), *place[j + 1 :]) for k in inner}

    # -- theta ---------------------------------------------------------------------------------------
    def _point(self, place: Place, exactly: bool) -> StartingPoint:
        """The theta of a place, with the parameters of the likelihood; ``exactly`` if it will be compared.

        A summand without an effect starts at a level with a steep slope, so that a search does not end on the way to 0.
        """
        within_sight = tuple((shape, max(level, _SEEN)) for shape, level in place)
        self.evaluate([within_sight])
        _, theta, log_phi = self.known[within_sight]
        own = self.evidence.start[self.evidence.n_family :]
        if own.size and (exactly or abs(log_phi) > _MOVED):
            log_scale, own = self._own(theta, log_phi, own)
            theta = theta + log_scale * np.sum([part.size for part in self.summands], axis=0)
            theta = np.clip(theta, *self.evidence.family.bounds.T)
        unmoved = max(value for at, (value, _, _) in self.known.items() if not any(shape for shape, _ in at))
        value = self.value(place)
        return StartingPoint(np.concatenate([theta, own]), value, value - unmoved)

    def _own(self, theta: np.ndarray, log_phi: float, own: np.ndarray) -> tuple[float, np.ndarray]:
        """The best parameters of the likelihood under the working model's distribution of eta, and the scale of eta.

        If eta is in units of the noise (the log hazard of a Weibull time), less noise means a larger eta. Scaling eta
        about its prior mean together with its prior does not change the divergence between posterior and prior, so that
        the best scale depends on the rows only.
        """
        predictors, lam = self._at(theta), self.working.lam[:, None] * np.exp(-log_phi)
        factor, mean = predictors.at(lam), to_numpy(predictors.mt)
        shift = to_numpy(factor.apply(lam * (self.working.y[:, None] - mean)))
        variance = to_numpy(factor.variance)
        away = shift + np.sqrt(variance) * NODES
        y, weight = self.evidence.targets.y[self.keep], to_numpy(self.rows["weight"])
        near = np.stack([own - _OWN_REACH, own + _OWN_REACH], axis=1)
        bounds = np.clip(near, *self.evidence.bounds[self.evidence.n_family :].T[:, :, None])

        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            """-E[log p(y|eta)] - log p(own), averaged over rows, and its gradient."""
            likelihood, scaled = self.likelihood.with_theta(x[1:]), np.exp(x[0]) * away
            rows = {**likelihood.prepare(y), "weight": weight}
            psi, slope, _ = (to_numpy(each) for each in likelihood.derivatives(mean + scaled, rows))
            along = weight @ ((slope * scaled) @ NODE_WEIGHTS)
            rho = np.exp(2.0 * x[0]) * variance
            log_prior, pull = self.likelihood.log_prior(x[1:])
            rise = likelihood.theta_gradient(mean + np.exp(x[0]) * shift, rho, rows) + pull
            value = float(weight @ (psi @ NODE_WEIGHTS)) - log_prior
            return value / total, np.concatenate([[along], -rise]) / total

        # scipy rather than ``Search``: four steps at fixed eta, without fits
        x, total = np.concatenate([[0.0], own]), max(1.0, float(weight.sum()))
        result = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=[_SCALES, *bounds], options=_OWN_SEARCH).x
        return float(result[0]), result[1:]


def _moves(n_entries: int) -> list[np.ndarray]:
    """Shifts of entries: all of them together, and one against the others (a range of each column)."""
    if not n_entries:
        return []
    alone = 1.0 - 2.0 * np.eye(n_entries) if 1 < n_entries <= _MOST_ALONE else np.empty((0, n_entries))
    return [np.full(n_entries, by) for by in _SHIFTS] + list(_ALONE_BY * alone)


def _kept(n_rows: int, n_latents: int) -> np.ndarray:
    """The rows of the working model: all, or a random sample with a fixed seed that keeps its design small."""
    most = max(_FEW_ROWS, _MOST_ENTRIES // max(1, n_latents))
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))
