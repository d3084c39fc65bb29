"""Hyperparameters integrated out, beside long MCMC with theta sampled too (``integration_reference.json``).

    python benchmarks/integration.py [case ...]     about a minute on one core
    python benchmarks/integration.py --six          a model of six hyperparameters by a composite design: counts fits

Errors of eta are averages over the observations: of means in the reference's sds, of sds as |log ratio|. Errors of a
hyperparameter are those of its 2.5, 50 and 97.5 % points in its sds, with the reference's standard errors below. Beside
it the learned theta plugged in, with q as it is and with Laplace's approximation. One learned fit takes "learned"
seconds, everything takes "integrated" and as many of those as "ratio" says; "of the processor" are those that a quiet
machine would need.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from integration_reference import STORE, slopes_data

import fenchel
from fenchel import gmrf
from fenchel.hyperparameters import Family, KernelCovariance, Learned, Normal, PCDeviation, independent, learn
from fenchel.hyperparameters.integration import integrate
from fenchel.likelihoods import BernoulliLogit, StochasticVolatility
from fenchel.likelihoods.base import Likelihood
from fenchel.models.tables import described_theta
from fenchel.paper.rivals import laplace

LEVELS = (0.025, 0.5, 0.975)
OF_REFERENCE = fenchel.PC(sd=1, alpha=0.01)  # the prior of sds there


class Case(NamedTuple):
    """A model, and theta as the reference has it."""

    likelihood: Likelihood
    family: Callable[[], Family]
    y: np.ndarray
    told: Callable[[Learned], Callable[[np.ndarray], list[float]]]


def of_model(formula: str, data: Any, **options: Any) -> Case:
    model = fenchel.Model(formula, data, **options)

    def told(mode: Learned) -> Callable[[np.ndarray], list[float]]:
        from fenchel.models.fitted import FittedModel

        fit = FittedModel(model, mode)
        return lambda theta: [row[2] for row in described_theta(fit, theta)]

    return Case(model.target.likelihood, model.sum.family, model.target.y, told)


def germany() -> Case:
    from fenchel.datasets import load_germany

    data = load_germany()
    frame = pd.DataFrame({"y": data.Y, "E": data.E, "district": np.arange(data.Y.size)})
    graphs = {"district": data.adjacency}
    priors = {"bym2(district)": {"sd": OF_REFERENCE}}
    return of_model("y ~ bym2(district)", frame, family="poisson", exposure="E", graphs=graphs, priors=priors)


def slopes() -> Case:
    data = pd.DataFrame(slopes_data())
    of_x = fenchel.PC(sd=1 / float(data["x"].std(ddof=0)), alpha=0.01)  # in units of its sd there
    priors = {"(x|g)": {"sd intercept (at the mean)": OF_REFERENCE, "sd x": of_x}}
    return of_model("y ~ x + (x|g)", data, family="bernoulli", priors=priors)


def volatility() -> Case:
    from fenchel.datasets import load_stochvol

    y = load_stochvol().returns
    prior = independent({0: PCDeviation(1.0, 0.01), 1: Normal(4.0, 1.5)})

    def family() -> Family:
        chain = gmrf.ar1(y.size, 0.95, 0.5)
        field = gmrf.MarkovField(chain.build, chain.theta, chain.names, chain.bounds, log_prior=prior)
        return gmrf.stack([(field, np.arange(y.size))], fixed_variance=100.0, offset=float(np.log(np.mean(y**2))))

    return Case(StochasticVolatility(), family, y, lambda mode: lambda t: [np.exp(t[0]), np.tanh(t[1] / 2)])


def pima() -> Case:
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from fenchel.datasets import load_pima

    data = load_pima()
    X = data.X[data.train]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    prior = independent({0: Normal(1.0, 1.5), 1: Normal(1.0, 0.7)})
    kernel = ConstantKernel(2.0, (1e-4, 1e4)) * RBF(2.0, (1e-2, 1e3))
    y = data.y[data.train]
    return Case(BernoulliLogit("exact"), lambda: KernelCovariance(kernel, X, log_prior=prior), y, lambda mode: list)


CASES = {"germany": germany, "slopes": slopes, "volatility": volatility, "pima": pima}


def clock(run: Callable[[], Any]) -> tuple[Any, np.ndarray]:
    """What comes back, with its seconds by the clock and of the processor."""
    began = np.array([time.perf_counter(), time.process_time()])
    out = run()
    return out, np.array([time.perf_counter(), time.process_time()]) - began


def eta_errors(eta: Any, stored: dict[str, list[float]]) -> str:
    mean, sd = np.array(stored["mean"]), np.array(stored["sd"])
    off, ratio = np.abs(np.asarray(eta.mean) - mean) / sd, np.abs(np.log(np.asarray(eta.sd) / sd))
    return f"{off.mean():>9.4f}{ratio.mean():>9.4f}"


def report(name: str, stored: dict[str, Any]) -> None:
    case = CASES[name]()
    learn(case.likelihood, case.family(), case.y).solution.corrected()  # what is compiled is compiled
    mode, single = clock(lambda: learn(case.likelihood, case.family(), case.y))
    found, rest = clock(lambda: integrate(case.likelihood, case.family(), case.y, mode=mode))
    _, marginals = clock(lambda: (found.mean, found.sd))
    least = min(each["effective"] for each in stored["theta"].values())
    total = single + rest
    print(f"\n{name}: {found.status}")
    print(f"  log evidence {found.log_evidence:.3f}, error about {found.log_evidence_error:.2g}")
    for word, k in (("seconds", 0), ("of the processor", 1)):
        print(f"  {word}: learned {single[k]:.2f}, integrated {total[k]:.2f}, ratio {total[k] / single[k]:.1f}", end="")
        print(f", marginals {marginals[k]:.2f}")
    print(f"  fits: {mode.n_evaluations} to the mode, {found.n_fits} for the rest")
    print(f"  the reference: {stored['seconds']:.0f} s for {least:.0f} effective draws of theta", end="")
    nuts = 1000 * stored["seconds"] / least
    shares = [f"1/{nuts / each:.1f}" for each in total]
    print(f", {nuts:.0f} s for 1,000: integrated in {shares[0]} of that, {shares[1]} by the processor")
    print(f"  {'eta':<34}{'mean':>9}{'sd':>9}")
    print(f"  {'integrated':<34}{eta_errors(found, stored['eta'])}")
    print(f"  {'learned theta, q':<34}{eta_errors(mode.solution.posterior, stored['eta'])}")
    plain = mode.likelihood if mode.likelihood.objective.convex else BernoulliLogit("log-sum")
    other = laplace(plain, mode.prior, case.y)  # whose approximation knows of no bound
    print(f"  {'learned theta, Laplace':<34}{eta_errors(other.posterior, stored['eta'])}")
    values = found.theta.of(case.told(mode), size=8192)  # as the table of a model does
    points = values.quantile(LEVELS)
    print(f"  {'theta':<34}{'2.5 %':>9}{'50 %':>9}{'97.5 %':>9}")
    for row, (key, each) in zip(points, stored["theta"].items(), strict=True):
        off, se = (np.abs(row - each["quantiles"]), np.array(each["quantiles_se"]))
        print(f"  {key:<34}" + "".join(f"{v:>9.3f}" for v in off / each["sd"]))
        print(f"  {'  +- se of the reference':<34}" + "".join(f"{v:>9.3f}" for v in se / each["sd"]))


def six() -> None:
    """Two groups with intercepts and slopes, counts: sds and correlations, six of them."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=600), "a": rng.integers(0, 30, 600), "b": rng.integers(0, 20, 600)})
    eta = 0.7 + 0.3 * frame["x"]
    for name, n in (("a", 30), ("b", 20)):
        eta += (0.5 * rng.normal(size=n))[frame[name]] + (0.3 * rng.normal(size=n))[frame[name]] * frame["x"]
    frame["y"] = rng.poisson(np.exp(eta))
    case = of_model("y ~ x + (x|a) + (x|b)", frame, family="poisson")
    mode, single = clock(lambda: learn(case.likelihood, case.family(), case.y))
    found, rest = clock(lambda: integrate(case.likelihood, case.family(), case.y, mode=mode))
    print(f"\nsix hyperparameters: {found.status}")
    print(f"  method {found.method}, log evidence {found.log_evidence:.3f}, error about {found.log_evidence_error:.2g}")
    print(f"  seconds: learned {single[0]:.2f}, integrated {single[0] + rest[0]:.2f}")
    print(f"  fits: {mode.n_evaluations} to the mode, {found.n_fits} for the rest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--six", action="store_true")
    args = parser.parse_args()
    stored = json.loads(STORE.read_text())
    for name in args.cases or ([] if args.six else list(CASES)):
        report(name, stored[name])
    if args.six:
        six()


if __name__ == "__main__":
    main()
