"""The independent optimum of a problem in 60 digits.

    S = W Sigma W' from the problem's own matrices,  h = mt - S f_h,  rho = diag(Vt),  Vt = (S^-1 + diag(2 f_r))^-1
    ELBO = -1/2 (log|B| - lam' rho + beta' S beta) - sum f(h, rho),   beta = f_h, lam = 2 f_r

Newton's method on these stationarity equations in (h, rho), from the marginals reported; where that fails, damped
natural-gradient steps that never lower the ELBO come first. What is still missing is bounded by the strong concavity
of -KL, so a bad optimum of the judge's own is noticed and not held against the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal as D
from typing import Any

import numpy as np

from .bounds import scalar_row, softmax_row
from .decimals import ONE, ZERO, cholesky, eliminate, exact, forward, identity


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

    def part(self, n: int) -> tuple[dict[str, Any], int]:
        """The likelihood of a row, and the row's place among those that share it."""
        like = self.likelihood
        if like["name"] != "Mixed":
            return like, n
        return like["parts"][like["which"][n]], int(np.sum(like["which"][:n] == like["which"][n]))

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
                like, k = self.part(n)
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
    M, eye = len(h), identity(len(h))
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
        A = np.block([[eye + S.dot(hh), S.dot(hr)], [square.dot(hr.T), eye + square.dot(rr)]])
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
