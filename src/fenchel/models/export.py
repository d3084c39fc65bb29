"""Draws of a fitted model for ArviZ: xarray datasets with named dimensions, for ArviZ 0.x and 1.x.

    posterior               coefficients one by one, effects over their levels, hyperparameters if integrated over
    posterior_predictive    y at the observed rows, predictions: at those where y is missing
    log_likelihood          log p(y_n | eta_n, theta)
    observed_data           y
    constant_data           exposure, trials and the numbers among the covariates
    prior, prior_predictive coefficients, effects, hyperparameters and y drawn from the priors

Draws are independent; they are divided into chains because diagnostics expect these. If hyperparameters are
integrated out, each draw of latents, y and log-likelihood is from a fit at a theta close to the drawn one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import count, optional, problem
from ..likelihoods.base import slice_rows
from ..linalg.arrays import Seed, to_numpy
from ..linalg.machine import physical_memory
from ..terms.slopes import joined
from . import predictions, tables
from .fixed import reported_shift
from .prior_draws import ThetaPrior, draw_data

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .fitted import FittedModel

_SHARE = 0.25  # share of the machine's memory that the draws may take


def to_arviz(fit: FittedModel, draws: int, chains: int, rng: Seed, predictive: bool, prior: int = 0) -> Any:
    """An InferenceData of ArviZ 0.x, or a DataTree for ArviZ 1.x, whichever is installed."""
    arviz = optional("to_arviz", "arviz")
    groups = datasets(
        fit, count("to_arviz", "draws", draws, 1), count("to_arviz", "chains", chains, 1), rng, predictive
    )
    if prior:
        groups |= prior_datasets(fit, count("to_arviz", "prior", prior, 1), rng)
    if int(arviz.__version__.partition(".")[0]) < 1:
        return arviz.InferenceData(**groups)
    return optional("to_arviz", "xarray").DataTree.from_dict(groups)


def datasets(fit: FittedModel, draws: int, chains: int, rng: Seed, predictive: bool = True) -> dict[str, Any]:
    """The groups by name, each an xarray Dataset."""
    size, n = draws * chains, len(fit.model.kept)
    needed, there = 8.0 * size * n * 3 * predictive, _SHARE * physical_memory()
    if needed > there:
        got = f"{size} draws at {n} rows take {needed / 2**30:.1f} GiB"
        raise problem("to_arviz", got, f"at most {there / 2**30:.1f}", "predictive=False leaves the rows out.")
    return _Export(fit, draws, chains, np.random.default_rng(rng)).groups(predictive)


def prior_datasets(fit: FittedModel, size: int, rng: Seed) -> dict[str, Any]:
    """The groups prior and prior_predictive, one chain of ``size`` draws."""
    rng, model = np.random.default_rng(rng), fit.model
    prior = ThetaPrior.of("to_arviz", model)
    thetas = np.stack([prior.draw(rng) for _ in range(size)])
    drawn = [draw_data("to_arviz", model, prior.likelihood, theta, rng) for theta in thetas]
    out = _Export(fit, size, 1, rng)
    out.theta, out.latents = thetas, np.stack([one.latents for one in drawn])
    rows = {"row": _labels(model.data_index[model.kept])[out.seen]}
    y = out.chained(np.stack([one.y for one in drawn])[:, out.seen])
    predictive = out.dataset({str(model.response.name): (("chain", "draw", "row"), y)}, rows)
    return {"prior": out.posterior(), "prior_predictive": predictive}


class _Export:
    def __init__(self, fit: FittedModel, draws: int, chains: int, rng: np.random.Generator) -> None:
        self.fit, self.model, self.rng = fit, fit.model, rng
        self.shape = chains, draws
        self.theta, self.parts = _parts(fit, chains * draws, rng)
        drawn = [predictions.latent_draws(part, some.size, rng) for part, some in self.parts]
        self.latents = np.empty((chains * draws, drawn[0].shape[1]))
        for (_, some), values in zip(self.parts, drawn, strict=True):
            self.latents[some] = values
        self.seen = self.model.target.seen > 0.0
        self.xarray = optional("to_arviz", "xarray")

    def dataset(self, values: Mapping[str, tuple[tuple[str, ...], np.ndarray]], coords: Mapping[str, Any]) -> Any:
        import fenchel

        stated = {"inference_library": "fenchel", "formula": self.model.formula, "converged": int(self.fit.converged)}
        stated["gap"] = float(self.fit.gap)
        version = {"inference_library_version": fenchel.__version__}
        return self.xarray.Dataset(dict(values), coords=dict(coords), attrs={**stated, **version})

    def chained(self, values: np.ndarray) -> np.ndarray:
        """Reshape draws (size, ...) to (chains, draws, ...)."""
        return np.asarray(values).reshape(*self.shape, *values.shape[1:])

    def groups(self, predictive: bool) -> dict[str, Any]:
        out = {"posterior": self.posterior()}
        if not predictive:
            return out
        drawn, density = self.rows()
        name, rows = str(self.model.response.name), _labels(self.model.data_index[self.model.kept])
        dims, coords = ("chain", "draw", "row"), {"row": rows[self.seen]}
        out["posterior_predictive"] = self.dataset({name: (dims, self.chained(drawn[:, self.seen]))}, coords)
        if not self.seen.all():
            hidden = {"row": rows[~self.seen]}
            out["predictions"] = self.dataset({name: (dims, self.chained(drawn[:, ~self.seen]))}, hidden)
        out["log_likelihood"] = self.dataset({name: (dims, self.chained(density))}, coords)
        out["observed_data"] = self.dataset({name: (("row",), self.model.target.y[self.seen])}, coords)
        out["constant_data"] = self.dataset({k: (("row",), v[self.seen]) for k, v in self.constants().items()}, coords)
        return out

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws of y (size, N), and their log p(y_n | eta_n, theta) at the observed rows."""
        where, keep = predictions.read_rows(self.fit), np.flatnonzero(self.seen)
        size = len(self.latents)
        drawn, density = np.empty((size, self.seen.size)), np.empty((size, keep.size))
        for part, some in self.parts:
            here = where if part is self.fit else where.under(part)
            eta, likelihood = predictions.eta_draws(here, self.latents[some], self.rng), part.found.likelihood
            drawn[some] = np.asarray(likelihood.lenient().draw(eta, self.rng), dtype=np.float64).T
            own = slice_rows({key: to_numpy(value) for key, value in part.solution._rows.items()}, keep)
            density[some] = np.asarray(likelihood.take(keep).log_density(eta[keep], own)).T
        return drawn, density

    def posterior(self) -> Any:
        values: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
        coords: dict[str, Any] = {"chain": np.arange(self.shape[0]), "draw": np.arange(self.shape[1])}
        rows = tables.coefficient_rows(self.fit, self.theta)
        drawn = np.asarray(rows.design @ self.latents.T).T + rows.offset
        for j, name in enumerate(tables.names_of(self.model)):
            values[name] = ("chain", "draw"), self.chained(drawn[:, j])
        for term in self.model.sum.effects:
            where = tables.effect_rows(self.model, term.name)
            if where is None:
                continue
            labels, at, _ = where
            dim = str(term.label) if term.label != term.name else f"place of {term.name}"
            known = _labels(labels)
            dim = dim if dim not in coords or np.array_equal(coords[dim], known) else f"{dim} of {term.name}"
            coords[dim] = known
            drawn = np.asarray(at.design @ self.latents.T).T + at.offset
            values[str(term.name)] = ("chain", "draw", dim), self.chained(drawn)
        values |= self.hyperparameters()
        return self.dataset(values, coords)

    def hyperparameters(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Draws of what was integrated over, in words, cutpoints with each draw's own coefficients; none where
        hyperparameters are plugged in.
        """
        if self.theta is None:
            return {}
        row, constant = reported_shift(self.fit)
        levels = np.full(len(self.theta), constant) if row is None else self.latents @ row + constant
        each = zip(self.theta, levels, strict=True)
        rows = [tables.described_theta(self.fit, theta, float(level)) for theta, level in each]
        names = [f"{term} {parameter}" for term, parameter, _ in rows[0]] if rows else []
        result = np.array([[value for _, _, value in row] for row in rows])
        return {name: (("chain", "draw"), self.chained(result[:, j])) for j, name in enumerate(names)}

    def constants(self) -> dict[str, np.ndarray]:
        out = {}
        for key in ("exposure", "trials"):
            given = self.model.row_values(key)
            if given is not None:
                out[key] = given
        frame: pd.DataFrame = self.model.frame
        for name in self.model.covariates:
            if name in frame and frame[name].dtype.kind in "biuf":
                out[str(name)] = frame[name].to_numpy(dtype=np.float64)
        return out


def _parts(
    fit: FittedModel, size: int, rng: np.random.Generator
) -> tuple[np.ndarray | None, list[tuple[FitTables, np.ndarray]]]:
    """Draws of theta (size, n), or None if it is not integrated out; the fits at each theta, and their draws."""
    if fit.mixture is None:
        return None, predictions.shares(fit, size, rng)
    theta, each = fit.mixture.sample_with_theta(size, rng)
    return theta, [(part, which) for part, which in zip(fit.components, each, strict=True) if which.size]


def _labels(labels: Any) -> np.ndarray:
    """Coordinates: numbers, or text; combinations of groups are joined."""
    each = [joined(label) for label in labels]
    numbers = np.asarray(each, dtype=object if not each else None)
    return numbers if numbers.dtype.kind in "iuf" else np.asarray([str(label) for label in each])
