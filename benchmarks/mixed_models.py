"""The models of ``examples/mixed_models.py`` beside lme4 and glmmTMB: estimates in standard errors, and seconds.

    OPENBLAS_NUM_THREADS=1 python benchmarks/mixed_models.py [--models sleep ticks] [--repeat 3]
    python benchmarks/mixed_models.py --r        # with Rscript, lme4 and glmmTMB: writes examples/mixed_models.json

Both see the same data under the same priors: flat for sds and correlations, flat (theirs) or very wide (ours) for the
coefficients, which are integrated out of what chooses the sds. A difference is in units of a standard error: of a
coefficient, R's; of an sd, a size or a correlation, that of its log or of its atanh by our interval, on which scale it
is nearly symmetric. R's coefficients are maxima at its sds; "mode" is ours, of each marginal, and it is what is
compared. Seconds are of the processor.

lmer is exact. For the others R has no integral of everything. glmmTMB's REML integrates the coefficients out, by
Laplace's approximation: off where groups have few rows, so far that its sd of a row can lie below that of maximum
likelihood. glmer's quadrature (nAGQ=25, one group alone) has no such error, but maximises over the coefficients, which
puts sds lower by about 1 / sqrt(2 groups) of their se for each coefficient that is constant within groups. Every method
of R is shown; * marks the one that is nearest in kind. Where one group has one effect each, "quadrature" is what R has
not: the likelihood by quadrature and the coefficients integrated out, written here in numpy. Beyond the twelve: the
effect of a row by itself, on which Laplace's error is seen, and few binary rows a group with a large sd and a covariate
that changes within groups, which evidence="corrected" integrates group by group.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))
import mixed_models as examples  # noqa: E402

ALL = examples.EXAMPLES | examples.MORE
BEST = {"toenails": "glmer nAGQ=25", "ticks, chicks alone": "glmer nAGQ=25"}  # else lmer's REML or glmmTMB's


def ask_r(names: list[str]) -> None:
    """Run R on the data of the models and keep what it found, with the checksums of the data."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            ALL[name].data.to_csv(Path(folder) / f"{name}.csv", index=False)
        subprocess.run(["Rscript", str(HERE / "mixed_models.R"), folder], check=True)
        found = json.loads((Path(folder) / "found.json").read_text())
    models = json.loads(examples.STORED.read_text())["models"] if examples.STORED.exists() else {}
    for name, methods in found["models"].items():
        best = BEST.get(name, next(iter(methods)))
        check = examples.checksum(ALL[name].data)
        models[name] = {"checksum": check, "reference": best, "methods": methods}
    kept = {name: models[name] for name in ALL if name in models}
    examples.STORED.write_text(json.dumps({"versions": found["versions"], "models": kept}, indent=1) + "\n")


def difference(key: str, row: object, theirs: float, se: dict[str, float]) -> float:
    """(ours - theirs) / se on the scale on which the estimate is nearly symmetric."""
    if key in se:
        return (row["mode"] - theirs) / se[key]
    scale = np.arctanh if "correlation" in key else np.log
    return float((scale(row["mean"]) - scale(theirs)) / ((scale(row["upper"]) - scale(row["lower"])) / 3.92))


def as_written(model: object) -> np.ndarray:
    """From the coefficients of columns centred before they are multiplied to those of the columns as they come."""
    n = len(model.sum.fixed_names)
    return np.eye(n + 1) if model.fixed.back is None else model.fixed.to_user(True, n)[0]


def modes(fit: object) -> np.ndarray:
    """Where the marginal of each coefficient is highest: beyond the Gaussian, or its mean."""
    mean = fit.coefficients["mean"].to_numpy()
    if fit.found.maximises != "corrected":
        return mean
    T = fit.model.sum.columns.to_user(fit.model.sum.intercept)
    design = np.zeros((mean.size, fit.solution.posterior.latent_mean.shape[0]))
    design[:, -mean.size :] = as_written(fit.model) @ T
    marginals = fit.solution.corrected().at(design=design)
    centre, sd = (np.asarray(v)[:, None] for v in (marginals.mean, marginals.sd))
    x = centre + sd * np.linspace(-1.0, 1.0, 401)
    best = np.take_along_axis(x, np.asarray(marginals.density(x)).argmax(axis=1)[:, None], axis=1)
    return mean + (best - centre)[:, 0]  # what is known beside the latents moves both


class Quadrature:
    """log p(y|sd) of one effect a group: groups by the trapezium, coefficients by Laplace about their maximum.

    The second is exact to 1 / rows: coefficients are known by all rows together.
    """

    def __init__(self, model: object, group: str) -> None:
        X, self.model = model.sum.X, model
        self.mean, self.sd = X.mean(axis=0), X.std(axis=0)
        self.Z = np.hstack([np.ones((len(X), 1)), (X - self.mean) / self.sd])
        self.y, likelihood = model.target.y, model.target.likelihood
        self.trials = np.broadcast_to(getattr(likelihood, "trials", 1.0), self.y.shape)
        self.poisson = likelihood.word == "poisson"
        self.group = np.unique(model.frame[group], return_inverse=True)[1]
        self.member = sp.csr_array((np.ones(self.y.size), (self.group, np.arange(self.y.size))))
        self.u = np.linspace(-9.0, 9.0, 241)

    def at(self, b: np.ndarray, sd: float) -> tuple[float, np.ndarray]:
        """-log p(y|b, sd) but for constants, and its gradient in b."""
        eta = (self.Z @ b)[:, None] + sd * self.u
        over = np.exp(eta) if self.poisson else self.trials[:, None] * np.logaddexp(0.0, eta)
        mean = over if self.poisson else self.trials[:, None] / (1.0 + np.exp(-eta))
        log_p = self.member @ (self.y[:, None] * eta - over) - self.u**2 / 2
        top = log_p.max(axis=1, keepdims=True)
        p = np.exp(log_p - top)
        total = p.sum(axis=1, keepdims=True)
        residual = self.y - np.sum((p / total)[self.group] * mean, axis=1)
        return -float((top + np.log(total)).sum()), -self.Z.T @ residual

    def curvature(self, b: np.ndarray, sd: float) -> np.ndarray:
        steps = 1e-4 * np.eye(b.size)
        return np.array([self.at(b + e, sd)[1] - self.at(b - e, sd)[1] for e in steps]) / 2e-4

    def best(self, sd: float) -> tuple[np.ndarray, float]:
        """The coefficients at their maximum, by Newton's method, and -log p(y|sd)."""
        b = np.zeros(self.Z.shape[1])
        for _ in range(50):
            value, slope = self.at(b, sd)
            step = np.linalg.solve(self.curvature(b, sd), slope)
            while self.at(b - step, sd)[0] > value + 1e-9:
                step = step / 2
            b = b - step
            if np.abs(step).max() < 1e-6:
                break
        return b, self.at(b, sd)[0] + np.linalg.slogdet(self.curvature(b, sd))[1] / 2

    def estimates(self, near: float) -> tuple[np.ndarray, float]:
        """Coefficients of the columns as they come, and the sd."""
        ends = np.log([near / 1.5, near * 1.5])
        found = minimize_scalar(
            lambda t: self.best(np.exp(t))[1], bounds=ends, method="bounded", options={"xatol": 1e-3}
        )
        sd = float(np.exp(found.x))
        b = self.best(sd)[0]
        slopes = b[1:] / self.sd
        return as_written(self.model) @ np.r_[b[0] - self.mean @ slopes, slopes], sd


def by_quadrature(fit: object, found: object) -> dict[str, float] | None:
    """The estimates of a model with one effect a group, or None."""
    terms = fit.model.sum.effects
    if (
        len(terms) > 1
        or len(terms[0].hyperparameters) > 1
        or fit.likelihood.word not in ("poisson", "binomial", "bernoulli")
    ):
        return None
    key = f"{terms[0].name} sd"
    b, sd = Quadrature(fit.model, terms[0].column).estimates(found.loc[key, "mean"])
    return {**dict(zip(fit.coefficients.index, b, strict=True)), key: sd}


def timed(example: object, repeat: int) -> tuple[object, float]:
    """A fit, and the median seconds of the processor that model and fit take."""
    each = []
    for _ in range(repeat):
        begun = time.process_time()
        fit = example.fit()
        each.append(time.process_time() - begun)
    return fit, float(np.median(each))


def compare(name: str, repeat: int) -> float:
    """Print one model; the largest difference from the method nearest in kind."""
    example = ALL[name]
    kept = examples.stored(name, example.data)
    fit, seconds = timed(example, repeat)
    found, methods, best = examples.estimates(fit), kept["methods"], kept["reference"]
    found["mode"] = np.concatenate([modes(fit), found["mean"].to_numpy()[len(fit.coefficients) :]])
    print(f"\n{name}: {example.formula}   ({len(fit.model.kept)} rows; log evidence by {fit.found.maximises})")
    exact = by_quadrature(fit, found)
    header = "".join(f"{m + ('*' if m == best else ''):>17}{'':>8}" for m in methods)
    header += "" if exact is None else f"{'quadrature':>17}"
    print(f"  {'':<44}{'ours':>10}{'mode':>10}{'se':>9}{header}")
    worst = 0.0
    for key, row in found.iterrows():
        line = f"  {key:<44}{row['mean']:>10.4f}{row['mode']:>10.4f}{(row['upper'] - row['lower']) / 3.92:>9.4f}"
        for method, of in methods.items():
            theirs = of["estimates"].get(key, np.nan)
            away = difference(key, row, theirs, methods[best]["se"])
            line += f"{theirs:>17.4f}{away:>+8.3f}"
            worst = max(worst, abs(away)) if method == best else worst
        if exact is not None:
            line += f"{exact[key]:>17.4f}{difference(key, row, exact[key], methods[best]['se']):>+8.3f}"
        print(line)
    print(
        f"  {'seconds':<44}{seconds:>10.2f}{'':>19}"
        + "".join(f"{of['seconds']:>17.2f}{'':>8}" for of in methods.values())
    )
    print(f"  largest difference from {best}: {worst:.3f} se", flush=True)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--r", action="store_true", help="run R and keep what it finds")
    parser.add_argument("--models", nargs="*", default=list(ALL), choices=list(ALL))
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    if args.r:
        ask_r(args.models)
    versions = json.loads(examples.STORED.read_text())["versions"]
    print("beside " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    worst = {name: compare(name, args.repeat) for name in args.models}
    print("\nlargest differences, in standard errors: " + ", ".join(f"{name} {w:.3f}" for name, w in worst.items()))


if __name__ == "__main__":
    main()
