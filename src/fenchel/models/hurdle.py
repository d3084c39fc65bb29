"""Hurdle models with a formula for the zeros: two independent models of the same rows, and so two fits.

    P(y = 0) = pi,   logit pi = the predictor of zero=            a Bernoulli model of every row
    p(y | y > 0) = a truncated count of the model's own predictor    of the rows with a count above 0

The log-likelihood is the sum of the two, as are the elbos and the gaps; E[y] = (1 - pi) E[y | y > 0].
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import problem
from ..inputs.frames import read_frame
from ..likelihoods.numerical import quantile_of
from ..row_scores import LeaveOneOut
from . import predictions, tables
from .base import ModelSpec, Reduction
from .grammar import parse
from .response import read_second
from .stated_priors import FLAT, term_named

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

_DRAWS = 2000  # draws, with a fixed seed, for the interval of a mean
PARTS = ("count", "zero")


class HurdleParts(Reduction):
    """The reduction of a hurdle family with ``zero=``: the main model has the positive counts, the other the zeros."""

    name = "hurdle"
    kinds = ("mean", "outcome", "zero")
    drawn = ("mean", "outcome")
    parts = PARTS

    def reduce(self, spec: ModelSpec) -> list[ModelSpec]:
        """The models of the positive counts and of the zeros."""
        parsed, frame = parse(spec.formula), read_frame("Model", spec.data)
        text = parsed.response.text
        name = text.strip("`")
        if not re.fullmatch(r"[^\W\d]\w*|`[^`]+`", text) or name not in frame.columns:
            raise problem("Model", f"zero= meets the response {text!r}", "a column of counts")
        right = read_second("zero", str(spec.zero)).formula.split("~", 1)[1].strip()
        y, own = frame[name], f"{name} is 0"
        is_zero = np.where(y.isna(), np.nan, np.asarray(y, dtype=float) == 0.0)
        priors, wider = _part_priors(spec.priors, "zero")
        zeros = replace(
            spec,
            formula=f"`{own}` ~ {right}",
            data=frame.assign(**{own: is_zero}),
            family="bernoulli",
            exposure=None,
            trials=None,
            event=None,
            terms=(),
            priors=priors,
            fixed_sd=wider * spec.fixed_sd,
            bound="best",
            dispersion=None,
            zero=None,
            elsewhere=list(spec.priors),
        )
        priors, wider = _part_priors(spec.priors, "count")
        counts = replace(
            spec,
            family=spec.above_zero,
            zero=None,
            priors=priors,
            fixed_sd=wider * spec.fixed_sd,
            zeros_unobserved=True,
        )
        return [counts, zeros]

    def invert(self, model: Model, fits: Sequence[FittedModel]) -> FittedModel:
        """The fit of both parts, whose elbo and gap are sums."""
        from .fitted import FittedModel

        return FittedModel(model, fits[0].found, parts=dict(zip(PARTS, fits, strict=True)))

    # -- rows --------------------------------------------------------------------------------------
    def observed(self, fit: FittedModel) -> np.ndarray:
        """y of every row of the data, NaN if it is missing or a part dropped the row."""
        count, zero = (part.model for part in fit.parts.values())
        none, y = np.full((2, len(fit.model.data_index)), np.nan)
        none[zero.kept] = np.where(zero.target.seen > 0.0, zero.target.y, np.nan)
        y[count.kept] = np.where(count.target.seen > 0.0, count.target.y, 0.0)  # zeros have no count
        return np.where(np.isnan(none) | ((y > 0.0) == (none == 1.0)), np.nan, y)

    def scores(self, fit: FittedModel, score: Any) -> Any:
        """A criterion, the sum over both parts by row: log p(zero or not) + log p(count | positive)."""
        count, zero = (score(part) for part in fit.parts.values())
        y = self.observed(fit)

        def added(name: str) -> np.ndarray:
            of_count, of_zero = (np.asarray(vars(each)[name]) for each in (count, zero))
            return np.where(np.isnan(y), np.nan, of_zero + np.where(y > 0.0, of_count, 0.0))

        if isinstance(count, LeaveOneOut):
            moments = [np.stack([np.asarray(c), np.asarray(z)], axis=1) for c, z in _moments(count, zero)]
            return LeaveOneOut(added("log_density"), *moments)
        flagged = count.flagged | zero.flagged
        return replace(count, log_density=added("log_density"), penalty=added("penalty"), flagged=flagged)

    # -- answers -----------------------------------------------------------------------------------
    def predict(self, fit: FittedModel, new: Any, kind: str, interval: float | None, options: Mapping[str, Any]) -> Any:
        """E[y] ("mean"), the same with the sd and the interval of y itself ("outcome"), or P(y = 0) ("zero")."""
        import pandas as pd

        of_count, of_zero = self._options(fit, options)
        count, zero = fit.parts.values()
        if kind == "zero":
            return zero.predict(new, interval=interval, **of_zero)
        none = zero.predict(new, interval=interval, **of_zero)
        above = count.predict(new, kind, interval=interval, **of_count)
        if interval is None:
            return ((1.0 - none) * above).rename(kind)
        mean, sd = _product(none, above, kind)
        ends = predictions.interval_ends("predict", interval)
        if kind == "mean":
            draws = self.sample(fit, new, _DRAWS, np.random.default_rng(0), kind, options)
            limits = np.quantile(draws, ends, axis=0).T
        else:
            rows = predictions.read_rows(count, new, **of_count)
            limits = _quantiles(count, rows, ends, none["mean"].to_numpy())
        return pd.DataFrame({"mean": mean, "sd": sd, "lower": limits[:, 0], "upper": limits[:, 1]})

    def sample(
        self,
        fit: FittedModel,
        new: Any,
        size: int,
        rng: np.random.Generator,
        kind: str,
        options: Mapping[str, Any],
    ) -> np.ndarray:
        """Joint posterior draws (size, M) of E[y] at new rows, or of y ("outcome")."""
        of_count, of_zero = self._options(fit, options)
        above = fit.parts["count"].sample(new, size, rng, kind=kind, **of_count)
        none = fit.parts["zero"].sample(new, size, rng, kind="mean", **of_zero)
        if kind == "mean":
            return np.asarray((1.0 - none) * above)
        return np.where(np.isnan(none), np.nan, np.where(rng.random(none.shape) < none, 0.0, above))

    def _options(self, fit: FittedModel, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The options of each part: ``without`` applies to the parts with the term, exposure to the counts."""
        without = options["without"]
        asked = [without] if isinstance(without, str) else list(without)
        terms = {name: part.model.sum.effects for name, part in fit.parts.items()}
        for key in asked:
            if key != "groups" and all(term_named(own, key) is None for own in terms.values()):
                known = ", ".join(repr(str(term.name)) for own in terms.values() for term in own)
                expected = f'"groups", or terms of either part: {known or "none is there"}'
                raise problem("predict", f"without names {key!r}", expected)
        count, zero = (
            {
                "new_groups": options["new_groups"],
                "without": [key for key in asked if key == "groups" or term_named(own, key) is not None],
            }
            for own in terms.values()
        )
        return {**count, "exposure": options["exposure"]}, zero


def _part_priors(asked: Mapping[str, Any], part: str) -> tuple[dict[str, Any], float]:
    """The priors of a part: those for both parts and those stated for it."""
    stated = asked.get(part, {})
    if not (stated is None or isinstance(stated, Mapping)):
        got = f"priors[{part!r}] is {stated!r}"
        raise problem("Model", got, f"{{name: prior}} of the model of {part}s, or None for flat coefficients")
    both = {key: value for key, value in asked.items() if key not in PARTS}
    return both | dict(stated or {}), FLAT if stated is None else 1.0


def names_for_priors(other: Model, asked: Sequence[str]) -> list[str]:
    """The names of another part that priors may use, and those that they use."""
    own, terms = tables.names_of(other), other.sum.effects
    named = [key for key in asked if term_named(terms, key) is not None]
    return [*own, *(str(term.name) for term in terms), *named]


def _moments(count: LeaveOneOut, zero: LeaveOneOut) -> list[tuple[Any, Any]]:
    """Means and variances of eta of the counts and of the zeros."""
    return [(count.mean, zero.mean), (count.variance, zero.variance)]


def _quantiles(count: FittedModel, rows: predictions.PredictionRows, ends: np.ndarray, none: np.ndarray) -> np.ndarray:
    """Quantiles of y (M, 2), from P(y <= k) = pi + (1 - pi) P(count <= k)."""
    eta = count.posterior.at(rows.new)
    h, rho = np.asarray(eta.mean), np.maximum(np.asarray(eta.variance), 0.0)
    likelihood, pi = predictions.likelihood_at(count, rows), none[rows.there]
    out = []
    for end in ends:
        level = np.clip((end - pi) / (1.0 - pi), 1e-12, 1.0 - 1e-12)
        out.append(np.where(end <= pi, 0.0, quantile_of(likelihood, h, rho, level)))
    return rows.full(np.stack(out, axis=1))


def _product(none: pd.DataFrame, above: pd.DataFrame, kind: str) -> tuple[pd.Series, pd.Series]:
    """Mean and sd of (1 - pi) E[count], or of y ("outcome"), from the moments of the two independent parts.

    E[m^2] = E[(1 - pi)^2] E[mu^2];  E[y^2] = E[1 - pi] E[count^2]
    """
    some = 1.0 - none["mean"]
    square = above["sd"] ** 2 + above["mean"] ** 2
    second = (some if kind == "outcome" else some**2 + none["sd"] ** 2) * square
    mean = some * above["mean"]
    return mean, np.sqrt(np.maximum(second - mean**2, 0.0))
