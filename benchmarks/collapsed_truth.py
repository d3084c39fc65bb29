"""Truth for ``collapsed.py``: one grouping factor, everything integrated out under stated priors, without fenchel.

    eta_j = level + x_j' beta + a_j' u_c(j),   u_c = R v_c,   v_c ~ N(0, I),   R R' the covariance of (sds, correlation)

The effects of each group by Gauss and Hermite's rule about their mode at every draw of all else; coefficients, sds, the
correlation and the likelihood's own parameters by importance draws: Student-t, Sobol's points, in independent
scrambles whose spread is the error of every answer. Columns are standardised, and answers are in the user's units.
Priors are normalised, so that ``log_evidence`` is log p(y).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import chdtri, gammaln, log_expit, logsumexp, ndtri
from scipy.stats import qmc

INTERCEPT_SD = 10.0  # of its prior, where the columns have their means
HALF_NORMAL = 5.0 / ndtri(0.975)  # sd of the prior of an sd: P(sd > 5) = .05
NODES = {1: 31, 2: 15}  # of the rule along each axis
SCRAMBLES = 8
DRAWS = {1: 1024, 2: 512}  # of each, by effects a group
FREEDOM = 10.0
BATCH = 1 << 19  # densities held at a time
STEP = 1e-3  # of differences of eta
FAR = 30.0  # log means beyond which a density is nothing
LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


# -- log p(y | eta), eta (B, N, M), own (B, k) -------------------------------------------------------------
def bernoulli(y: np.ndarray, eta: np.ndarray, own: np.ndarray) -> np.ndarray:
    return log_expit(np.where(y[:, None] > 0, 1.0, -1.0) * eta)


def binomial(y: np.ndarray, eta: np.ndarray, own: np.ndarray) -> np.ndarray:
    k, n = y[:, :1], y[:, 1:]
    return k * eta + n * log_expit(-eta) + gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def poisson(y: np.ndarray, eta: np.ndarray, own: np.ndarray) -> np.ndarray:
    return y[:, None] * eta - np.exp(np.minimum(eta, FAR)) - gammaln(y + 1.0)[:, None]


def negative_binomial(y: np.ndarray, eta: np.ndarray, own: np.ndarray) -> np.ndarray:
    log_r = own[:, :1, None]
    r, k = np.exp(log_r), y[:, None]
    constant = gammaln(k + r) - gammaln(r) - gammaln(k + 1.0) + r * log_r
    return constant + k * eta - (k + r) * np.logaddexp(log_r, eta)


def ordinal(y: np.ndarray, eta: np.ndarray, own: np.ndarray) -> np.ndarray:
    cuts = np.cumsum(np.concatenate([own[:, :1], np.exp(own[:, 1:])], axis=1), axis=1)
    ends = np.full((len(own), 1), np.inf)
    cuts, level = np.concatenate([-ends, cuts, ends], axis=1), y.astype(int)
    low, high = cuts[:, level, None], cuts[:, level + 1, None]
    return log_expit(high - eta) + log_expit(eta - low) + np.log(-np.expm1(low - high))


def weibull(y: np.ndarray, eta: np.ndarray, own: np.ndarray) -> np.ndarray:
    t, event, log_k = y[:, :1], y[:, 1:], own[:, :1, None]
    k = np.exp(log_k)
    return event * (eta + log_k + (k - 1.0) * np.log(t)) - np.exp(np.minimum(eta + k * np.log(t), FAR))


DENSITIES: dict[str, Callable[..., np.ndarray]] = {
    f.__name__.replace("_", "-"): f for f in (bernoulli, binomial, poisson, negative_binomial, ordinal, weibull)
}


@dataclass
class Truth:
    """Answers with the errors of their draws; ``beta``, ``sds`` and ``effects`` are rows of means and of sds."""

    log_evidence: float
    evidence_error: float
    beta: np.ndarray
    sds: np.ndarray
    effects: np.ndarray
    error: float  # the largest of a mean, in sds, and of a log sd
    share: float  # of the draws that counts

    def stored(self) -> dict[str, Any]:
        return {name: np.round(value, 6).tolist() for name, value in vars(self).items()}

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Truth:
        return cls(**{name: np.array(v) if isinstance(v, list) else v for name, v in kept.items()})


@dataclass
class GroupedPosterior:
    """log p(y, t), t = (beta, log sds, 2 atanh of the correlation, own).

    X : (N, p), its first column 1 where there is an intercept
    slope : (N,) the column of slopes, or None
    sds : of the priors of the other coefficients, in the user's units
    own : (k, 2) means and sds of the normal priors of the likelihood's own parameters
    held : the last entries of t, where they are not integrated out
    shown : groups whose effects are answered for
    """

    family: str
    y: np.ndarray
    X: np.ndarray
    codes: np.ndarray
    slope: np.ndarray | None
    level: float
    sds: np.ndarray
    own: np.ndarray
    held: np.ndarray | None = None
    shown: int = 12
    nodes: int = 0

    def __post_init__(self) -> None:
        order = np.argsort(self.codes, kind="stable")
        self.y, self.X, self.codes = self.y[order], self.X[order], self.codes[order]
        self.groups = int(self.codes[-1]) + 1
        self.first = np.searchsorted(self.codes, np.arange(self.groups))
        self.intercept = self.family != "ordinal"
        own = int(self.intercept)
        self.centre, self.unit = self.X[:, own:].mean(axis=0), self.X[:, own:].std(axis=0)
        self.Z = np.column_stack([np.ones((len(self.X), own)), (self.X[:, own:] - self.centre) / self.unit])
        x = np.zeros(0) if self.slope is None else self.slope[order]
        self.A, self.back = np.ones((self.codes.size, 1)), np.eye(1)
        if self.slope is not None:  # the intercept where the column is 0, and the slope per unit of it
            at, unit = x.mean(), x.std()
            self.A = np.column_stack([self.A, (x - at) / unit])
            self.back = np.array([[1.0, -at / unit], [0.0, 1.0 / unit]])
        self.d, self.p = self.A.shape[1], self.Z.shape[1]
        self.n_theta = 1 if self.d == 1 else 3
        self.density = DENSITIES[self.family]
        m = self.nodes or NODES[self.d]
        z, w = np.polynomial.hermite_e.hermegauss(m)
        self.grid = np.stack(np.meshgrid(*[z] * self.d, indexing="ij"), axis=-1).reshape(-1, self.d)
        log_w = np.stack(np.meshgrid(*[np.log(w)] * self.d, indexing="ij"), axis=-1).reshape(-1, self.d).sum(axis=1)
        kept = log_w > log_w.max() - 40.0
        self.grid, self.log_w = self.grid[kept], log_w[kept] - self.d * LOG_ROOT
        self.log_w = self.log_w + 0.5 * np.sum(self.grid**2, axis=1)
        self.modes = np.zeros((self.groups, self.d))

    # -- the density --------------------------------------------------------------------------------
    def roots(self, theta: np.ndarray) -> np.ndarray:
        """R (B, d, d)."""
        out = np.zeros((len(theta), self.d, self.d))
        out[:, 0, 0] = np.exp(theta[:, 0])
        if self.d == 2:
            sd, r = np.exp(theta[:, 1]), np.tanh(theta[:, 2] / 2.0)
            out[:, 1, 0], out[:, 1, 1] = r * sd, np.sqrt(1.0 - r * r) * sd
        return out

    def log_prior(self, t: np.ndarray) -> np.ndarray:
        beta, theta, own = self.parts(t)
        sds = np.r_[np.full(int(self.intercept), INTERCEPT_SD), self.sds * self.unit]
        out = np.sum(-0.5 * (beta / sds) ** 2 - np.log(sds) - LOG_ROOT, axis=1)
        if self.held is not None:
            return out
        sd = np.exp(theta[:, : self.d])
        half = np.log(2.0) - LOG_ROOT - np.log(HALF_NORMAL) - 0.5 * (sd / HALF_NORMAL) ** 2
        out += np.sum(half + theta[:, : self.d], axis=1)
        if self.d == 2:  # the correlation is uniform on (-1, 1)
            out -= 2.0 * np.logaddexp(theta[:, 2] / 2.0, -theta[:, 2] / 2.0)
        z = (own - self.own[:, 0]) / self.own[:, 1]
        return out + np.sum(-0.5 * z * z - np.log(self.own[:, 1]) - LOG_ROOT, axis=1)

    def parts(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """beta, theta and own of draws (B, D)."""
        if self.held is not None:
            t = np.concatenate([t, np.broadcast_to(self.held, (len(t), self.held.size))], axis=1)
        return t[:, : self.p], t[:, self.p : self.p + self.n_theta], t[:, self.p + self.n_theta :]

    def _summed(self, rows: np.ndarray) -> np.ndarray:
        return np.add.reduceat(rows, self.first, axis=1)

    def _at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log p(y | t) (B,), and E[u], E[u^2] of the first groups (B, shown, d), in the user's units."""
        beta, theta, own = self.parts(t)
        roots = self.roots(theta)
        V = np.einsum("nd,bde->bne", self.A, roots)
        base = self.level * self.intercept + beta @ self.Z.T
        v = np.broadcast_to(self.modes, (len(t), self.groups, self.d)).copy()
        side = STEP * np.array([-1.0, 0.0, 1.0])
        for _ in range(40):
            eta = base + np.sum(V * v[:, self.codes], axis=2)
            three = self.density(self.y, eta[:, :, None] + side, own)
            slope = (three[..., 2] - three[..., 0]) / (2.0 * STEP)
            bend = np.maximum(-(three[..., 2] - 2.0 * three[..., 1] + three[..., 0]) / STEP**2, 0.0)
            gradient = self._summed(V * slope[:, :, None]) - v
            H = self._summed(V[..., :, None] * V[..., None, :] * bend[..., None, None]) + np.eye(self.d)
            step = np.clip(np.linalg.solve(H, gradient[..., None])[..., 0], -1.0, 1.0)
            v = v + step
            if np.abs(step).max() < 0.02:
                break
        root = np.linalg.inv(np.linalg.cholesky(H)).swapaxes(-1, -2)
        points = v[:, :, None, :] + self.grid @ root.swapaxes(-1, -2)  # (B, G, M, d)
        eta = base[:, :, None] + np.einsum("bnd,bnmd->bnm", V, points[:, self.codes])
        inside = self._summed(self.density(self.y, eta, own)) - 0.5 * np.sum(points**2, axis=3) + self.log_w
        total = logsumexp(inside, axis=2)
        share = np.exp(inside[:, : self.shown] - total[:, : self.shown, None])
        u = np.einsum("bde,bgme->bgmd", roots, points[:, : self.shown])
        u = u @ self.back.T
        mean, square = np.einsum("bgm,bgmd->bgd", share, u), np.einsum("bgm,bgmd->bgd", share, u**2)
        log_det = np.log(np.abs(np.diagonal(root, axis1=2, axis2=3))).sum(axis=2)
        return np.sum(total + log_det, axis=1), mean, square

    def at(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log p(y, t) and the moments of effects, some draws at a time."""
        size = max(1, BATCH // (self.codes.size * len(self.grid)))
        parts = [self._at(t[i : i + size]) for i in range(0, len(t), size)]
        value, mean, square = (np.concatenate(each) for each in zip(*parts, strict=True))
        value = value + self.log_prior(t)
        return np.where(np.isfinite(value), value, -np.inf), mean, square

    # -- everything ---------------------------------------------------------------------------------
    def start(self) -> np.ndarray:
        n = self.p + (self.n_theta + len(self.own) if self.held is None else 0)
        out = np.zeros(n)
        if self.held is None and len(self.own):
            out[-len(self.own) :] = self.own[:, 0]
        return out

    def peak(self) -> tuple[np.ndarray, np.ndarray]:
        """The mode of t and a root of its covariance there."""
        start, h = self.start(), 1e-3
        D, eye = start.size, np.eye(start.size)

        def both(t: np.ndarray) -> tuple[float, np.ndarray]:
            value = self.at(np.concatenate([t[None], t + h * eye, t - h * eye]))[0]
            return -float(value[0]), -(value[1 : D + 1] - value[D + 1 :]) / (2.0 * h)

        bounds = [(-15.0, 15.0)] * self.p + [(-4.0, 4.0)] * (D - self.p)
        found = minimize(both, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200}).x
        ways = np.concatenate([found + h * eye, found - h * eye])
        slopes = np.array([both(t)[1] for t in ways])
        H = (slopes[:D] - slopes[D:]) / (2.0 * h)
        value, vectors = np.linalg.eigh(0.5 * (H + H.T))
        return found, vectors / np.sqrt(np.maximum(value, 0.3))

    def drawn(self, centre: np.ndarray, root: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Student-t draws (n, D) and the logs of their densities."""
        D = centre.size
        u = np.clip(qmc.Sobol(D + 1, rng=np.random.default_rng(seed)).random(n), 1e-12, 1.0 - 1e-12)
        z = ndtri(u[:, 1:]) * np.sqrt(FREEDOM / chdtri(FREEDOM, u[:, :1]))
        log_q = gammaln((FREEDOM + D) / 2.0) - gammaln(FREEDOM / 2.0) - 0.5 * D * np.log(FREEDOM * np.pi)
        log_q = log_q - 0.5 * (FREEDOM + D) * np.log1p(np.sum(z * z, axis=1) / FREEDOM)
        return centre + z @ root.T, log_q - np.linalg.slogdet(root)[1]

    def truth(self) -> Truth:
        draws = DRAWS[self.d]
        centre, root = self.peak()
        for seed, n in ((101, draws // 2), (102, draws)):  # where the proposal is to lie
            t, log_q = self.drawn(centre, root, n, seed)
            log_w = self.at(t)[0] - log_q
            w = np.exp(log_w - logsumexp(log_w))
            centre = w @ t
            root = np.linalg.cholesky((t - centre).T @ ((t - centre) * w[:, None]) + 1e-10 * np.eye(centre.size))
        runs = [self._run(*self.drawn(centre, 1.1 * root, draws, seed)) for seed in range(SCRAMBLES)]
        log_z = np.array([run[0] for run in runs])
        total = float(logsumexp(log_z) - np.log(SCRAMBLES))
        weight = np.exp(log_z - logsumexp(log_z))
        first, second = (np.array([run[k] for run in runs]) for k in (1, 2))
        mean = weight @ first
        sd = np.sqrt(np.maximum(weight @ second - mean**2, 1e-300))
        each = np.sqrt(np.maximum(second - 2.0 * first * mean + mean**2, 1e-300))
        free = sd > 1e-6
        spread = [(each[:, free] / sd[free]).std(axis=0).max() for each in (first, each)]
        error = float(max(spread)) / np.sqrt(SCRAMBLES)
        cut = np.cumsum([self.p, self.d])
        beta, sds, effects = (np.stack([a, b]) for a, b in zip(np.split(mean, cut), np.split(sd, cut), strict=True))
        return Truth(
            total,
            float(np.exp(log_z - total).std() / np.sqrt(SCRAMBLES)),
            beta,
            sds,
            effects,
            error,
            float(np.mean([run[3] for run in runs])),
        )

    def _run(self, t: np.ndarray, log_q: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, float]:
        """log p(y); first and second moments of beta, sds and effects; the share that counts."""
        value, mean, square = self.at(t)
        log_w = value - log_q
        log_z = float(logsumexp(log_w))
        w = np.exp(log_w - log_z)
        beta, theta, _ = self.parts(t)
        back = np.eye(self.p)
        own = int(self.intercept)
        back[own:, own:] = np.diag(1.0 / self.unit)
        if own:
            back[0, 1:] = -self.centre / self.unit
        beta = beta @ back.T + self.level * self.intercept * np.eye(self.p)[0]
        R = self.roots(theta)
        R = self.back @ R
        sds = np.sqrt(np.sum(R * R, axis=2))
        known = np.concatenate([beta, sds, mean.reshape(len(t), -1)], axis=1)
        squares = np.concatenate([beta**2, sds**2, square.reshape(len(t), -1)], axis=1)
        return log_z - float(np.log(len(t))), w @ known, w @ squares, float(1.0 / (w @ w) / w.size)
