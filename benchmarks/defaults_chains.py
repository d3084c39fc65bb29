"""Truth for ``defaults.py`` where no quadrature has it: crossed and nested groups, and partial likelihoods, by MCMC.

Coefficients and effects given the sds: Hamiltonian steps in units of the curvature at their mode. Each log sd: a slice
given its effects, and another with the effects scaled along with it, which is what keeps sds moving where groups are
small (Yu and Meng 2011). The likelihood's own parameters: slices. ``Truth.share`` is the effective share of the draws.
Nothing of fenchel is used. ``python benchmarks/defaults.py --chains`` runs them and stores the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from defaults_truth import FIXED_SD, LIKELIHOODS, Group, Standardised, Truth
from scipy.special import expit

LEAPS = 8
STEP = 1.3  # times the fourth root of the dimension
BURN = 0.15
Density = Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]]  # (eta, own) -> log p(y), slopes in eta


def labels(y: np.ndarray) -> Density:
    def density(eta: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
        return float(-np.logaddexp(0.0, np.where(y > 0, -eta, eta)).sum()), y - expit(eta)

    return density


def counts(y: np.ndarray) -> Density:
    def density(eta: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
        mean = np.exp(eta)
        return float((y * eta - mean).sum()), y - mean

    return density


def dispersed(y: np.ndarray) -> Density:
    log_p = LIKELIHOODS["negative-binomial"]

    def density(eta: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
        r = np.exp(own[0])
        return float(log_p(y, eta[:, None], own).sum()), y - (y + r) * expit(eta - own[0])

    return density


def partial(time: np.ndarray, event: np.ndarray) -> Density:
    """Cox's, ties by Breslow: a baseline of any form is integrated out."""
    order = np.argsort(-time, kind="stable")
    t, d = time[order], event[order].astype(float)
    last = np.searchsorted(-t, -t, side="right") - 1  # of all that are at risk when t ends

    def density(eta: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
        e = eta[order]
        top = e.max()
        w = np.maximum(np.exp(e - top), 1e-300)
        risk = np.cumsum(w)[last]
        value = float((d * (e - top - np.log(risk))).sum())
        hazard = np.cumsum((d / risk)[::-1])[::-1]  # events at or after each place, by descending time
        first = np.searchsorted(-t, -t, side="left")
        slope = np.empty_like(e)
        slope[order] = d - w * hazard[first]
        return value, slope

    return density


class Model:
    """eta = level + X beta + sum of effects; u holds beta and the effects of every factor."""

    def __init__(self, X: np.ndarray, groups: Sequence[Group], density: Density, level: float, intercept: bool) -> None:
        self.made = Standardised(X, intercept)
        self.X, self.groups, self.density = self.made.X, groups, density
        self.level, self.p = level, self.X.shape[1]
        ends = np.cumsum([self.p, *(g.levels for g in groups)])
        self.parts = [slice(a, b) for a, b in pairwise(ends)]
        self.size = int(ends[-1])

    def eta(self, u: np.ndarray) -> np.ndarray:
        out = self.level + self.X @ u[: self.p]
        for group, part in zip(self.groups, self.parts, strict=True):
            out = out + u[part][group.codes]
        return out

    def posterior(self, u: np.ndarray, theta: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(y, u | theta) up to what theta alone has, and its slopes in u."""
        value, s = self.density(self.eta(u), own)
        slope = np.empty(self.size)
        slope[: self.p] = s @ self.X - u[: self.p] / FIXED_SD**2
        value -= 0.5 * float(u[: self.p] @ u[: self.p]) / FIXED_SD**2
        for group, part, t in zip(self.groups, self.parts, theta, strict=True):
            precision = np.exp(-2.0 * t)
            slope[part] = np.bincount(group.codes, s, group.levels) - precision * u[part]
            value -= 0.5 * precision * float(u[part] @ u[part])
        return value, slope

    def curvature(self, u: np.ndarray, theta: np.ndarray, own: np.ndarray) -> np.ndarray:
        step = 1e-4
        H = np.empty((self.size, self.size))
        for i in range(self.size):
            e = np.zeros(self.size)
            e[i] = step
            H[i] = self.posterior(u - e, theta, own)[1] - self.posterior(u + e, theta, own)[1]
        return (H + H.T) / (4.0 * step)

    def mode(self, theta: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u = np.zeros(self.size)
        for _ in range(30):
            value, slope = self.posterior(u, theta, own)
            H, share = self.curvature(u, theta, own), 1.0
            move = np.linalg.solve(H, slope)
            while share > 1e-3 and not self.posterior(u + share * move, theta, own)[0] > value:
                share /= 2
            u = u + share * move
            if np.abs(move).max() < 1e-4:
                break
        return u, self.curvature(u, theta, own)


def slice_step(f: Callable[[float], float], x: float, width: float, rng: np.random.Generator) -> float:
    """One step of slice sampling, widened and shrunk (Neal 2003)."""
    height = f(x) + np.log(rng.random())
    low = x - width * rng.random()
    high = low + width
    while f(low) > height:
        low -= width
    while f(high) > height:
        high += width
    while True:
        new = rng.uniform(low, high)
        if f(new) > height:
            return float(new)
        low, high = (new, high) if new < x else (low, new)


def run(
    model: Model,
    theta: np.ndarray,
    own: np.ndarray,
    size: float,
    own_prior: Callable[[np.ndarray], float],
    n: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Draws of beta in the user's units (n, p) and of the sds (n, factors), and the share of steps that were taken."""
    rng = np.random.default_rng(seed)
    u, H = model.mode(theta, own)
    root = np.linalg.inv(np.linalg.cholesky(H)).T  # root root' = H^-1
    step0 = STEP / model.size**0.25
    theta, own = theta.copy(), own.copy()
    betas, sds, taken, burn = [], [], 0, int(BURN * n)
    for i in range(n + burn):
        z, step = rng.standard_normal(model.size), step0 * rng.uniform(0.7, 1.0)
        value, slope = model.posterior(u, theta, own)
        new, pace, kinetic = u, z, 0.5 * float(z @ z)
        g, reached = root.T @ slope, value
        for _ in range(int(rng.integers(LEAPS // 2, LEAPS + 1))):
            pace = pace + 0.5 * step * g
            new = new + step * (root @ pace)
            reached, slope = model.posterior(new, theta, own)
            g = root.T @ slope
            pace = pace + 0.5 * step * g
        if np.log(rng.random()) < reached - value + kinetic - 0.5 * float(pace @ pace):
            u, taken = new, taken + 1
        base = model.eta(u)
        for k, part in enumerate(model.parts):
            group, square = model.groups[k], float(u[part] @ u[part])
            levels = group.levels

            def given(t: float, square: float = square, levels: int = levels) -> float:
                return t - 0.5 * (np.exp(t) / size) ** 2 - levels * t - 0.5 * square * np.exp(-2.0 * t)

            theta[k] = slice_step(given, theta[k], 0.5, rng)
            at, effect = theta[k], u[part][group.codes]

            def scaled(t: float, at: float = at, effect: np.ndarray = effect, base: np.ndarray = base) -> float:
                eta = base + np.expm1(t - at) * effect
                return t - 0.5 * (np.exp(t) / size) ** 2 + model.density(eta, own)[0]

            theta[k] = slice_step(scaled, at, 0.3, rng)
            base = base + np.expm1(theta[k] - at) * effect
            u[part] *= np.exp(theta[k] - at)
        for j in range(own.size):

            def alone(t: float, j: int = j, base: np.ndarray = base) -> float:
                other = own.copy()
                other[j] = t
                return own_prior(other) + model.density(base, other)[0]

            own[j] = slice_step(alone, own[j], 0.3, rng)
        if i >= burn:
            betas.append(model.made.back @ u[: model.p])
            sds.append(np.exp(theta))
    return np.array(betas), np.array(sds), taken / (n + burn)


def effective(x: np.ndarray) -> float:
    """Effective share of draws, by sums of autocorrelations in pairs until one is negative (Geyer)."""
    x = x - x.mean()
    f = np.fft.rfft(x, 2 * x.size)
    rho = np.fft.irfft(f * np.conj(f))[: x.size]
    rho = rho / rho[0]
    pairs = rho[0 : x.size - 1 : 2] + rho[1 : x.size : 2]
    end = int(np.argmax(pairs < 0.0)) if (pairs < 0.0).any() else pairs.size
    return float(min(1.0, 1.0 / max(1e-9, 2.0 * pairs[:end].sum() - 1.0)))


def chain_truth(
    X: np.ndarray, density: Density, groups: Sequence[Group], size: float, level: float, own: np.ndarray,
    own_prior: Callable[[np.ndarray], float], start: Any, draws: int, intercept: bool = True,
) -> tuple[Truth, dict[str, float]]:  # fmt: skip
    """By two chains; and how far they are apart in sds, the share of steps taken, and effective draws."""
    model = Model(X, groups, density, level, intercept)
    theta = np.log(np.maximum(np.asarray(start, dtype=float), 0.1))
    found = [run(model, theta, own, size, own_prior, draws // 2, seed) for seed in (0, 1)]
    beta, sds = (np.concatenate([one[i] for one in found]) for i in (0, 1))
    whole = [np.hstack([one[0], one[1]]) for one in found]
    every = np.concatenate(whole)
    apart = float(np.abs((whole[0].mean(0) - whole[1].mean(0)) / every.std(0)).max())
    share = min(effective(column) for one in whole for column in one.T)
    shift = np.eye(beta.shape[1])[0] * level if intercept else 0.0
    truth = Truth(beta.mean(0) + shift, beta.std(0), sds.mean(0), sds.std(0), np.median(sds, axis=0), share)
    return truth, {"apart": apart, "taken": found[0][2], "draws": float(draws), "effective": share * draws}
