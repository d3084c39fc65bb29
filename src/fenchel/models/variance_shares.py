"""Shares of variance that the parts of a model explain, on the scale of eta; R^2 and ICC.

    fixed        variance over the rows of X b, each row as often as weights= says
    a term       of groups: the mean over the rows of z' S(theta) z, S the covariance of a group's effects;
                 of any other term: the variance over the rows of its effect
    residual     Gaussian: the variance of the noise; log link: log(1 + Var[y] / E[y]^2) at the mean of y;
                 logit: pi^2 / 3, probit: 1; else Var[y | eta] / (dE[y | eta] / deta)^2
    R2 marginal = fixed / total,   R2 conditional = (total - residual) / total,   ICC = groups / (groups + residual)

Nakagawa and Schielzeth (2013), with slopes as Johnson (2014) has them and the residuals of Nakagawa, Johnson and
Schielzeth (2017). Estimates are at the means of the coefficients and the values of the hyperparameters; intervals come
from draws of all of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import count, problem
from ..linalg.arrays import to_numpy
from ..terms import Term
from . import predictions, tables
from .averages import repeated_variance

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

FIXED, RESIDUAL = "fixed", "residual"


class VarianceParts:
    """The variances of the parts of a fitted model as functions of its latents and hyperparameters."""

    def __init__(self, fit: FittedModel) -> None:
        self.fit, sum_ = fit, fit.model.sum
        self.seen = np.flatnonzero(fit.model.target.seen > 0.0)
        self.often = fit.model.target.seen[self.seen]
        self.terms = sum_.effects
        self.designs = {t.name: r.design for t, r in zip(sum_.terms, sum_.training, strict=True) if t.n_latents}
        self.fixed = sum_.columns.tail(sum_.X, sum_.intercept)[self.seen]
        self.products: dict[Hashable, np.ndarray] = {}  # of groups: the mean of w w' over the rows
        self.begins = np.cumsum([0, *(term.n_latents for term in self.terms)]).astype(int)

    @property
    def names(self) -> list[str]:
        return [FIXED, *(str(term.name) for term in self.terms), RESIDUAL]

    def at(self, latents: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The variances for one draw: fixed, each term, residual."""
        X = self.fixed @ latents[self.begins[-1] :]
        known = np.asarray(self.fit.model.sum.offset, dtype=np.float64)
        offset = np.broadcast_to(known, (len(self.fit.model.kept),))[self.seen]
        each = [
            self._of_term(term, own, latents[self.begins[k] : self.begins[k + 1]])
            for k, (term, own) in enumerate(self.fit.model.sum.thetas(theta))
        ]
        whole = X + self.fit.model.coefficient_priors.offset(self.fit.model.sum.X)[self.seen]
        fixed = repeated_variance(whole - whole[0], self.often)  # 0 for an intercept alone
        own = tables.likelihood_at(self.fit, theta).take(self.seen)
        return np.array([fixed, *each, own.link_variance(X + offset, sum(each), self.often)])

    def _of_term(self, term: Term, theta: np.ndarray, latents: np.ndarray) -> float:
        W = self.designs[term.name][self.seen]
        S = term.population(theta)
        if term.of_groups and S.size and len(term.levels or ()) * S.shape[0] == term.n_latents:
            if term.name not in self.products:
                each = [sp.csr_array(W[:, a :: len(S)]) for a in range(len(S))]
                products = [[float(self.often @ a.multiply(b).sum(axis=1)) for b in each] for a in each]
                self.products[term.name] = np.array(products) / self.often.sum()
            return float((S * self.products[term.name]).sum())
        return repeated_variance(np.asarray(W @ latents), self.often)


def _parts_of(fit: FittedModel, size: int, rng: Any) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The names of the parts, their variances at the estimate (k,) and of draws (size, k)."""
    if fit.found.likelihood.of_variance:
        raise problem(
            "variance_shares", "eta is a log variance, and y has mean 0", "a family whose mean depends on eta"
        )
    size, parts = count("variance_shares", "size", size, 100), VarianceParts(fit)
    mean, theta = to_numpy(fit.posterior.latents().mean), fit.theta
    if fit.integrated is not None:
        theta = fit.integrated.theta.peak
    thetas, latents = predictions.draws_with_theta(fit, size, np.random.default_rng(rng))
    drawn = [parts.at(z, t) for z, t in zip(latents, thetas, strict=True)]
    return parts.names, parts.at(mean, theta), np.array(drawn)


def variance_shares(fit: FittedModel, interval: float, size: int, rng: Any) -> pd.DataFrame:
    """Variance and share of the total, a row for each part."""
    import pandas as pd

    ends = predictions.interval_ends("variance_shares", interval)
    names, at, drawn = _parts_of(fit, size, rng)
    low, high = np.quantile(drawn / drawn.sum(axis=1, keepdims=True), ends, axis=0)
    columns = {"variance": at, "share": at / at.sum(), "conf_low": low, "conf_high": high}
    return pd.DataFrame(columns, index=pd.Index(names, name="part"))


def r2(fit: FittedModel, interval: float, size: int, rng: Any) -> pd.DataFrame:
    """Marginal and conditional R^2, and the ICC of the groups."""
    import pandas as pd

    ends = predictions.interval_ends("r2", interval)
    _, at, drawn = _parts_of(fit, size, rng)
    groups = np.array([False, *(term.of_groups for term in fit.model.sum.effects), False])

    def measures(each: np.ndarray) -> np.ndarray:
        total, among = each.sum(axis=-1), each[..., groups].sum(axis=-1)
        left = each[..., -1]
        return np.stack([each[..., 0] / total, 1.0 - left / total, among / (among + left)], axis=-1)

    low, high = np.quantile(measures(drawn), ends, axis=0)
    names = ["R2 marginal", "R2 conditional", "ICC"]
    frame = pd.DataFrame({"estimate": measures(at), "conf_low": low, "conf_high": high}, index=names)
    return frame if groups.any() else frame.drop(index="ICC")
