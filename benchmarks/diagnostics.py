"""Residual tests on right and wrong models, R^2 beside that of R's performance, and the power of a trial.

    python benchmarks/diagnostics.py tests [--sets 200] [--size 99] [--only ...]
    python benchmarks/diagnostics.py r2
    python benchmarks/diagnostics.py power [--sets 1000]

"tests": of right models, how often each test has p <= 0.05 (it should be 5 %; so should any of them, adjusted), and of
quantile residuals of all data sets together how far their distribution is from uniform; of wrong models the share of
data sets that the test named for them rejects. R's DHARMa, whose tests are alike, was not run: it is not among Debian's
packages.
"r2" reads ``diagnostics.json``, which ``diagnostics.R`` writes. All times are of this process.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import fenchel

_ROWS, _GROUPS = 300, 20


def _base(rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows in groups, and eta with an intercept for each group."""
    data = pd.DataFrame({"x": rng.normal(size=_ROWS), "g": rng.integers(0, _GROUPS, _ROWS)})
    return data, 0.5 + 0.5 * data.x.to_numpy() + 0.5 * rng.normal(size=_GROUPS)[data.g]


def counts(rng: np.random.Generator) -> pd.DataFrame:
    data, eta = _base(rng)
    return data.assign(y=rng.poisson(np.exp(eta)))


def labels(rng: np.random.Generator) -> pd.DataFrame:
    data, eta = _base(rng)
    return data.assign(y=(rng.random(_ROWS) < 1 / (1 + np.exp(-eta))).astype(int))


def numbers(rng: np.random.Generator) -> pd.DataFrame:
    data, eta = _base(rng)
    return data.assign(y=eta + rng.normal(size=_ROWS))


def small_groups(rng: np.random.Generator) -> pd.DataFrame:
    """Groups of three rows with large effects: rows predicted from the others depend on each other."""
    data = pd.DataFrame({"x": rng.normal(size=_ROWS), "g": np.repeat(np.arange(_ROWS // 3), 3)})
    return data.assign(y=0.5 * data.x + 2.0 * rng.normal(size=_ROWS // 3)[data.g] + rng.normal(size=_ROWS))


def overdispersed(rng: np.random.Generator) -> pd.DataFrame:
    data, eta = _base(rng)
    return data.assign(y=rng.poisson(np.exp(eta) * rng.gamma(4.0, 0.25, _ROWS)))


def slopes_missing(rng: np.random.Generator) -> pd.DataFrame:
    data, eta = _base(rng)
    return data.assign(y=eta + 0.4 * rng.normal(size=_GROUPS)[data.g] * data.x + rng.normal(size=_ROWS))


def wrong_link(rng: np.random.Generator) -> pd.DataFrame:
    """The mean is linear in x, and the model takes its log to be."""
    data = pd.DataFrame({"x": rng.uniform(-2.0, 2.0, _ROWS), "g": rng.integers(0, _GROUPS, _ROWS)})
    mean = (4.0 + 1.5 * data.x.to_numpy()) * np.exp(0.2 * rng.normal(size=_GROUPS))[data.g]
    return data.assign(y=rng.poisson(mean))


def extra_zeros(rng: np.random.Generator) -> pd.DataFrame:
    data = counts(rng)
    return data.assign(y=np.where(rng.random(_ROWS) < 0.15, 0, data.y))


def spread_changes(rng: np.random.Generator) -> pd.DataFrame:
    """The sd of the noise grows by a third with each unit of x."""
    data, eta = _base(rng)
    return data.assign(y=eta + np.exp(0.3 * data.x) * rng.normal(size=_ROWS))


Case = tuple[Callable[[np.random.Generator], pd.DataFrame], str, str]
CASES: dict[str, Case] = {  # how data are made, the family fitted, and the test that should see what is wrong
    "counts": (counts, "poisson", ""),
    "labels": (labels, "bernoulli", ""),
    "numbers": (numbers, "gaussian", ""),
    "groups of three": (small_groups, "gaussian", ""),
    "overdispersion": (overdispersed, "poisson", "dispersion"),
    "missing slopes": (slopes_missing, "gaussian", "slope of x by g"),
    "wrong link": (wrong_link, "poisson", "link"),
    "extra zeros": (extra_zeros, "poisson", "zeros"),
    "changing spread": (spread_changes, "gaussian", "spread along x"),
}


def run_tests(sets: int, size: int, only: list[str]) -> None:
    print(f"{_ROWS} rows in {_GROUPS} groups, y ~ x + (1|g), {sets} data sets of each kind, {size} references")
    for name in only or CASES:
        make, family, named = CASES[name]
        begin, p, smallest, uniform = time.process_time(), [], [], []
        for seed in range(sets):
            data = make(np.random.default_rng(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit = fenchel.fit("y ~ x + (1|g)", data, family, accuracy="fast")
                found = fit.residual_tests(size, rng=seed)
                p.append(found["p_value"])
                smallest.append(found["p_adjusted"].min())
                uniform.append(fit.residuals("uniform", rng=seed).to_numpy())
        rejected = (pd.DataFrame(p) <= 0.05).mean()
        rejected["any, adjusted"] = (np.array(smallest) <= 0.05).mean()
        share = rejected.map("{:.0%}".format)
        u = np.sort(np.concatenate(uniform))
        far = np.abs(u - np.linspace(0.0, 1.0, u.size)).max()
        print(f"{name}: {', '.join(f'{test} {value}' for test, value in share.items())}", flush=True)
        seconds = (time.process_time() - begin) / sets
        print(f"  residuals of all sets at most {far:.3f} from uniform; {seconds:.2f} s a set", flush=True)
        if named:
            print(f"  seen by {named!r}: {share[named]}", flush=True)


def run_r2() -> None:
    kept = json.loads((Path(__file__).parent / "diagnostics.json").read_text())
    models = {
        "sleepstudy": ("Reaction ~ Days + (Days|Subject)", "gaussian"),
        "cbpp": ("incidence | trials(size) ~ period + (1|herd)", "binomial"),
        "grouse": ("ticks ~ height + (1|brood)", "poisson"),
    }
    print(f"lme4 {kept['lme4']}, performance {kept['performance']}, R {kept['R']}; fenchel with flat priors")
    for name, (formula, family) in models.items():
        data = pd.DataFrame(kept[name]["data"])
        term = formula[formula.index("(", formula.index("~")) :]
        names = fenchel.Model(formula, data, family).priors.index.get_level_values(0)
        priors = {key: None for key in names if key not in ("noise",)}
        assert term in priors
        fit = fenchel.fit(formula, data, family, priors=priors, accuracy="fast")
        ours, theirs, log_lik = fit.r2(), kept[name]["performance"], fit.log_likelihood()
        (marginal, low, high), (conditional, *_) = ours.to_numpy()[:2]
        print(
            f"{name}: marginal {marginal:.4f} ({low:.2f} to {high:.2f}), performance {theirs['marginal']:.4f}; "
            f"conditional {conditional:.4f}, performance {theirs['conditional']:.4f}; "
            f"log likelihood {log_lik.value:.3f} (df {log_lik.df:.0f}), lme4 {kept[name]['log_lik']:.3f} "
            f"(df {kept[name]['df']})"
        )
        if name == "cbpp":
            groups, reml = fit.variance_shares().loc[term, "variance"], kept[name]["reml"]["groups"]
            print(f"  variance of herds {groups:.3f}, glmer {kept[name]['variances']['groups']:.3f}, REML {reml:.3f}")
        if name == "grouse":
            null, v = kept[name]["null"], fit.variance_shares()["variance"]
            v["residual"] = np.log1p(np.exp(-null["fixed"]))
            own, both = v["fixed"] / v.sum(), 1.0 - v["residual"] / v.sum()
            print(f"  at the mean count of a brood whose effect is 0: marginal {own:.4f}, conditional {both:.4f}")


def run_power(sets: int) -> None:
    plan = pd.DataFrame({"arm": np.tile([0, 1], 200), "site": np.repeat(np.arange(20), 20), "y": np.nan})
    model = fenchel.Model("y ~ arm + (1|site)", plan, "gaussian")
    begin, wall = time.process_time(), time.perf_counter()
    found = fenchel.power(
        model,
        "arm",
        sets,
        coefficients={"Intercept": 0.0, "arm": 0.3},
        hyperparameters={"(1|site)": {"sd": 0.5}, "noise": {"sd": 1.0}},
    )
    took, wall = time.process_time() - begin, time.perf_counter() - wall
    exact = 0.3 / np.sqrt(2 * 1.0 / 200)
    print(found)
    print(found.table.round(3).to_string())
    print(f"{took:.1f} processor seconds, {wall:.1f} s by the clock, {1e3 * took / sets:.0f} ms a refit")
    print(f"a z-test of known variances has power {_z_power(exact):.3f}")


def _z_power(shift: float) -> float:
    from scipy.stats import norm

    return float(norm.sf(1.96 - shift) + norm.cdf(-1.96 - shift))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tests", "r2", "power"])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--size", type=int, default=99)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    if args.what == "tests":
        run_tests(args.sets, args.size, args.only)
    elif args.what == "r2":
        run_r2()
    else:
        run_power(args.sets)
