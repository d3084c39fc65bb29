"""The truth that integration over theta is compared with: the no-U-turn sampler on latents and theta together.

    python benchmarks/integration_reference.py [case ...]        writes integration_reference.json, minutes a case

It needs numpyro, in an environment of its own. Every model is written out below with its priors in numpyro's words, on
latents that are independent a priori, and shares no code with the library but the data. Stored: means, sds and
quantiles of the hyperparameters on the user's scale and of eta at the observations; standard errors of the quantiles
from groups of draws that are nearly independent of each other; the effective number of draws; seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STORE = Path(__file__).with_suffix(".json")
LEVELS, GROUPS = (0.025, 0.5, 0.975), 20
RATE = -np.log(0.01)  # of an exponential sd with P(sd > 1) = 0.01


def slopes_data() -> dict[str, np.ndarray]:
    """60 groups of 8 binary rows with an intercept and a slope each."""
    rng = np.random.default_rng(7)
    g, x = np.repeat(np.arange(60), 8), rng.normal(size=480)
    b = rng.normal(size=(60, 2)) @ np.linalg.cholesky([[1.0, 0.21], [0.21, 0.49]]).T
    eta = -0.3 + 0.8 * x + b[g, 0] + b[g, 1] * x
    return {"y": rng.binomial(1, 1.0 / (1.0 + np.exp(-eta))), "x": x, "g": g}


class Case(NamedTuple):
    """A model of numpyro, what to keep of a draw, and how long to run."""

    model: Callable[[], None]
    kept: tuple[str, ...]
    warmup: int
    draws: int
    accepted: float = 0.8


def germany() -> Case:
    """Poisson counts, BYM2: sd exponential, logit phi ~ N(0, 1.8^2), the intercept N(log(sum y / sum E), 10^2)."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from fenchel.datasets import load_germany

    data = load_germany()
    A = data.adjacency.toarray()
    values, vectors = np.linalg.eigh(np.diag(A.sum(axis=1)) - A)
    root = vectors[:, 1:] / np.sqrt(values[1:])
    root /= np.exp(0.5 * np.log((root**2).sum(axis=1)).mean())
    level, n = np.log(data.Y.sum() / data.E.sum()), data.Y.size

    def model() -> None:
        sd = numpyro.sample("sd", dist.Exponential(RATE))
        logit = numpyro.sample("logit", dist.Normal(0.0, 1.8))
        phi = numpyro.deterministic("phi", 1.0 / (1.0 + jnp.exp(-logit)))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        v = numpyro.sample("v", dist.Normal(jnp.zeros(n), 1.0))
        x = numpyro.sample("x", dist.Normal(jnp.zeros(n - 1), 1.0))
        eta = level + b + sd * (jnp.sqrt(1.0 - phi) * v + jnp.sqrt(phi) * (jnp.asarray(root) @ x))
        numpyro.deterministic("eta", eta)
        numpyro.sample("y", dist.Poisson(data.E * jnp.exp(eta)), obs=data.Y)

    return Case(model, ("sd", "phi"), 1500, 20_000)


def slopes() -> Case:
    """Random intercepts and slopes of binary rows: sds exponential, of x in units of its sd; a uniform correlation."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    data = slopes_data()
    y, g, z = data["y"], data["g"], (data["x"] - data["x"].mean()) / data["x"].std()
    p = y.mean()
    level = np.log(p / (1.0 - p))

    def model() -> None:
        s0 = numpyro.sample("sd at the mean", dist.Exponential(RATE))
        s1 = numpyro.sample("sd of z", dist.Exponential(RATE))
        r = numpyro.sample("correlation at the mean", dist.Uniform(-1.0, 1.0))
        beta = numpyro.sample("beta", dist.Normal(jnp.zeros(2), 10.0))
        e = numpyro.sample("e", dist.Normal(jnp.zeros((60, 2)), 1.0))
        b0, b1 = s0 * e[:, 0], s1 * (r * e[:, 0] + jnp.sqrt(1.0 - r * r) * e[:, 1])
        eta = level + beta[0] + beta[1] * z + b0[g] + b1[g] * z
        numpyro.deterministic("eta", eta)
        c, s = data["x"].mean(), data["x"].std()  # b0 + b1 (x - c) / s: as an intercept where x = 0 and a slope
        var0 = s0**2 - 2.0 * r * s0 * s1 * c / s + (s1 * c / s) ** 2
        numpyro.deterministic("sd intercept", jnp.sqrt(var0))
        numpyro.deterministic("sd x", s1 / s)
        numpyro.deterministic("correlation intercept, x", (r * s0 - s1 * c / s) / jnp.sqrt(var0))
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)

    return Case(model, ("sd intercept", "sd x", "correlation intercept, x"), 1500, 40_000)


def pima() -> Case:
    """A Gaussian process classifier on Ripley's 200 training rows: logs of sd^2 and of the length, each normal."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from fenchel.datasets import load_pima

    data = load_pima()
    X = data.X[data.train]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y, apart = data.y[data.train], ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)

    def model() -> None:
        a = numpyro.sample("log variance", dist.Normal(1.0, 1.5))
        b = numpyro.sample("log length", dist.Normal(1.0, 0.7))
        e = numpyro.sample("e", dist.Normal(jnp.zeros(y.size), 1.0))
        K = jnp.exp(a) * jnp.exp(-0.5 * apart * jnp.exp(-2.0 * b)) + 1e-8 * jnp.exp(a) * jnp.eye(y.size)
        eta = numpyro.deterministic("eta", jnp.linalg.cholesky(K) @ e)
        numpyro.sample("y", dist.Bernoulli(logits=eta), obs=y)

    return Case(model, ("log variance", "log length"), 1000, 12_000)


def volatility() -> Case:
    """Daily returns N(0, e^eta), eta = level + AR(1): sd exponential, 2 atanh phi ~ N(4, 1.5^2), level N(., 10^2)."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax import lax

    from fenchel.datasets import load_stochvol

    y = load_stochvol().returns
    level = np.log(np.mean(y**2))

    def model() -> None:
        sd = numpyro.sample("sd", dist.Exponential(RATE))
        t = numpyro.sample("t", dist.Normal(4.0, 1.5))
        phi = numpyro.deterministic("phi", jnp.tanh(t / 2.0))
        b = numpyro.sample("b", dist.Normal(0.0, 10.0))
        e = numpyro.sample("e", dist.Normal(jnp.zeros(y.size), 1.0))
        step = e * jnp.where(jnp.arange(y.size) == 0, 1.0, jnp.sqrt(1.0 - phi * phi))
        _, x = lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (jnp.full(y.size, phi), step))
        eta = numpyro.deterministic("eta", level + b + sd * x)
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(eta / 2.0)), obs=y)

    return Case(model, ("sd", "phi"), 2000, 40_000, 0.95)  # sd has a long tail where phi is near 1


CASES = {"germany": germany, "slopes": slopes, "volatility": volatility, "pima": pima}


def run(name: str, seed: int = 0) -> dict[str, Any]:
    """One long chain; what is kept of it."""
    import jax
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    case = CASES[name]()
    sampler = MCMC(
        NUTS(case.model, target_accept_prob=case.accepted),
        num_warmup=case.warmup,
        num_samples=case.draws,
        progress_bar=False,
    )
    began = time.perf_counter()
    sampler.run(jax.random.PRNGKey(seed))
    draws = {key: np.asarray(value) for key, value in sampler.get_samples().items()}
    seconds = time.perf_counter() - began
    eta = draws["eta"]
    effective = effective_sample_size(eta[None])
    out: dict[str, Any] = {"seconds": seconds, "draws": case.draws, "eta_effective": float(effective.min())}
    out["eta"] = {"mean": eta.mean(axis=0).round(5).tolist(), "sd": eta.std(axis=0).round(5).tolist()}
    out["theta"] = {}
    for key in case.kept:
        x = draws[key]
        groups = np.quantile(x[: x.size // GROUPS * GROUPS].reshape(GROUPS, -1), LEVELS, axis=1)
        out["theta"][key] = {
            "mean": float(x.mean()),
            "sd": float(x.std()),
            "quantiles": np.quantile(x, LEVELS).tolist(),
            "quantiles_se": (groups.std(axis=1, ddof=1) / np.sqrt(GROUPS)).tolist(),
            "effective": float(effective_sample_size(x[None])),
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[], help=", ".join(CASES))
    names = parser.parse_args().cases or list(CASES)
    import numpyro

    numpyro.enable_x64()
    for name in names:
        found = run(name)
        stored = json.loads(STORE.read_text()) if STORE.exists() else {}
        STORE.write_text(json.dumps({**stored, name: found}) + "\n")
        print(name, f"{found['seconds']:.0f} s", found["theta"], flush=True)


if __name__ == "__main__":
    main()
