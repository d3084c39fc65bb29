"""Multinomial models: a softmax in which every class has its own coefficients and effects.

    P(y = k) = e^{eta_k} / sum_l e^{eta_l},      eta of the reference class is 0

Every class but the reference has its own copy of the model's terms, a priori independent of the others and with the
same hyperparameters: one sd of a group for all classes. Expectations are exact and q is joint over classes up to 15
classes and 30,000 rows times classes. Above, and with ``bound="tilted"``, q is a product over the classes, and sds are
those of a class as if the others were known: too small, by a seventh with three classes of equal size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax

from .. import gates
from ..checks import problem
from ..inputs.frames import column_of, read_frame, unknown
from ..likelihoods import MultinomialLogit
from ..likelihoods.base import Likelihood
from . import predictions
from .base import ModelSpec, Reduction
from .grammar import parse
from .response import Target

if TYPE_CHECKING:
    from .fitted import FittedModel
    from .model import Model

_MOST = 50  # classes


class Multinomial(Reduction):
    """The reduction of a multinomial model: the terms are those of a binary model, in which a softmax is put.

    Attributes
    ----------
    classes : tuple
        The labels in order, the reference first.
    codes : array (N,)
        The numbers of the labels for the likelihood, the reference last; NaN where missing.
    """

    name = "multinomial"
    kinds = ("probability", "class", "link")
    drawn = ("mean",)
    looks_for_separation = False

    def reduce(self, spec: ModelSpec) -> list[ModelSpec]:
        """The Bernoulli model of whether a row is not the reference; ``target`` makes it a softmax."""
        parsed, frame = parse(spec.formula), read_frame("Model", spec.data)
        text = parsed.response.text
        name = text.strip("`")
        if not re.fullmatch(r"[^\W\d]\w*|`[^`]+`", text) or parsed.about:
            raise problem("Model", f'family="multinomial" meets the response {text!r}', "a column of labels")
        if name not in frame.columns:
            raise parsed.refuse(parsed.response.at, *unknown(frame, name))
        if parsed.offsets:
            at = parsed.offsets[0].at
            raise parsed.refuse(at, 'an offset with family="multinomial"', "none: classes would share it")
        self._read_labels(name, frame[name], column_of("Model", frame, name))
        own = f"{name} is not {self.classes[0]}"
        other = np.where(np.isnan(self.codes), np.nan, self.codes < len(self.classes) - 1)
        right = parsed.formula.split("~", 1)[1].strip()
        return [replace(spec, formula=f"`{own}` ~ {right}", data=frame.assign(**{own: other}), family="bernoulli")]

    def _read_labels(self, name: str, column: Any, given: Any) -> None:
        """Set ``classes`` and ``codes``: categories in their order, other labels sorted."""
        there, values = ~np.asarray(column.isna()), np.asarray(column, dtype=object)
        result = set(values[there].tolist())
        categories = getattr(getattr(given, "dtype", None), "categories", None)
        order = sorted(result) if categories is None else [x for x in categories if x in result]
        if not 2 <= len(order) <= _MOST:
            got = f"the response {name!r} has {len(order)} different labels"
            raise problem("Model", got, f"2 to {_MOST}", 'For numbers use family="gaussian".')
        places = {label: (k - 1) % len(order) for k, label in enumerate(order)}  # the reference becomes the last
        self.classes = tuple(order)
        self.codes = np.array([places[v] if ok else np.nan for v, ok in zip(values, there, strict=True)])

    def target(self, target: Target, keep: np.ndarray, bound: str) -> Target:
        """The softmax, which replaces the Bernoulli likelihood."""
        n_classes = len(self.classes)
        if bound == "best":
            few = np.count_nonzero(keep) * n_classes <= gates.EXACT_CLASSES
            bound = "exact" if few and n_classes <= gates.EXACT_SOFTMAX_CLASSES else "tilted"
        likelihood = MultinomialLogit(n_classes, "last", bound)
        return replace(target, likelihood=likelihood, y=self.codes[keep], level=0.0, values=None, words=None)

    def family_in_words(self, model: Model) -> str:
        return f"multinomial, against {self.classes[0]!r}"

    def reported(self, likelihood: Likelihood) -> tuple[Likelihood, float]:
        return likelihood.changed(ratio="odds_ratio"), 0.0

    def predictors(self, model: Model) -> list[Any]:
        """The classes without the reference."""
        return list(self.classes[1:])

    # -- answers -----------------------------------------------------------------------------------
    def predict(self, fit: FittedModel, new: Any, kind: str, interval: float | None, options: Mapping[str, Any]) -> Any:
        """The probability of each class, the most probable class ("class"), or eta of each ("link")."""
        import pandas as pd

        if interval is not None:
            expected = "sample(new, size), draws of the probabilities"
            raise problem("predict", "an interval of several classes", expected)
        rows = predictions.read_rows(fit, new, **options)
        weights = np.ones(1) if fit.mixture is None else fit.mixture.weights
        etas: list[Any] = [part.posterior.at(rows.under(part).new) for part in fit.components]
        if kind == "link":
            mean = rows.full(np.tensordot(weights, [np.asarray(eta.mean) for eta in etas], axes=1))
            return pd.DataFrame(mean, index=rows.index, columns=pd.Index(self.predictors(fit.model)))
        ask = fit.found.likelihood.predictive_probabilities
        result = np.tensordot(weights, [ask(np.asarray(eta.mean), np.asarray(eta.spread)) for eta in etas], axes=1)
        p = np.roll(result, 1, axis=1)
        if kind == "probability":
            return pd.DataFrame(rows.full(p), index=rows.index, columns=pd.Index(self.classes))
        best = np.empty(rows.there.size, dtype=object)
        best[rows.there] = [self.classes[k] for k in np.argmax(p, axis=1)[: int(rows.there.sum())]]
        return pd.Series(best, index=rows.index, name=kind)

    def sample(
        self,
        fit: FittedModel,
        new: Any,
        size: int,
        rng: np.random.Generator,
        kind: str,
        options: Mapping[str, Any],
    ) -> np.ndarray:
        """Joint posterior draws (size, M, K) of the probabilities of the classes, the reference first."""
        rows = predictions.read_rows(fit, new, **options)
        eta = np.zeros((len(rows.frame), size, len(self.classes)))
        for part, which in predictions.shares(fit, size, rng):
            latents, there = predictions.latent_draws(part, which.size, rng), rows.under(part)
            for c in range(len(self.classes) - 1):
                eta[:, which, c + 1] = predictions.eta_draws(there, latents[:, :, c], rng)
        return np.moveaxis(rows.full(softmax(eta, axis=2)), 0, 1)
