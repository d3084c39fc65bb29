"""The truth to compare with: long elliptical slice sampling and annealed importance sampling, stored in a file.

    OPENBLAS_NUM_THREADS=1 python benchmarks/accuracy_reference.py               writes accuracy_reference.json, minutes
    OPENBLAS_NUM_THREADS=1 python benchmarks/accuracy_reference.py --quantiles   writes accuracy_quantiles.json, minutes

Posterior p(f | y) with f = mt + R u, u ~ N(0, I), R R' = K, at fixed hyperparameters. Any Gaussian may carry the prior:

    q0(f) = N(f; mt, K) exp(b'f - f' Lam f/2) / Z0,     p(y, f) = q0(f) Z0 w(f)
    log w(f) = sum_n [ log p(y_n | f_n) - b_n f_n + lam_n f_n^2/2 ]

Elliptical slice sampling (Murray, Adams and MacKay 2010) under q0 with w in place of the likelihood leaves p(f | y)
invariant whatever (b, lam) are; good ones only make it mix. They come from a few damped natural-gradient steps below,
weakened by a tenth so that q0 has the wider tails. Nothing here uses the library's likelihoods, priors or solvers.

Evidence: annealed importance sampling (Neal 2001) along q0 w^t, t from 0 to 1, gives Z/Z0 without bias; the same path
walked back from draws of the posterior gives Z0/Z without bias, so that the two logarithms err to opposite sides. Their
mean is the reference, and half their distance is part of its standard error.

Effective sample size: Geyer's initial monotone sequence (1992) over all chains, of f_n and of (f_n - mean)^2, the
smaller; R-hat over chains cut in halves.

Quantiles of the marginals (three of the cases, chains of their own): over all draws; their standard errors from the
quantiles of GROUPS groups of chains, which know nothing of each other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import expit, gammaln
from sklearn.datasets import load_breast_cancer
from sklearn.gaussian_process.kernels import RBF

from fenchel.datasets import load_coal, load_glass, load_pima, load_stochvol

STORE = Path(__file__).with_suffix(".json")
CHAINS, BURN, STEPS, THIN = 64, 1000, 40_000, 10
PARTICLES, TEMPERATURES, MOVES = 2048, 60, 2
SEED = 20130616
QUANTILES = STORE.with_name("accuracy_quantiles.json")
LEVELS, GROUPS = (0.025, 0.5, 0.975), 16
SKEWED = ("Pima, wide", "Glass, wide", "Coal disasters")  # the cases whose quantiles are kept
INTERCEPT = 10.0  # prior variance of the level of counts and volatilities

Loss = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]  # y, f -> psi = -log p, psi', psi''


def bernoulli(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, ...]:
    p = expit(f)
    return np.maximum(f, 0.0) + np.log1p(np.exp(-np.abs(f))) - y * f, p - y, p * (1 - p)


def poisson(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, ...]:
    rate = np.exp(f)
    return rate - y * f + gammaln(y + 1), rate - y, rate


def volatility(y: np.ndarray, f: np.ndarray) -> tuple[np.ndarray, ...]:
    bend = y**2 / 2 * np.exp(-f)
    return f / 2 + bend + 0.5 * np.log(2 * np.pi), 0.5 - bend, bend


LOSSES: dict[str, Loss] = {"bernoulli": bernoulli, "poisson": poisson, "volatility": volatility}


@dataclass(frozen=True)
class Case:
    """One data set at one setting of the hyperparameters: f ~ N(0, K), y_n ~ p(y | f_n).

    data : the numbers as they were loaded, for the checksum
    setting : what was done with them, in words
    """

    name: str
    setting: str
    kind: str
    y: np.ndarray
    K: np.ndarray
    data: np.ndarray

    @property
    def checksum(self) -> str:
        """SHA-256 of the data, the targets and the setting; K follows from them."""
        digest = hashlib.sha256(f"{self.name}: {self.setting}: {self.kind}".encode())
        for part in (self.data, self.y):
            digest.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
        return digest.hexdigest()


def classified(name: str, X: np.ndarray, y: np.ndarray, variance: float, length: float, words: str = "") -> Case:
    """A Gaussian process on standardised inputs seen through a logistic."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    setting = f"{words}RBF, signal variance {variance:g}, length {length:g}"
    return Case(name, setting, "bernoulli", y.astype(float), variance * RBF(length)(Z), X)


def cases() -> list[Case]:
    """The table's rows: signal variances near the best evidence of the length, and two wide ones."""
    pima, glass, coal, pound = load_pima(), load_glass(), load_coal(), load_stochvol()
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(y.size)[:250]
    train, fragment = (pima.X[pima.train], pima.y[pima.train]), (glass.X, glass.y == 0)
    building = "float-processed building windows against the rest, "
    years = coal.year[:, None]
    lag = np.abs(np.subtract.outer(np.arange(pound.returns.size), np.arange(pound.returns.size)))
    return [
        classified("Pima", *train, 4.0, 4.0, "training rows, "),
        classified("Pima, wide", *train, 50.0, 2.0, "training rows, "),
        classified("Breast cancer", X[rows], y[rows], 25.0, 5.0, "250 rows drawn with seed 0, "),
        classified("Glass", *fragment, 9.0, 3.0, building),
        classified("Glass, wide", *fragment, 50.0, 2.0, building),
        Case(
            "Coal disasters",
            f"yearly counts, RBF, signal variance 0.8, length 20 years, level of variance {INTERCEPT:g}",
            "poisson",
            coal.count,
            0.8 * RBF(20.0)(years) + INTERCEPT,
            coal.year,
        ),
        Case(
            "Pound/dollar",
            f"daily returns, AR(1), variance 0.5, phi 0.98, level of variance {INTERCEPT:g}",
            "volatility",
            pound.returns,
            0.5 * 0.98**lag + INTERCEPT,
            pound.returns,
        ),
    ]


def square_root(K: np.ndarray) -> np.ndarray:
    """R with R R' = K, without the directions that are rounding (N, r)."""
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-13 * values[-1]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


class Carrier:
    """q0, and log w relative to it, for rows of f that are deviations from the mean of q0.

    Parameters
    ----------
    loss, y, R : the model, f = R u a priori
    b, lam : arrays (N,)
        Sites of q0; zeros make it the prior.
    """

    def __init__(self, loss: Loss, y: np.ndarray, R: np.ndarray, b: np.ndarray, lam: np.ndarray) -> None:
        L = cholesky(np.eye(R.shape[1]) + R.T @ (lam[:, None] * R), lower=True)
        root = solve_triangular(L, R.T, lower=True)  # root' root = Cov of q0
        c = root @ b
        self.loss, self.y, self.b, self.lam, self.root = loss, y, b, lam, root
        self.mean, self.variance = root.T @ c, np.sum(root**2, axis=0)
        self.log_z0 = 0.5 * float(c @ c) - float(np.log(np.diag(L)).sum())

    def draw(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Deviations from the mean of q0 (rows, N)."""
        return rng.standard_normal((rows, self.root.shape[0])) @ self.root

    def log_weight(self, d: np.ndarray) -> np.ndarray:
        """log w of each row (rows,)."""
        f = self.mean + d
        with np.errstate(over="ignore"):
            each = -self.loss(self.y, f)[0] + f * (0.5 * self.lam * f - self.b)
        return np.sum(each, axis=1)


def fitted(loss: Loss, y: np.ndarray, R: np.ndarray, weaken: float = 0.9) -> Carrier:
    """A good q0: lam = E[psi''], b = lam h - E[psi'], at zero variance first (the mode), then at that of q0."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(40)
    mass = mass / mass.sum()
    b, lam = np.zeros(y.size), np.full(y.size, 0.1)
    for k in range(60):
        q = Carrier(loss, y, R, b, lam)
        h, sd = q.mean, np.sqrt(q.variance) * (k >= 30)
        slope, bend = (part @ mass for part in loss(y[:, None], h[:, None] + sd[:, None] * nodes)[1:])
        b, lam = 0.5 * b + 0.5 * (bend * h - slope), 0.5 * lam + 0.5 * bend
    h = Carrier(loss, y, R, b, lam).mean
    lam_weak = weaken * lam
    return Carrier(loss, y, R, b + (lam_weak - lam) * h, lam_weak)  # the sites' slopes at h stay as they are


def slice_step(q: Carrier, d: np.ndarray, value: np.ndarray, t: float, rng: np.random.Generator) -> None:
    """One elliptical slice step of every row under q0 w^t, in place; ``value`` is log w of the rows."""
    rows = d.shape[0]
    other = q.draw(rng, rows)
    floor = t * value - rng.standard_exponential(rows)
    angle = rng.uniform(0.0, 2 * np.pi, rows)
    low, high = angle - 2 * np.pi, angle.copy()
    todo = np.arange(rows)
    while todo.size:
        new = d[todo] * np.cos(angle[todo])[:, None] + other[todo] * np.sin(angle[todo])[:, None]
        seen = q.log_weight(new)
        taken = t * seen >= floor[todo]
        d[todo[taken]], value[todo[taken]] = new[taken], seen[taken]
        todo = todo[~taken]
        below = angle[todo] < 0.0
        low[todo[below]], high[todo[~below]] = angle[todo[below]], angle[todo[~below]]
        angle[todo] = rng.uniform(low[todo], high[todo])


def sample(
    q: Carrier, rng: np.random.Generator, chains: int, burn: int, steps: int, thin: int, wide: float = 1.5
) -> np.ndarray:
    """Draws of p(f | y) (chains, steps / thin, N) in float32, as deviations from the mean of q0."""
    d = wide * q.draw(rng, chains)  # starts wider than q0, so that R-hat has something to see
    value = q.log_weight(d)
    kept = np.empty((chains, steps // thin, d.shape[1]), dtype=np.float32)
    for k in range(burn + steps // thin * thin):
        slice_step(q, d, value, 1.0, rng)
        if k >= burn and (k - burn) % thin == thin - 1:
            kept[:, (k - burn) // thin] = d
    return kept


def anneal(
    q: Carrier, rng: np.random.Generator, particles: int, temperatures: int, moves: int, back: np.ndarray | None = None
) -> tuple[float, float]:
    """log Z and its standard error, from q0 to the posterior; from draws ``back`` of the posterior to q0 if given."""
    d = q.draw(rng, particles) if back is None else np.array(back, dtype=float)
    path = np.linspace(0.0, 1.0, temperatures + 1)[:: 1 if back is None else -1]
    value, log_ratio = q.log_weight(d), np.zeros(d.shape[0])
    for here, there in pairwise(path):
        log_ratio += (there - here) * value
        for _ in range(moves):
            slice_step(q, d, value, there, rng)
    top = log_ratio.max()
    ratio = np.exp(log_ratio - top)
    error = float(ratio.std() / ratio.mean() / np.sqrt(ratio.size))
    log_z = float(top + np.log(ratio.mean()))
    return q.log_z0 + (log_z if back is None else -log_z), error


def effective_size(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Effective sample size and split R-hat of each coordinate of x (chains, steps, N).

    Autocorrelation at lag t is 1 - (W - mean autocovariance at t) / V with W the variance within chains and V the
    pooled one. Geyer: sums of neighbouring pairs, up to the first negative one, made to decrease.
    """
    half = x.shape[1] // 2
    x = np.concatenate([x[:, :half], x[:, half : 2 * half]]).astype(float)
    chains, n, _ = x.shape
    centred = x - x.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    cov = np.fft.irfft(spectrum.mean(axis=0), axis=0)[:n] / n
    within = cov[0] * n / (n - 1)
    pooled = cov[0] + x.mean(axis=1).var(axis=0, ddof=1)
    rho = 1.0 - (within - cov * n / (n - 1)) / pooled
    rho[0] = 1.0
    pairs = rho[0 : n // 2 * 2 : 2] + rho[1 : n // 2 * 2 : 2]
    alive = np.cumprod(pairs > 0.0, axis=0)
    pairs = np.minimum.accumulate(np.where(alive, pairs, 0.0), axis=0)
    time_scale = np.maximum(-1.0 + 2.0 * pairs.sum(axis=0), 1e-3)
    return chains * n / time_scale, np.sqrt(pooled / within)


def moments(kept: np.ndarray, block: int = 25) -> dict[str, np.ndarray]:
    """Mean (as a deviation), sd, their standard errors, the smaller effective size and R-hat of each coordinate."""
    out: dict[str, list[np.ndarray]] = {key: [] for key in ("mean", "sd", "mean_se", "sd_se", "ess", "rhat")}
    for i in range(0, kept.shape[2], block):
        x = kept[:, :, i : i + block].astype(float)
        mean = x.mean(axis=(0, 1))
        square = (x - mean) ** 2
        variance = square.mean(axis=(0, 1))
        (size, rhat), (size2, rhat2) = effective_size(x), effective_size(square)
        sd_se = np.sqrt(square.var(axis=(0, 1)) / size2) / (2 * np.sqrt(variance))
        parts = (mean, np.sqrt(variance), np.sqrt(variance / size), sd_se, np.minimum(size, size2))
        for key, value in zip(out, (*parts, np.maximum(rhat, rhat2)), strict=True):
            out[key].append(value)
    return {key: np.concatenate(value) for key, value in out.items()}


def reference(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """Everything that is stored of one case."""
    began = time.perf_counter()
    q = fitted(LOSSES[case.kind], case.y, square_root(case.K))
    kept = sample(q, rng, CHAINS, BURN, STEPS, THIN)
    found = moments(kept)
    forward, forward_se = anneal(q, rng, PARTICLES, TEMPERATURES, MOVES)
    spread = kept.reshape(-1, kept.shape[2])[:: kept.shape[0] * kept.shape[1] // PARTICLES][:PARTICLES]
    reverse, reverse_se = anneal(q, rng, PARTICLES, TEMPERATURES, MOVES, spread)
    se = np.hypot(0.5 * np.hypot(forward_se, reverse_se), 0.5 * (forward - reverse))
    return {
        "checksum": case.checksum,
        "setting": case.setting,
        "rows": case.y.size,
        "log_evidence": round((forward + reverse) / 2, 5),
        "log_evidence_se": round(float(se), 5),
        "forward": [round(forward, 5), round(forward_se, 5)],
        "reverse": [round(reverse, 5), round(reverse_se, 5)],
        "min_ess": int(found["ess"].min()),
        "max_rhat": round(float(found["rhat"].max()), 5),
        "mean": [float(f"{x:.7g}") for x in q.mean + found["mean"]],
        "sd": [float(f"{x:.7g}") for x in found["sd"]],
        "mean_se": [float(f"{x:.3g}") for x in found["mean_se"]],
        "sd_se": [float(f"{x:.3g}") for x in found["sd_se"]],
        "seconds": round(time.perf_counter() - began, 1),
    }


def quantiles(kept: np.ndarray, levels: tuple[float, ...] = LEVELS, groups: int = GROUPS) -> tuple[np.ndarray, ...]:
    """Quantiles of each coordinate of draws (chains, steps, N), and their standard errors: (N, Q) both."""
    apart = kept.reshape(groups, -1, kept.shape[2])
    each = np.stack([np.quantile(group, levels, axis=0) for group in apart])  # (groups, Q, N)
    whole = np.quantile(kept.reshape(-1, kept.shape[2]), levels, axis=0)
    return whole.T, each.std(axis=0, ddof=1).T / np.sqrt(groups)


def quantile_reference(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """What is stored of the quantiles of one case."""
    began = time.perf_counter()
    q = fitted(LOSSES[case.kind], case.y, square_root(case.K))
    found, se = quantiles(sample(q, rng, CHAINS, BURN, STEPS, THIN))
    return {
        "checksum": case.checksum,
        "levels": LEVELS,
        "quantile": [[float(f"{x:.6g}") for x in row] for row in q.mean[:, None] + found],
        "quantile_se": [[float(f"{x:.3g}") for x in row] for row in se],
        "seconds": round(time.perf_counter() - began, 1),
    }


def settings() -> dict[str, int]:
    """What the sampler was told."""
    return {
        "chains": CHAINS,
        "burn": BURN,
        "steps": STEPS,
        "thin": THIN,
        "particles": PARTICLES,
        "temperatures": TEMPERATURES,
        "moves": MOVES,
        "seed": SEED,
    }


def store(path: Path, told: dict[str, int], found: dict[str, Any]) -> None:
    """One line a case, so that a diff names what changed."""
    head = f'"settings": {json.dumps(told)},\n"numpy": {json.dumps(np.__version__)}'
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(r)}" for name, r in found.items())
    path.write_text(f'{{{head},\n"cases": {{\n{lines}\n}}}}\n')


def write_quantiles() -> None:
    """accuracy_quantiles.json, with a stream of its own for every case."""
    found = {}
    streams = np.random.SeedSequence(SEED + 1).spawn(len(cases()))
    for case, stream in zip(cases(), streams, strict=True):
        if case.name in SKEWED:
            found[case.name] = r = quantile_reference(case, np.random.default_rng(stream))
            print(f"{case.name:<16}{np.max(r['quantile_se']):>9.4f} largest standard error{r['seconds']:>8.0f} s")
    chains = {key: value for key, value in settings().items() if key in ("chains", "burn", "steps", "thin")}
    store(QUANTILES, {**chains, "seed": SEED + 1, "groups": GROUPS}, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="one case by its name; nothing is stored")
    parser.add_argument("--quantiles", action="store_true", help="quantiles of the marginals instead of the rest")
    args = parser.parse_args()
    if args.quantiles:
        write_quantiles()
        return
    only = args.only
    print(f"{'case':<16}{'rows':>6}{'min ESS':>10}{'R-hat':>9}{'evidence':>12}{'se':>8}{'AIS':>12}{'back':>12}{'s':>8}")
    stored: dict[str, Any] = {}
    streams = np.random.SeedSequence(SEED).spawn(len(cases()))
    for case, stream in zip(cases(), streams, strict=True):
        if only is not None and case.name != only:
            continue
        r = reference(case, np.random.default_rng(stream))
        stored[case.name] = r
        print(
            f"{case.name:<16}{r['rows']:>6}{r['min_ess']:>10}{r['max_rhat']:>9.4f}{r['log_evidence']:>12.3f}"
            f"{r['log_evidence_se']:>8.4f}{r['forward'][0]:>12.3f}{r['reverse'][0]:>12.3f}{r['seconds']:>8.0f}",
            flush=True,
        )
    if only is None:
        store(STORE, settings(), stored)


if __name__ == "__main__":
    main()
