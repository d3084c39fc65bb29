"""Simulation-based calibration: a model is fitted to data sets drawn from it, whose unknowns are known.

    theta ~ p(theta),  z ~ p(z | theta),  y ~ p(y | z, theta),      u = P(unknown <= its true value | y)

If the posterior is correct, every u is uniform over such data sets, whatever the model (Talts et al. 2018). The
distribution functions of the posterior are used, so that no ranks of draws are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from ..checks import choice, count, instance
from ..hyperparameters.integration import integrate
from ..hyperparameters.learning import learn
from ..linalg.arrays import to_numpy
from ..tasks import Jobs, Stopped, run_tasks
from .model import Model
from .prior_draws import ThetaPrior, draw_data

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_SHOWN = 4  # number of latents of each term, and of rows, that are checked
_SMALL = 1e-3  # p-value below which a quantity is not calibrated


@dataclass(frozen=True, repr=False)
class Calibration:
    """The result of ``calibrate``.

    Attributes
    ----------
    u : pandas frame (n, quantities)
        P(unknown <= its true value | y) of each data set.
    p_values : pandas series
        p-values of uniformity (Kolmogorov-Smirnov), for each quantity.
    converged : bool array (n,)
        Whether each fit converged; those that did not are included in u.
    """

    u: pd.DataFrame
    p_values: pd.Series
    converged: np.ndarray

    @classmethod
    def of(cls, u: pd.DataFrame, converged: np.ndarray) -> Calibration:
        """A calibration with the p-values of u."""
        import pandas as pd

        each = {name: float(stats.kstest(u[name], "uniform").pvalue) for name in u}
        return cls(u, pd.Series(each, dtype=np.float64), converged)

    @property
    def calibrated(self) -> bool:
        """Whether no p-value is below 0.001."""
        return bool((self.p_values >= _SMALL).all())

    @property
    def verdict(self) -> str:
        """The result as a sentence."""
        n, low = len(self.u), self.p_values[self.p_values < _SMALL]
        fits = "" if self.converged.all() else f" {int((~self.converged).sum())} of the fits did not converge."
        if not len(low):
            return f"Nothing speaks against calibration in {n} data sets: least p = {self.p_values.min():.2g}.{fits}"
        named = ", ".join(f"{name} (p = {p:.1g})" for name, p in low.nsmallest(4).items())
        return f"Not calibrated in {n} data sets: {named}.{fits}"

    def __repr__(self) -> str:
        return f"Calibration({self.verdict})"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot distribution functions of u minus that of the uniform, with their pointwise 95 % band."""
        from ..plots import plot_calibration

        return plot_calibration(self.u, ax)


def calibrate(
    model: Model,
    n: int = 200,
    *,
    method: str | None = "auto",
    evidence: str = "corrected",
    rng: Any = 0,
    n_jobs: Jobs = None,
    progress: bool = False,
) -> Calibration:
    """Fit a model to n data sets drawn from it, and compare its posteriors with the true values.

    Parameters
    ----------
    model : Model
        Its rows, terms and priors are used; y only determines which rows are observed. Every hyperparameter needs a
        proper prior. Parameters of the likelihood without a stated prior are drawn, and learned, under a normal one of
        sd 0.5 on the scale of theta about their start. Priors must make plausible data: use ``fixed_sd=1``
        rather than the default 10.
    n : int
    method : "auto", "grid", "ccd" or None
        Method of integration over the hyperparameters. None fits at the learned ones, which is not calibrated; the
        result shows by how much.
    evidence : "corrected" or "elbo"
    n_jobs : int, None or Dask client
        Workers for the fits (``fenchel.tasks``).
    progress : bool

    Returns
    -------
    Calibration

    If it is interrupted, the exception has the result of the finished data sets: ``error.finished``.
    """
    instance("calibrate", "model", model, Model, 'Model("y ~ x + (1|g)", data)')
    n = count("calibrate", "n", n, 20)
    choice("calibrate", "method", method, ("auto", "grid", "ccd", None))
    prior = ThetaPrior.of("calibrate", model)
    seeds = np.random.default_rng(rng).integers(0, 2**63, n)
    shared = (model, prior, method, evidence)
    try:
        result = run_tasks(_one, seeds.tolist(), shared, where="calibrate", n_jobs=n_jobs, progress=progress)
    except (KeyboardInterrupt, Stopped) as stop:
        done = stop.finished  # type: ignore[union-attr]
        stop.finished = _gathered([done[i] for i in sorted(done)]) if done else None  # type: ignore[union-attr]
        raise
    return _gathered(result)


def _gathered(result: list[tuple[dict[str, float], bool]]) -> Calibration:
    import pandas as pd

    return Calibration.of(pd.DataFrame([part[0] for part in result]), np.array([part[1] for part in result]))


# -- one data set -------------------------------------------------------------------------------------------
def _one(shared: tuple[Model, ThetaPrior, str | None, str], seed: int) -> tuple[dict[str, float], bool]:
    """u of each quantity for one data set, and whether the fit converged."""
    model, prior, method, evidence = shared
    rng, family, likelihood = np.random.default_rng(seed), model.sum.family(), prior.likelihood
    theta = prior.draw(rng)
    z, eta, y = draw_data("calibrate", model, likelihood, theta, rng)
    result = learn(likelihood, family, y, weights=model.target.weights)
    u: dict[str, float] = {}
    post: Any = result.solution.posterior
    converged = result.converged
    if method is not None:
        options: dict[str, Any] = {"weights": model.target.weights, "mode": result, "method": method}
        post = integrate(likelihood, family, y, evidence=evidence, **options)
        converged = post.converged
        at = to_numpy(post.theta.cdf(theta))
        u |= {str(name): float(v) for name, v in zip(post.theta.names, at, strict=True)}
    latents, rows = to_numpy(post.latents().cdf(z)), to_numpy(post.cdf(eta))
    u |= {name: float(latents[i]) for name, i in _places(model).items()}
    u |= {f"eta[{i}]": float(rows[i]) for i in np.linspace(0, y.size - 1, min(_SHOWN, y.size)).astype(int)}
    return u, converged


def _places(model: Model) -> dict[str, int]:
    """The latents that are checked: some of each term, and all coefficients."""
    out, begin = {}, 0
    for term in model.sum.effects:
        for i in np.linspace(0, term.n_latents - 1, min(_SHOWN, term.n_latents)).astype(int):
            out[f"{term.name}[{i}]"] = begin + int(i)
        begin += term.n_latents
    names = [*(["Intercept"] if model.sum.intercept else []), *model.sum.fixed_names]
    return out | {name: begin + j for j, name in enumerate(names)}
