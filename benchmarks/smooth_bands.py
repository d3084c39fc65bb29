"""Simultaneous bands of smooths: how often they hold the whole curve, derivative and difference, beside mgcv's.

    python benchmarks/smooth_bands.py [--sets 300] [--curves waves | prior] [--r]

Each set draws two curves f_a, f_b, n rows of two levels and Gaussian noise. Curves are sums of four waves, or drawn
from the prior of s(x, by=f) itself, its sds from theirs: bands of a right model hold as often as they say.
Bands of 95 % over 25 places of x:

    curve        fit.means("x", at=, by="f", scale="link", simultaneous=True), both levels together
    derivative   fit.slopes("x", at=, by="f", weights="equal", scale="link", simultaneous=True), both levels together
    difference   fit.comparisons("f", at=, by="x", scale="link", simultaneous=True)

With --r the same sets are fitted by mgcv's gam(y ~ f + s(x, by = f), method = "REML"), with bands by draws of its
coefficients about their estimate (Vp, the posterior covariance), as gratia computes them.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

import fenchel
from fenchel.hyperparameters.priors import HalfNormal
from fenchel.models.before_data import KnownParameters
from fenchel.models.predictions import read_rows
from fenchel.models.prior_draws import draw_data

ROWS, NOISE, PLACES = 200, 0.5, 25
AT = np.linspace(0.03, 0.97, PLACES)
R = """
suppressMessages(library(mgcv))
args <- commandArgs(TRUE); sets <- as.integer(args[2]); held <- matrix(0, sets, 3)
at <- as.numeric(args[3:length(args)])
band <- function(X, b, V, truth, draws) {
  fit <- X %*% b; se <- sqrt(rowSums((X %*% V) * X)); crit <- quantile(apply(abs(X %*% draws) / se, 2, max), 0.95)
  all(abs(fit - truth) <= crit * se)
}
for (i in 1:sets) {
  d <- read.csv(file.path(args[1], paste0(i - 1, ".csv"))); d$f <- factor(d$f)
  truth <- read.csv(file.path(args[1], paste0(i - 1, "_truth.csv")))
  fit <- gam(y ~ f + s(x, by = f), data = d, method = "REML")
  V <- vcov(fit, unconditional = TRUE); b <- coef(fit); h <- 1e-4
  draws <- t(rmvn(5000, rep(0, length(b)), V))
  rows <- function(x) predict(fit, data.frame(x = rep(x, 2), f = rep(c("a", "b"), each = length(x))), type = "lpmatrix")
  X <- rows(at); D <- (rows(at + h) - rows(at - h)) / (2 * h); n <- length(at)
  held[i, ] <- c(band(X, b, V, truth$curve, draws), band(D, b, V, truth$slope, draws),
                 band(X[n + 1:n, ] - X[1:n, ], b, V, truth$curve[n + 1:n] - truth$curve[1:n], draws))
}
cat(colMeans(held), R.version.string, as.character(packageVersion("mgcv")), sep = "\\n")
"""


class Curves:
    """Two random smooth curves with their slopes."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = rng.normal(size=(2, 4)) / np.arange(1, 5) ** 1.5
        self.phase = rng.uniform(0, 2 * np.pi, size=(2, 4))
        self.level = np.array([0.0, 0.3])

    def value(self, x: np.ndarray, which: np.ndarray | int) -> np.ndarray:
        waves = np.sin(np.pi * np.arange(1, 5) * x[..., None] + self.phase[which])
        return self.level[which] + np.sum(self.weights[which] * waves, axis=-1)

    def slope(self, x: np.ndarray, which: int) -> np.ndarray:
        k = np.pi * np.arange(1, 5)
        return np.sum(self.weights[which] * k * np.cos(k * x[..., None] + self.phase[which]), axis=-1)


class PriorCurves:
    """Two curves as the prior of ``y ~ f + s(x, by=f)`` draws them; both sds are half-normal, P(sd > 1) = 0.05."""

    SD = HalfNormal(1.0, 0.05)
    OPTIONS: ClassVar = {"priors": {"s(x,by=f)": {"sd[a]": SD, "sd[b]": SD}}}

    def __init__(self, rng: np.random.Generator, data: pd.DataFrame) -> None:
        model = fenchel.Model("y ~ f + s(x, by=f)", data.assign(y=rng.normal(size=ROWS)), "gaussian", **self.OPTIONS)
        names = ["Intercept", "f[T.b]", "s(x,by=f) (slope)[a]", "s(x,by=f) (slope)[b]"]
        sds = dict(zip(["sd[a]", "sd[b]"], self.SD.sd * np.abs(rng.normal(size=2)), strict=True))
        hyperparameters = {"s(x,by=f)": sds, "noise": {"sd": NOISE}}
        known = KnownParameters.of(
            "prior", model, dict(zip(names, [0.2, 0.3, *rng.normal(size=2)], strict=True)), hyperparameters
        )
        drawn = draw_data("prior", model, model.target.likelihood, known.theta, rng, known.fixed)
        self.y, self.latents, self.fit = drawn.y, drawn.latents, model.fit(accuracy="fast")
        self.level = 0.0
        self.level = float(np.mean(drawn.eta - self._value(data["x"].to_numpy(), data["f"].to_numpy())))

    def _value(self, x: np.ndarray, levels: np.ndarray) -> np.ndarray:
        rows = read_rows(self.fit, pd.DataFrame({"x": x, "f": levels})).new
        return np.asarray(rows.design @ self.latents + rows.offset) + self.level

    def value(self, x: np.ndarray, which: int) -> np.ndarray:
        return self._value(x, np.full(x.size, "ab"[which]))

    def slope(self, x: np.ndarray, which: int, h: float = 1e-4) -> np.ndarray:
        return (self.value(x + h, which) - self.value(x - h, which)) / (2 * h)


def one_of_prior(seed: int) -> tuple[pd.DataFrame, PriorCurves]:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame({"x": rng.random(ROWS), "f": np.array(["a", "b"])[rng.integers(0, 2, ROWS)]})
    curves = PriorCurves(rng, data)
    return data.assign(y=curves.y), curves


def one(seed: int) -> tuple[pd.DataFrame, Curves]:
    rng = np.random.default_rng(seed)
    curves, x, which = Curves(rng), rng.random(ROWS), rng.integers(0, 2, ROWS)
    y = curves.value(x, which) + NOISE * rng.normal(size=ROWS)
    return pd.DataFrame({"y": y, "x": x, "f": np.array(["a", "b"])[which]}), curves


def held(data: pd.DataFrame, curves: Curves | PriorCurves, **options: Any) -> list[bool]:
    """Whether each band holds all of what it is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fenchel.fit("y ~ f + s(x, by=f)", data, "gaussian", **options)
    asked = {"at": {"x": AT}, "scale": "link", "simultaneous": True}
    tables = [
        (fit.means("x", by="f", **asked), curves.value),
        (fit.slopes("x", by="f", weights="equal", **asked), curves.slope),
    ]
    out = []
    for table, truth in tables:
        want = np.concatenate([truth(part["x"].to_numpy(), "ab".index(f)) for f, part in table.groupby("f")])
        table = table.sort_values(["f", "x"], kind="stable")
        out.append(bool(((table["conf_low"] <= want) & (want <= table["conf_high"])).all()))
    table = fit.comparisons("f", by="x", **asked)
    want = curves.value(AT, 1) - curves.value(AT, 0)
    out.append(bool(((table["conf_low"] <= want) & (want <= table["conf_high"])).all()))
    return out


def in_r(sets: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(sets):
            data, curves = one(seed)
            data.to_csv(Path(folder) / f"{seed}.csv", index=False)
            truth = {"curve": curves.value, "slope": curves.slope}
            both = {name: np.concatenate([call(AT, 0), call(AT, 1)]) for name, call in truth.items()}
            pd.DataFrame(both).to_csv(Path(folder) / f"{seed}_truth.csv", index=False)
        script = Path(folder) / "bands.R"
        script.write_text(R)
        command = ["Rscript", str(script), folder, str(sets), *map(str, AT)]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    shares = "  ".join(f"{100 * float(x):5.1f} %" for x in found[:3])
    print(f"mgcv {found[4]} ({found[3]}), REML, Vp with smoothing uncertainty: {shares}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=300)
    parser.add_argument("--curves", choices=["waves", "prior"], default="waves")
    parser.add_argument("--r", action="store_true", help="waves alone")
    asked = parser.parse_args()
    make, options = (one, {}) if asked.curves == "waves" else (one_of_prior, PriorCurves.OPTIONS)
    print(
        f"{asked.sets} sets of {asked.curves}, {ROWS} rows, 95 % bands, {PLACES} places: curve, derivative, difference"
    )
    if asked.r:
        in_r(asked.sets)
    began, every = time.process_time(), []
    for seed in range(asked.sets):
        every.append(held(*make(seed), **options))
        if seed % 50 == 49 or seed + 1 == asked.sets:
            shares = "  ".join(f"{100 * x:5.1f} %" for x in np.mean(every, axis=0))
            print(
                f"fenchel, {seed + 1} sets: {shares}, {(time.process_time() - began) / (seed + 1):.2f} s a set",
                flush=True,
            )
