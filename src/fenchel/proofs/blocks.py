"""Sites of several directions: the predictors of a softmax (``softmax_bound.py``), or correlated rows in pairs.

A block c of d rows has the covariance V_c under q and the curvature Lam_c of its site (d, d). Exponents p = 1/w are
allowed if blockdiag(p_c V_c) >= V. With Omega_c = w_c V_c^-1 - Lam_c = L_c L_c' this is, in the space of all rows,

    M(w) = S^-1 - Omega >= 0,      I - L' S L > 0,       L = blockdiag(L_c)
    -d log|M| / dw_c = tr Y_cc,    d^2 / dw_c dw_d = |Y_cd|^2,    Y_cd = T_c' ((I - L' S L)^-1 - I)_cd T_d

with V_c^-1 = K_c K_c' and T_c = L_c^-1 K_c. All matrices are dense, so that this serves up to some thousand rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..linalg import dense
from ..linalg.dense import NotPositiveDefinite
from .margins import EPS, Cone, Margin
from .tilted_moments import SiteRemainders


class BlockCone(Cone):
    """The cone of n blocks of d rows: S (n d, n d) is the prior covariance by blocks, V and Lam are (n, d, d)."""

    def __init__(self, S: np.ndarray, V: np.ndarray, Lam: np.ndarray) -> None:
        self.S, self.Lam = S, Lam
        self.n, self.d = V.shape[0], V.shape[1]
        self.size = S.shape[0]
        root = np.linalg.cholesky(V)
        self.inverse_V = np.linalg.inv(V)
        self.K = np.linalg.cholesky((self.inverse_V + np.swapaxes(self.inverse_V, 1, 2)) / 2.0)
        seen = np.swapaxes(root, 1, 2) @ Lam @ root
        self.lowest = np.maximum(np.linalg.eigvalsh((seen + np.swapaxes(seen, 1, 2)) / 2.0)[:, -1], 0.0)
        own = S.reshape(self.n, self.d, self.n, self.d)[np.arange(self.n), :, np.arange(self.n), :]
        ratio = np.linalg.eigvalsh(np.swapaxes(self.K, 1, 2) @ own @ self.K)[:, -1]  # prior variance over that of q
        self.profile = 1.0 / np.maximum(ratio, 1.0)

    def roots(self, w: np.ndarray) -> np.ndarray:
        """The roots L_c (n, d, d) of Omega_c."""
        Omega = w[:, None, None] * self.inverse_V - self.Lam
        try:
            return np.linalg.cholesky((Omega + np.swapaxes(Omega, 1, 2)) / 2.0)
        except np.linalg.LinAlgError:
            raise NotPositiveDefinite("an exponent is below the lowest one allowed") from None

    def factor(self, L: np.ndarray) -> np.ndarray:
        n, d = self.n, self.d
        half = np.einsum("iacb,cbe->iace", self.S.reshape(n, d, n, d), L, optimize=True)
        B = -np.einsum("iae,iacb->iecb", L, half, optimize=True).reshape(n * d, n * d)
        B[np.diag_indices_from(B)] += 1.0
        return np.asarray(dense.cholesky(B))

    def at(self, w: np.ndarray) -> Margin:
        L = self.roots(w)
        return _BlockMargin(self.factor(L), np.linalg.solve(L, self.K))

    def proves(self, w: np.ndarray) -> bool:
        lost = self.size * (self.size + 8.0 + 4.0 * self.d) * EPS
        try:
            self.factor(self.roots(w) / np.sqrt(1.0 - lost))
        except NotPositiveDefinite:
            return False
        return True


class _BlockMargin(Margin):
    def __init__(self, factor: np.ndarray, T: np.ndarray) -> None:
        self.log_det = dense.log_det(factor)
        self._factor, self._T = factor, T

    @cached_property
    def _products(self) -> tuple[np.ndarray, np.ndarray]:
        """tr Y_cc (n,) and |Y_cd|^2 (n, n)."""
        n, d = self._T.shape[0], self._T.shape[1]
        inverse = np.asarray(dense.symmetrised(dense.inverse_from(dense.triangular_inverse(self._factor))))
        inverse[np.diag_indices_from(inverse)] -= 1.0
        half = np.einsum("iacb,cbe->iace", inverse.reshape(n, d, n, d), self._T, optimize=True)
        Y = np.einsum("iae,iacb->iecb", self._T, half, optimize=True)
        trace = np.einsum("cici->ci", Y).sum(axis=1) if n else np.zeros(0)
        return trace, np.einsum("iacb,iacb->ic", Y, Y, optimize=True)

    @property
    def slopes(self) -> np.ndarray:
        return self._products[0]

    def newton(self, diagonal: np.ndarray, mu: float, right: np.ndarray) -> np.ndarray:
        H = mu * self._products[1] + np.diag(diagonal)
        return np.asarray(dense.solve_cholesky(dense.cholesky(H), right))


@dataclass(frozen=True)
class PairedSites:
    """Pairs of sites of one direction: gt_a(x_a) + gt_b(x_b) with x = A u, u two independent standard normals.

    ``members`` (n, 2): indices of the sites, -1 for none; ``A`` (n, 2, 2): the root of their correlation under q.
    """

    sites: SiteRemainders
    members: np.ndarray
    A: np.ndarray
    growth: np.ndarray
    dimension: int = 2

    @property
    def apart(self) -> np.ndarray:
        """Factor (n,) from an error of one member to one in independent variables: 1 / sqrt(1 - r^2)."""
        return np.asarray(1.0 / self.A[:, 1, 1])

    @property
    def n(self) -> int:
        return int(self.members.shape[0])

    @property
    def several_modes(self) -> bool:
        return self.sites.several_modes

    @property
    def kinks(self) -> bool:
        return self.sites.kinks

    @property
    def mean_error(self) -> np.ndarray:
        return self._largest(self.sites.mean_error) * self.apart

    @property
    def variance_error(self) -> np.ndarray:
        return self._largest(self.sites.variance_error) * self.apart**2

    def _largest(self, each: np.ndarray) -> np.ndarray:
        """The larger value of both members (n,)."""
        return np.max(np.where(self.members >= 0, each[self.members], 0.0), axis=1)

    def panels(self, p: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        raise NotImplementedError("panels exist in one dimension only")

    def remainder(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        t = x @ np.swapaxes(self.A[which], 1, 2)
        out = np.zeros(x.shape[:2])
        for k in range(2):
            own = self.members[which, k]
            some = own >= 0
            out[some] += self.sites.remainder(own[some], t[some, :, k : k + 1])
        return out


def pair_up(
    sites: SiteRemainders, S: np.ndarray, V: np.ndarray, curvature: np.ndarray
) -> tuple[PairedSites, BlockCone]:
    """Pair the most correlated sites; a site without a partner gets a second direction without an observation.

    S and V (m, m) are the covariances of the sites under the prior and under q, ``curvature`` (m,) their lam.
    """
    members = _matching(V / np.sqrt(np.outer(np.diag(V), np.diag(V))))
    order = members.ravel()
    alone = order < 0
    S, V = (_padded(X, order, alone) for X in (S, V))
    lam = np.where(alone, 0.0, curvature[order])
    n, pick = members.shape[0], np.arange(members.shape[0])
    own = V.reshape(n, 2, n, 2)[pick, :, pick, :]
    Lam = lam.reshape(n, 2)[:, :, None] * np.eye(2)
    sd = np.sqrt(np.einsum("nii->ni", own))
    cone = BlockCone(S, own, Lam)
    A = np.linalg.cholesky(own / (sd[:, :, None] * sd[:, None, :]))
    return PairedSites(sites, members, A, cone.lowest), cone


def _padded(X: np.ndarray, order: np.ndarray, alone: np.ndarray) -> np.ndarray:
    out = X[np.ix_(order, order)]
    out[alone], out[:, alone] = 0.0, 0.0
    out[alone, alone] = 1.0
    return out


def _matching(R: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) in decreasing order of correlation; with an odd number the last site has the partner -1."""
    m = R.shape[0]
    i, j = np.triu_indices(m, 1)
    free = np.ones(m, dtype=bool)
    pairs: list[tuple[int, int]] = []
    for k in np.argsort(-np.abs(R[i, j]), kind="stable"):
        if free[i[k]] and free[j[k]]:
            free[i[k]] = free[j[k]] = False
            pairs.append((int(i[k]), int(j[k])))
    pairs += [(int(k), -1) for k in np.flatnonzero(free)]
    return np.array(pairs).reshape(-1, 2)
