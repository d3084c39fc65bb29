"""The upper bound for a softmax: one site for each observation, over all of its predictors.

    gt_n(eta) = log p(y_n | eta) + alpha_n' t + t' Lam_n t / 2,     t = eta - h_n

A site has one exponent for all its directions, so that its curvature should be proportional to its precision under q.
Both the sites of the fit and proportional ones are tried. With ``effort="high"`` q is refitted by the moments of the
tilted densities as long as the bound decreases, as in ``refits.py`` with matrices instead of numbers:

    Lam_n += d w_n (Vt_n^-1 - V_n^-1),        r_n += d w_n (Vt_n^-1 mt_n - V_n^-1 h_n),        r = Lam h - alpha
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import problem
from ..corrections.sites import counted
from ..likelihoods.base import Likelihood, Rows, slice_rows
from ..linalg import dense
from ..linalg.arrays import to_numpy
from ..linalg.dense import NotPositiveDefinite
from .blocks import BlockCone
from .exponents import SiteBound, bound_sites
from .lattice_moments import MOST_PREDICTORS, LatticeMoments
from .margins import EPS
from .tilted_moments import TiltedMoments

_PREDICTOR_ROWS = 3000  # most predictors of all observations, whose covariance is dense
_ROUNDINGS = 8.0  # allowance for rounding, in root mean squares
_FIXED_POINT = 30  # most iterations for proportional curvatures
_SETTLED = 1e-4  # relative change of variances at which these end
_REFITS = 6  # most refits of q
_DAMPING = 0.5  # damping of the first refit

Sites = tuple[np.ndarray, np.ndarray]  # alpha (n, C) and Lam (n, C, C)


def softmax_bound(solution: Any, effort: str) -> tuple[float, SiteBound, np.ndarray]:
    """The upper bound on log p(y), the bound of its sites, and the indices of the observations with a site."""
    post, likelihood = solution.posterior, solution.likelihood
    seen, C = np.flatnonzero(to_numpy(solution._rows["weight"]) > 0.0), likelihood.n_predictors
    if C > MOST_PREDICTORS or seen.size * C > _PREDICTOR_ROWS:
        got = f"{likelihood.name} has {C} predictors an observation, {seen.size} observed"
        raise problem("evidence_bounds", got, f"at most {MOST_PREDICTORS} predictors, and {_PREDICTOR_ROWS} in all")
    alpha, lam = to_numpy(post.alpha)[seen], to_numpy(post.lam)[seen]
    Lam = lam[:, :, None] * np.eye(C) if post.curvatures is None else to_numpy(post.curvatures)[seen]
    rows = {key: to_numpy(value)[seen] for key, value in solution._rows.items()}
    mt, S = to_numpy(post.predictors.mt)[seen], _prior_covariance(post.predictors, seen)
    asked = _Softmax(likelihood, rows, counted(solution)[seen], mt, S, solution.elbo)
    best = min((asked.bound((alpha, curvature)) for curvature in (Lam, proportional_curvature(S, Lam))), key=_value)
    if effort == "high":
        best = asked.refitted(best)
    return best.value, best.bound, seen


def _prior_covariance(predictors: Any, seen: np.ndarray) -> np.ndarray:
    """Prior covariance S (n C, n C) of the predictors of some observations, observation by observation."""
    whole = [to_numpy(block) for block in predictors.at(0.0 * predictors.mt).covariance()]
    n, C = predictors.n_observations, predictors.n_predictors
    if len(whole) == 1:
        S = whole[0].reshape(n, C, n, C)
    else:
        S = np.zeros((n, C, n, C))
        for c, block in enumerate(whole):
            S[:, c, :, c] = block
    return S[np.ix_(seen, np.arange(C), seen, np.arange(C))].reshape(seen.size * C, seen.size * C)


@dataclass(frozen=True)
class _BoundedSoftmax:
    """A Gaussian q given by its sites, and its bound."""

    q: Sites
    sites: SoftmaxSites
    bound: SiteBound
    value: float


def _value(bounded: _BoundedSoftmax) -> float:
    return bounded.value


@dataclass(frozen=True)
class _Softmax:
    """Observed rows of a softmax with the prior of their predictors: mt (n, C) and S (n C, n C)."""

    likelihood: Likelihood
    rows: Rows
    times: np.ndarray
    mt: np.ndarray
    S: np.ndarray
    elbo: float

    def bound(self, q: Sites) -> _BoundedSoftmax:
        sites, cone, log_Z, lost = softmax_sites(self.likelihood, self.rows, self.times, self.mt, self.S, q)
        bound = bound_sites(sites, cone, self.elbo - log_Z)
        return _BoundedSoftmax(q, sites, bound, log_Z + lost + bound.value)

    def refitted(self, best: _BoundedSoftmax) -> _BoundedSoftmax:
        """Improve the bound by refits of q, as long as it decreases."""
        damping = _DAMPING
        for _ in range(_REFITS):
            if not np.isfinite(best.value):
                break
            try:
                candidate = self.bound(self._step(best, damping))
            except (NotPositiveDefinite, np.linalg.LinAlgError):
                candidate = best
            if candidate.value < best.value:
                best = candidate
            else:
                damping /= 2.0
        return best

    def _step(self, bounded: _BoundedSoftmax, d: float) -> Sites:
        (alpha, Lam), sites, w = bounded.q, bounded.sites, bounded.bound.w[:, None, None]
        moments = TiltedMoments(sites) if sites.dimension <= 3 else LatticeMoments(sites)
        moments.place(1.0 / bounded.bound.w)
        centre, spread = moments.shape(1.0 / bounded.bound.w)
        A, h = sites.A, sites.h
        before = np.linalg.inv(A @ np.swapaxes(A, 1, 2))
        after = np.linalg.inv(A @ spread @ np.swapaxes(A, 1, 2))
        mean = h + np.einsum("nij,nj->ni", A, centre)
        r = np.einsum("nij,nj->ni", Lam, h) - alpha
        r += d * w[:, :, 0] * (np.einsum("nij,nj->ni", after, mean) - np.einsum("nij,nj->ni", before, h))
        Lam = Lam + d * w * (after - before)
        value, vectors = np.linalg.eigh((Lam + np.swapaxes(Lam, 1, 2)) / 2.0)
        Lam = np.einsum("nij,nj,nkj->nik", vectors, np.maximum(value, 0.0), vectors)
        return self._slopes(r, Lam), Lam

    def _slopes(self, r: np.ndarray, Lam: np.ndarray) -> np.ndarray:
        """alpha = Lam h - r at the mean h of q with these natural parameters."""
        n, C = r.shape
        pulled = r - np.einsum("nij,nj->ni", Lam, self.mt)
        LS = np.einsum("nij,njk->nik", Lam, self.S.reshape(n, C, n * C)).reshape(n * C, n * C)
        # h - mt = S x,  x = r - Lam mt - Lam S x
        x = np.linalg.solve(np.eye(n * C) + LS, pulled.ravel())
        return -x.reshape(n, C)


@dataclass(frozen=True)
class SoftmaxSites:
    """The observations of a softmax: gt of the C predictors of each, eta = h + A u, u standard normal.

    h, alpha (n, C); A the root of the covariance of eta under q and Lam (n, C, C); ``times`` (n,) the weights.
    """

    likelihood: Likelihood
    rows: Rows
    times: np.ndarray
    h: np.ndarray
    alpha: np.ndarray
    Lam: np.ndarray
    A: np.ndarray
    growth: np.ndarray
    mean_error: np.ndarray
    variance_error: np.ndarray

    several_modes = False
    kinks = False

    def panels(self, p: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        raise NotImplementedError("panels exist in one dimension only")

    @property
    def dimension(self) -> int:
        return int(self.h.shape[1])

    @property
    def n(self) -> int:
        return int(self.h.shape[0])

    def remainder(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        t = np.swapaxes(x @ np.swapaxes(self.A[which], 1, 2), 1, 2)  # (m, C, M)
        log_p = np.asarray(self.likelihood.log_density(self.h[which][:, :, None] + t, slice_rows(self.rows, which)))
        site = np.einsum("nc,ncm->nm", self.alpha[which], t)
        site += 0.5 * np.einsum("ncm,ncd,ndm->nm", t, self.Lam[which], t, optimize=True)
        return np.asarray(self.times[which][:, None] * log_p + site)


def softmax_sites(
    likelihood: Likelihood,
    rows: Rows,
    times: np.ndarray,
    mt: np.ndarray,
    S: np.ndarray,
    q: Sites,
) -> tuple[SoftmaxSites, BlockCone, float, float]:
    """The sites of observed rows, the cone of their exponents, log Z, and its rounding error.

    ``mt`` (n, C) and S (n C, n C) are the prior of eta; q has the sites alpha (n, C) and Lam (n, C, C).
    """
    alpha, Lam = q
    n, C = alpha.shape
    V, L, diagonal = _own_covariances(S, Lam)
    log_det = float(dense.log_det(L))
    pivots = np.sum(np.tril(dense.triangular_inverse(L)) ** 2, axis=0) * diagonal  # the inverse takes L's memory
    lost = EPS * float(np.sqrt(pivots @ pivots))  # rounding error of log|B|, a root mean square
    shift = S @ alpha.ravel()
    log_Z = -0.5 * (float(alpha.ravel() @ shift) + log_det)
    cone = BlockCone(S, V, Lam)
    h, A = mt - shift.reshape(n, C), np.linalg.cholesky(V)
    own = np.diagonal(S)
    off = _ROUNDINGS * EPS * (np.abs(h) + np.abs(mt) + np.sqrt(own * np.sum(alpha.ravel() ** 2 * own)).reshape(n, C))
    mean_error = np.sqrt(np.sum(np.linalg.solve(A, off[:, :, None]) ** 2, axis=(1, 2)))
    errors = mean_error, np.full(n, _ROUNDINGS * lost)
    sites = SoftmaxSites(likelihood, rows, times, h, alpha, Lam, A, cone.lowest, *errors)
    quadratic = EPS * float(np.sum(alpha.ravel() ** 2 * own))
    return sites, cone, log_Z, _ROUNDINGS * (lost + quadratic)


def _own_covariances(S: np.ndarray, Lam: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The covariance of each observation's predictors under q (n, C, C), and the root and diagonal of B = I + R' S R.

    Here Lam = R R', and log|B| = log|I + S Lam|.
    """
    n, C = Lam.shape[0], Lam.shape[1]
    value, vectors = np.linalg.eigh(Lam)
    root = vectors * np.sqrt(np.maximum(value, 0.0))[:, None, :]
    SR = np.einsum("iacb,cbe->iace", S.reshape(n, C, n, C), root, optimize=True).reshape(n * C, n * C)
    B = np.einsum("iae,iacb->iecb", root, SR.reshape(n, C, n, C), optimize=True).reshape(n * C, n * C)
    B[np.diag_indices_from(B)] += 1.0
    diagonal = np.diagonal(B).copy()
    L = dense.cholesky(B)
    half = dense.solve_lower(L, SR.T)
    V = (S - half.T @ half).reshape(n, C, n, C)[np.arange(n), :, np.arange(n), :]
    return (V + np.swapaxes(V, 1, 2)) / 2.0, np.asarray(L), diagonal


def proportional_curvature(S: np.ndarray, Lam: np.ndarray) -> np.ndarray:
    """Curvatures of sites that are proportional to V_c^-1: c_c V_c^-1 with c = tr(Lam V) / C.

    A block has one exponent for all directions. If the curvature relative to the precision differs between them, the
    largest limits the exponent, and possibly no exponent is allowed.
    """
    V = _own_covariances(S, Lam)[0]
    share = np.einsum("nij,nji->n", Lam, V) / Lam.shape[1]
    for _ in range(_FIXED_POINT):
        Lam = share[:, None, None] * np.linalg.inv(V)
        before, V = V, _own_covariances(S, Lam)[0]
        if np.abs(V - before).max() <= _SETTLED * np.abs(V).max():
            break
    return Lam
