"""Few rows of labels under a kernel: where a search for theta begins.

    P(theta) = max over the sites (beta, lam) of -1/2 (log|B| - lam' rho + beta' K beta) - sum f(h, rho)
    dP/dtheta = sum_ij G_ij dK_ij/dtheta,   G = 1/2 (beta beta' - Lam^1/2 B^-1 Lam^1/2)

The same coupled Newton method as that of ``solvers/exact.py``, on plain arrays: no prior, no problem and no trace is
made at each theta, which take longer than the linear algebra of a hundred rows. It only says where a search with
certified fits begins, and where the first of these fits begins (``quick_start`` of ``gaussian_rows.py``). What it
cannot do (a flat row, rounding, a rise that fails) is left to that search, from the start that it was
given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg.blas import dsymv
from scipy.linalg.lapack import dpotri

from .. import gates
from ..likelihoods.bounds import Loss
from ..linalg import dense
from ..linalg.arrays import Array, is_numpy, to_numpy
from ..linalg.krylov import conjugate_gradients
from .kernel import KernelCovariance

if TYPE_CHECKING:
    from .evidence import Evidence

MOST_NEWTON = 20  # steps at one theta
SLOPE_SHARE = 0.01  # of the slope: the error that a fit may leave in it
LOOSEST = 1e-2  # nats that a fit may leave
FINEST = 1e-10  # nats that are asked of a fit
FLOOR = 0.1  # of each lam that a step leaves at least
SHORTEST = 0.1  # a share of Newton's step
LOOSE_SYSTEM = 0.1  # relative residual of Newton's system
ROUNDING = 1e-11  # of |P|: a fall that is none
SOLVERS = ("newton", "coupled newton")  # that a user did not ask for
WEAK = 1e-6  # lam K_nn that a site has at least, lest rounding show: what P falls short by is the square of it
FLAT_DIRECTION = 0.05  # of the longest step: directions less explored are not extrapolated
LONGEST_SHIFT = 2.0  # of a fit by extrapolation, in log rho or log lam


class SitePlace(NamedTuple):
    """What was found at a theta: P with its gradient."""

    theta: np.ndarray
    value: float
    gradient: np.ndarray


class SitePoint:
    """q at the sites (b, lam) or (beta, lam) (N,) under K: P, and the residuals; P is -inf beyond double precision."""

    def __init__(self, owner: SiteRows, K: Any, b: np.ndarray | None, beta: np.ndarray, lam: np.ndarray) -> None:
        lam = np.maximum(lam, WEAK / K.diagonal())
        self.value, self.lam, self.root = -np.inf, lam, np.sqrt(lam)
        B = K * self.root
        B *= self.root[:, None]
        B.reshape(-1)[:: len(lam) + 1] += 1.0
        try:
            L = dense.cholesky(B)
        except dense.NotPositiveDefinite:
            return
        log_det = dense.log_det(L)
        self.Binv: Any = dpotri(L.T, lower=0, overwrite_c=1)[0].T  # its lower triangle
        self.rho: Any = (1.0 - self.Binv.diagonal()) / lam
        if b is None:
            self.h = owner.mt - K @ beta
        else:  # h = mt + Vt (b - lam mt),  Vt = Lam^-1/2 (I - B^-1) Lam^-1/2
            pull = (b - lam * owner.mt) / self.root
            self.h = owner.mt + (pull - dsymv(1.0, self.Binv.T, pull)) / self.root
            beta = lam * self.h - b
        self.beta, self.loss = beta, owner.loss(self.h, self.rho)
        # the residuals, and what they miss by the natural gradient
        self.left = np.concatenate([beta - self.loss.alpha, 0.5 * (lam - self.loss.lam)])
        fit = lam @ self.rho - beta @ (owner.mt - self.h) - log_det
        value = 0.5 * float(fit) - float(to_numpy(self.loss.value).sum())
        self.value = value if math.isfinite(value) else -np.inf

    def move(self, x: np.ndarray, dbeta: np.ndarray, dlam: np.ndarray) -> None:
        """To the end of a short Newton step without another factorisation: B^-1 to first order, P to second."""
        n, Binv, lam = len(dlam), dense.symmetrised(self.Binv), np.maximum(self.lam + dlam, FLOOR * self.lam)
        self.Binv = Binv + (Binv * (lam / self.lam - 1.0)) @ Binv  # still in units of ``root``
        self.value += 0.5 * float(self.left @ x)
        self.h, self.beta, self.lam = self.h + x[:n], self.beta + dbeta, lam
        self.rho = np.maximum(self.rho + x[n:], FLOOR * self.rho)
        self.loss = self.loss._replace(alpha=self.beta, lam=lam)

    def products(self) -> Callable[[Any], Any]:
        """(u, v) -> (Vt u, 2 (Vt o Vt) v), Vt being -Lam^-1/2 B^-1 Lam^-1/2 off its diagonal rho."""
        n, rho, scale = len(self.rho), self.rho, 1.0 / self.root
        A = np.array(self.Binv, order="C")
        A.reshape(-1)[:: n + 1] = 0.0
        squares, scale = (A * A).T, np.concatenate([scale, scale * scale])
        diagonal, outer = np.concatenate([rho, 2.0 * rho * rho]), np.concatenate([-scale[:n], 2.0 * scale[n:]])

        def solve(v: Any) -> Any:
            x = scale * v
            return diagonal * v + outer * np.concatenate([dsymv(1.0, A.T, x[:n]), dsymv(1.0, squares, x[n:])])

        return solve


class SiteRows:
    """P(theta) + log p(theta), its gradient, and the marginals there; each fit starts where the last ones point.

    Rows of weight 0 are left out.

    Parameters
    ----------
    evidence : Evidence
        Its family is a ``KernelCovariance``; its bounds and its prior of theta are taken.
    """

    def __init__(self, evidence: Evidence, family: KernelCovariance) -> None:
        self.evidence, self.bound = evidence, evidence.likelihood.objective
        self.all_rows = evidence.targets.rows_of(evidence.likelihood)
        N, self.seen = len(evidence.targets.y), np.flatnonzero(to_numpy(self.all_rows["weight"]))
        self.rows = {name: x[self.seen] for name, x in self.all_rows.items()}
        self.weight = to_numpy(self.rows["weight"])
        self.weighted = bool(np.any(self.weight != 1.0))
        prior = family.at(evidence.start)
        self.mt = to_numpy(prior.bind(N, 1, False).mt)[self.seen, 0]
        self.family = family if self.seen.size == N else family.at_rows(self.seen)
        family._known = None  # its matrix leaves before others are made
        del prior
        self.known: list[tuple[np.ndarray, np.ndarray]] = []  # theta, and what names the fit there (``_names``)
        self.allowed = LOOSEST  # nats that the next fit may leave
        self.n_evaluations = self.n_newton = 0

    def loss(self, h: Array, rho: Array) -> Loss:
        """f with its slopes and curvature, weighted."""
        out = self.bound.loss(h[:, None], rho[:, None], self.rows)
        return Loss(*(self.weight * each for each in out)) if self.weighted else out

    def _names(self, point: SitePoint) -> np.ndarray:
        """What changes smoothly with theta (2 N,): h and log rho, of a convex bound b and log lam of its sites.

        h and rho are those of the latents, and hardly depend on how a likelihood turns them into sites. Where a convex
        bound has hardly any lam left, it falls by several orders as rho moves by a tenth.
        """
        if not self.bound.convex:
            return np.concatenate([point.h, np.log(point.rho)])
        lam = np.maximum(point.loss.lam, FLOOR * point.lam)
        return np.concatenate([lam * point.h - point.loss.alpha, np.log(lam)])

    def _foreseen(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """h and rho, or b and lam, on the plane through the last fits."""
        (here, names), n = self.known[-1], len(self.mt)
        if len(self.known) > 1:
            steps = np.array([there - here for there, _ in self.known[:-1]])
            gram = steps @ steps.T
            gram.flat[:: len(gram) + 1] += FLAT_DIRECTION**2 * gram.trace()
            shares = np.linalg.solve(gram, steps @ (theta - here))
            shift = shares @ np.array([other - names for _, other in self.known[:-1]])
            np.clip(shift[n:], -LONGEST_SHIFT, LONGEST_SHIFT, out=shift[n:])
            names = names + shift
        return names[:n], np.exp(names[n:])

    def _start(self, theta: np.ndarray, K: Array) -> tuple[np.ndarray, np.ndarray]:
        """b and lam where a fit begins: as foreseen, or by the slopes at the prior mean."""
        if not self.known:
            return self._sites(self.mt, np.minimum(np.diagonal(K), 1.0))
        found = self._foreseen(theta)
        return found if self.bound.convex else self._sites(*found)

    def _sites(self, h: np.ndarray, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """b and lam of the sites whose slopes are those at h and rho."""
        loss: Any = self.loss(h, rho)
        return loss.lam * h - loss.alpha, loss.lam

    def _climbed(self, K: Array, point: SitePoint) -> SitePoint:
        """From a point to where no more than ``allowed`` is missing; ``ValueError`` where it fails."""
        for _ in range(MOST_NEWTON):
            if not math.isfinite(point.value):
                break
            solve = point.products()
            natural = solve(point.left)
            missing = 0.5 * float(point.left @ natural)
            if missing <= self.allowed:
                return point
            self.n_newton += 1
            x, dbeta, dlam = self._direction(point, solve, natural)
            if max(LOOSE_SYSTEM**2 * missing, missing**1.5) <= self.allowed:
                point.move(x, dbeta, dlam)
                return point
            before, point = point, self._searched(K, point, dbeta, dlam)
            if not point.value >= before.value - ROUNDING * abs(before.value):
                break
        raise ValueError("few rows are left to the search")

    def _direction(
        self, point: SitePoint, solve: Callable[[Any], Any], natural: np.ndarray
    ) -> tuple[Any, Any, np.ndarray]:
        """Newton's step in (h, rho), beta and lam: the system of ``priors/newton_systems.py``."""
        n, loss = len(point.h), point.loss
        bend = loss.hh - point.lam

        def remainder(x: Any) -> Any:
            dh, drho = x[:n], x[n:]
            return np.concatenate([bend * dh + loss.hr * drho, loss.hr * dh + loss.rr * drho])

        x, Fx, left, _ = conjugate_gradients(solve, remainder, point.left, LOOSE_SYSTEM, 50, natural)
        image = point.left - Fx - left
        return x, point.lam * x[:n] - image[:n], -2.0 * image[n:]

    def _searched(self, K: Array, point: SitePoint, dbeta: np.ndarray, dlam: np.ndarray) -> SitePoint:
        """Newton's step, shortened until P rises."""
        t = 1.0
        while True:
            lam = np.maximum(point.lam + t * dlam, FLOOR * point.lam)
            trial = SitePoint(self, K, None, point.beta + t * dbeta, lam)
            if trial.value >= point.value or t < SHORTEST:
                return trial
            t *= 0.5

    def _fit(self, theta: np.ndarray, K: Array) -> SitePoint:
        """The fit at theta."""
        b, lam = self._start(theta, K)
        point = self._climbed(K, SitePoint(self, K, b, lam, lam))
        others = [each for each in self.known if (each[0] != theta).any()]
        self.known = [*others[-theta.size :], (np.array(theta), self._names(point))]
        return point

    def at(self, theta: np.ndarray) -> SitePlace:
        """Evaluate; ``ValueError`` where that fails."""
        K: Any = self.family.matrix(theta)
        self.n_evaluations += 1
        point = self._fit(theta, K)
        pull = point.beta / point.root
        G = pull[:, None] * pull
        G -= dense.symmetrised(point.Binv)
        G *= point.root
        G *= (0.5 * point.root)[:, None]
        of_prior, pull = self.evidence.log_prior(theta)
        gradient = self.family.contracted(theta, G, K) + pull
        steep = self.evidence.largest_slope(theta, gradient)
        self.allowed = min(LOOSEST, max(FINEST, (SLOPE_SHARE * steep) ** 2))
        return SitePlace(theta, point.value + of_prior, gradient)

    def coordinates(self, theta: np.ndarray) -> np.ndarray:
        """Where a certified fit at theta begins, as ``Problem.start_from`` takes it: so near that no step is left."""
        self.allowed = 0.1 * FINEST  # the certificate is coarser than this measure
        point = self._fit(theta, self.family.matrix(theta))
        N = len(self.evidence.targets.y)
        h, rho = np.zeros((N, 1)), np.ones((N, 1))
        h[self.seen, 0], rho[self.seen, 0] = point.h, point.rho
        if self.bound.convex:
            dual = self.bound.dual
            return to_numpy(dual.maximiser(h, rho, dual.start(self.all_rows, 1.0), self.all_rows))
        return np.concatenate([h, np.log(rho)], axis=1)


def site_rows(evidence: Evidence) -> SiteRows | None:
    """Of few rows of labels with one predictor under a kernel; None of others."""
    family, likelihood = evidence.family, evidence.likelihood
    bound = likelihood.objective
    few = len(evidence.targets.y) <= gates.SITE_ROWS and evidence.start.size == evidence.n_family > 0
    if not (few and type(family) is KernelCovariance and family.design is None and is_numpy(family.X)):
        return None
    one = (
        likelihood.support == "levels"
        and likelihood.n_predictors == 1
        and bound.layout == (0,)
        and bound.over_contrasts is None
    )
    if not (one and bound.log_concave and not bound.conjugate and evidence.solver.name in SOLVERS):
        return None
    rows = evidence.targets.rows_of(likelihood)
    seen = to_numpy(rows["weight"]) > 0.0
    says = bool(seen.any()) and not bool(np.any(to_numpy(bound.is_flat(rows))[seen]))
    return SiteRows(evidence, family) if says else None
