"""The independent optimum of a problem in 60 digits, and the verdict on a solution.

    S = W Sigma W' from the problem's own matrices,  h = mt - S f_h,  rho = diag(Vt),  Vt = (S^-1 + diag(2 f_r))^-1
    ELBO = -1/2 (log|B| - lam' rho + beta' S beta) - sum f(h, rho),   beta = f_h, lam = 2 f_r

Newton's method on these stationarity equations in (h, rho), from the marginals reported; where that fails, damped
natural-gradient steps that never lower the ELBO come first. What is still missing is bounded by the strong concavity
of -KL, so a bad optimum of the judge's own is noticed and not held against the library.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal as D
from decimal import getcontext
from typing import Any

import numpy as np
from fuzz_bounds import ONE, ZERO, eliminate, scalar_row, softmax_row

DIGITS = 60
_ROUNDING = 1e-12  # of elbo, relative: what a sum in double precision may lose without a word
_MOMENTS = 1e-6  # of the posterior's sds: the same for its means and variances


def exact(x: Any) -> Any:
    """Floats as the decimals they are."""
    return np.vectorize(lambda v: D(float(v)), otypes=[object])(np.asarray(x, dtype=float))


def cholesky(A: Any) -> Any:
    """Lower root of a positive definite matrix of decimals; ArithmeticError otherwise."""
    A, n = A.copy(), A.shape[0]
    L = np.full((n, n), ZERO, dtype=object)
    for k in range(n):
        if not A[k, k] > 0:
            raise ArithmeticError("not positive definite")
        root = A[k, k].sqrt()
        column = A[k:, k] / root
        L[k:, k] = column
        A[k + 1 :, k + 1 :] -= column[1:, None] * column[None, 1:]
    return L


def is_semidefinite(A: Any, floor: D = ZERO) -> bool:
    """Whether a matrix of decimals is positive semidefinite, by elimination with diagonal pivots."""
    A = A.copy()
    while A.shape[0]:
        k = int(np.argmax(np.diag(A)))
        if A[k, k] <= floor:
            return bool(A[k, k] >= -floor) and bool(np.all(np.abs(A) <= max(floor, D("1e-45") * abs(A[k, k]))))
        keep = [i for i in range(A.shape[0]) if i != k]
        A = A[np.ix_(keep, keep)] - A[keep, k][:, None] * A[k, keep][None, :] / A[k, k]
    return True


def identity(n: int) -> Any:
    return exact(np.eye(n))


@dataclass
class Model:
    """A problem in decimals: S (M, M) and mt (M,) of the M = N C predictors, observation by observation."""

    S: Any
    mt: Any
    rows: list[int]  # observed
    weight: Any
    likelihood: dict[str, Any]
    y: Any
    C: int
    W: Any  # (M, number of latents)
    Sigma: Any
    mu: Any

    def terms(self, h: Any, rho: Any) -> tuple[D, Any, Any, Any, Any, Any]:
        """sum f, f_h, f_r (M,), and f_hh, f_hr, f_rr (M, M)."""
        M, C = len(h), self.C
        value, fh, fr = ZERO, np.full(M, ZERO, dtype=object), np.full(M, ZERO, dtype=object)
        blocks = [np.full((M, M), ZERO, dtype=object) for _ in range(3)]
        for n in self.rows:
            w, at = self.weight[n], slice(n * C, (n + 1) * C)
            like = self.likelihood
            if C > 1:
                f, a, r, *second = softmax_row(like, int(self.y[n]), list(h[at]), list(rho[at]))
                fh[at], fr[at] = w * np.array(a, dtype=object), w * np.array(r, dtype=object)
            else:
                k = n
                if like["name"] == "Mixed":
                    part = like["parts"][like["which"][n]]
                    k, like = int(np.sum(like["which"][:n] == like["which"][n])), part
                f, a, r, *second = scalar_row(like, k, self.y[n], h[n], rho[n])
                fh[n], fr[n] = w * a, w * r
            value += w * f
            for block, part in zip(blocks, second, strict=True):
                block[at, at] = w * part
        return value, fh, fr, *blocks

    def spread(self, lam: Any) -> tuple[Any, D]:
        """Vt and log|B| at lam."""
        live = [i for i in range(len(lam)) if lam[i] > 0]
        root = np.array([lam[i].sqrt() for i in live], dtype=object)
        if not live:
            return self.S, ZERO
        T = root[:, None] * self.S[live]
        L = cholesky(identity(len(live)) + T[:, live] * root[None, :])
        X = forward(L, T)
        return self.S - X.T.dot(X), 2 * sum((L[i, i].ln() for i in range(len(live))), ZERO)

    def at(self, beta: Any, lam: Any) -> Point:
        return Point(self, beta, lam)


def forward(L: Any, b: Any) -> Any:
    """L^-1 b."""
    b = b.copy()
    for k in range(L.shape[0]):
        b[k] = b[k] / L[k, k]
        b[k + 1 :] -= L[k + 1 :, k][:, None] * b[k][None, :]
    return b


class Point:
    """q by its sites: m = mu - Sigma W' beta, V = (Sigma^-1 + W' Lam W)^-1."""

    def __init__(self, model: Model, beta: Any, lam: Any) -> None:
        self.model, self.beta, self.lam = model, beta, lam
        self.Vt, self.log_det = model.spread(lam)
        S_beta = model.S.dot(beta)
        self.h, self.rho = model.mt - S_beta, np.diag(self.Vt).copy()
        self.value, self.fh, self.fr, self.hh, self.hr, self.rr = model.terms(self.h, self.rho)
        kl = (self.log_det - lam.dot(self.rho) + beta.dot(S_beta)) / 2
        self.elbo = -kl - self.value

    def missing(self) -> D:
        """What the best ELBO may exceed this one by, for a log-concave likelihood."""
        S, r, d = self.model.S, self.beta - self.fh, self.lam - 2 * self.fr
        return (r.dot(S.dot(r)) + d.dot((self.Vt * S).dot(d))) / 2


def newton(model: Model, h: Any, rho: Any, steps: int = 30) -> Point | None:
    """Stationarity in (h, rho) by Newton's method; None where it wanders off."""
    M, I = len(h), identity(len(h))
    last, before = False, D("Infinity")
    for _ in range(steps):
        _, fh, fr, hh, hr, rr = model.terms(h, rho)
        if not all(x.is_finite() for x in (*fh, *fr)):
            return None
        Vt, _ = model.spread(2 * fr)
        if last:
            return model.at(fh, 2 * fr)
        square = 2 * Vt * Vt
        S = model.S
        A = np.block([[I + S.dot(hh), S.dot(hr)], [square.dot(hr.T), I + square.dot(rr)]])
        b = np.concatenate([model.mt - S.dot(fh) - h, np.diag(Vt) - rho])
        step = eliminate(A, b[:, None])[:, 0]
        size, moved = ONE, ZERO
        for i in range(M):
            if rho[i] > 0:
                moved = max(moved, abs(step[i]) / rho[i].sqrt(), abs(step[M + i]) / rho[i])
                if step[M + i] < -D("0.9") * rho[i]:
                    size = min(size, -D("0.9") * rho[i] / step[M + i])
            if abs(step[i]) > 20 + abs(h[i]):
                size = min(size, (20 + abs(h[i])) / abs(step[i]))
        h, rho = h + size * step[:M], rho + size * step[M:]
        # quadratic to the end, or down to the 19 digits of an integral
        last = size == 1 and (moved < D("1e-17") or before / 10 < moved < D("1e-9"))
        before = moved
        if moved > D("1e40"):
            return None
    return None


def climb(model: Model, h: Any, rho: Any, steps: int = 80) -> Point | None:
    """Natural-gradient steps, halved until the ELBO does not fall."""
    try:
        _, fh, fr, *_ = model.terms(h, rho)
        point = model.at(fh, 2 * fr)
    except ArithmeticError:
        point = None
    if point is None or not point.elbo.is_finite():
        zero = np.full(len(h), ZERO, dtype=object)
        point = model.at(zero, zero)
    if not point.elbo.is_finite():
        return None
    size = ONE
    for _ in range(steps):
        lam_to, pull = 2 * point.fr, 2 * point.fr * point.h - point.fh
        old = point.lam * point.h - point.beta
        for _ in range(40):
            lam = (1 - size) * point.lam + size * lam_to
            b = (1 - size) * old + size * pull
            Vt, _ = model.spread(lam)
            h_new = model.mt + Vt.dot(b - lam * model.mt)
            trial = model.at(lam * h_new - b, lam)
            if trial.elbo.is_finite() and trial.elbo >= point.elbo:
                break
            size /= 2
        else:
            return point
        gain, point, size = trial.elbo - point.elbo, trial, min(ONE, 2 * size)
        if gain < D("1e-12") * max(ONE, abs(point.elbo)):
            break
    return point


def optimum(model: Model, h: Any, rho: Any, thorough: bool) -> Point | None:
    """The best q, from the marginals reported; ``thorough``: by every means."""
    starts = []
    if np.all(np.isfinite(h)) and np.all(np.isfinite(rho)) and np.all(rho >= 0):
        start = exact(h), np.maximum(exact(rho), D("1e-300"))
        starts.append(start)
    starts.append((model.mt, np.diag(model.S).copy()))
    for attempt in (newton, _climbed) if thorough else (newton,):
        for start in starts:
            try:
                point = attempt(model, *start)
            except (ArithmeticError, ValueError):
                continue
            if point is not None and point.elbo.is_finite():
                return point
    return None


def _climbed(model: Model, h: Any, rho: Any) -> Point | None:
    point = climb(model, h, rho)
    return None if point is None else newton(model, point.h, point.rho)


@dataclass
class Verdict:
    """``said``: converged, not converged, refused, crashed; ``faults``: what is wrong, in words."""

    said: str
    faults: list[str] = field(default_factory=list)
    error: float = 0.0  # of the elbo, relative to max(1, |best|)
    moments: float = 0.0  # of means and variances, in units of what the gap allows
    above: float = 0.0  # best ELBO beyond elbo_upper, relative
    best: float = float("nan")
    judged: bool = True
    reason: str = ""  # the library's own words

    @property
    def false_converged(self) -> bool:
        return self.said == "converged" and bool(self.faults)

    @property
    def wrong(self) -> bool:
        """A false "converged", or an exception that is no sentence."""
        return self.false_converged or self.said == "crashed"


def judge(model: Model, solution: Any, tol: float, log_concave: bool) -> Verdict:
    """Compare what a solution says with the independent optimum."""
    getcontext().prec = DIGITS
    out = Verdict("converged" if solution.converged else "not converged")
    post = solution.posterior
    h, rho = np.asarray(post.mean, float).ravel(), np.asarray(post.variance, float).ravel()
    latent = np.asarray(post.latent_mean, float).T.ravel()
    scale = max(1.0, abs(solution.elbo))
    if np.isnan([solution.elbo, solution.elbo_upper, solution.gap]).any():
        out.faults.append("a NaN among elbo, elbo_upper, gap")
    if solution.elbo_upper < solution.elbo or solution.gap < 0:
        out.faults.append("elbo_upper below elbo")
    if not (np.isfinite(h).all() and np.isfinite(rho).all() and np.isfinite(latent).all()):
        out.faults.append("a mean or variance that is not finite")
    elif (rho < 0).any() or (np.asarray(post.latent_variance, float) < 0).any():
        out.faults.append("a negative variance")
    point = optimum(model, h, rho, solution.converged)
    if point is None:
        out.judged = False
        if out.said == "converged":
            out.faults.append("no optimum found near what was reported")
        return out
    best, missing = point.elbo, point.missing()
    out.best = float(best)
    scale = max(1.0, abs(out.best))
    if log_concave and float(missing) > 1e-3 * min(tol, 1e-8) * scale:
        out.judged = False
        return out
    if not np.isfinite(solution.elbo):
        return out
    short = float(best - D(float(solution.elbo)))
    out.error = abs(short) / scale
    if out.said == "converged" and out.error > 1.01 * tol + _ROUNDING:
        out.faults.append(f"elbo off by {-short:.3g} (relative {out.error:.1e}, tol {tol:.0e})")
    if log_concave and np.isfinite(solution.elbo_upper):
        out.above = float(best - D(float(solution.elbo_upper))) / scale
        if out.above > max(_ROUNDING, 0.01 * tol):
            out.faults.append(f"best ELBO above elbo_upper by {out.above:.1e} relative")
    if short < -max(_ROUNDING, 0.01 * tol) * scale:
        out.faults.append(f"elbo above the best by {-short / scale:.1e} relative")
    if out.said != "converged":
        return out
    check_moments(out, point, h, rho, latent, solution.gap if np.isfinite(solution.gap) else tol * scale)
    return out


def check_moments(out: Verdict, point: Point, h: Any, rho: Any, latent: Any, gap: float) -> None:
    """A q that misses the best ELBO by ``gap`` lies within sqrt(2 gap) sds of the best one, sds of the ELBO's peak.

    For given rho the best V leaves -KL with curvature -(Vt o Vt)^-1/2 in rho, so in (h, rho) the ELBO peaks with

        A = [[S^-1 + f_hh, f_hr], [f_rh, (Vt o Vt)^-1/2 + f_rr]]

    The peak can be much wider than q: under a log-sum bound far more so. Rounding may move h by 1e-6 sds of q.
    """
    model, S, I = point.model, point.model.S, identity(len(h))
    square = 2 * point.Vt * point.Vt
    inner = eliminate(I + square.dot(point.rr), square)
    K = point.hh - point.hr.dot(inner).dot(point.hr.T)  # the curvature left in h once rho follows
    mean_peak = eliminate(I + S.dot(K), S)
    turned = inner.dot(point.hr.T)
    rho_peak = inner + turned.dot(mean_peak).dot(turned.T)
    T = model.Sigma.dot(model.W.T)
    latent_peak = np.diag(model.Sigma) - (T.dot(eliminate(I + K.dot(S), K)) * T).sum(axis=1)
    z = model.mu - T.dot(point.beta)
    z_sd2 = np.diag(model.Sigma) - (T.dot(eliminate(I + point.lam[:, None] * S, np.diag(point.lam) + 0 * I)) * T).sum(axis=1)
    room = (5.0 + 50.0 * np.sqrt(gap)) * np.sqrt(2.0 * gap)
    worst = []
    for what, got, want, peak, own in (
        ("mean", h, point.h, np.diag(mean_peak), point.rho),
        ("variance", rho, point.rho, np.diag(rho_peak), point.rho * point.rho),
        ("latent mean", latent, z, latent_peak, z_sd2),
    ):
        for a, b, v, w in zip(exact(got), want, peak, own, strict=True):
            width = room * float(max(v, ZERO).sqrt()) + _MOMENTS * float(max(w, ZERO).sqrt()) + 1e-14 * abs(float(b))
            miss = abs(float(a - b))
            worst.append((miss / width if width > 0 else (np.inf if miss > 1e-300 else 0.0), what))
    out.moments, what = max(worst)
    if out.moments > 1.0:
        out.faults.append(f"a {what} off by {out.moments:.1e} times what its gap {gap:.1e} allows")
