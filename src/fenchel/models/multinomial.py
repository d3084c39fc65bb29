"""Labels of several kinds: a softmax whose every class has coefficients and effects of its own.

    P(y = k) = e^{eta_k} / sum_l e^{eta_l},      eta of the reference class is 0

Every class but the reference has its own copy of the model's terms, independent of the others' a priori and with the
same hyperparameters: one sd of a group for all classes. Expectations are exact and q joins the classes, up to 30,000
rows times classes. Beyond, and with ``bound="tilted"``, q is a product over the classes and an sd is that of a class as
if the others were known: too small, by a seventh with three classes of like size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import choice, count, problem
from ..inputs.frames import Table, column_of, read_frame, unknown
from ..likelihoods import MultinomialLogit
from ..marginals import NormalMarginals
from . import predictions, tables
from .fitted import FittedModel
from .grammar import parse
from .marginal_tables import marginal_table
from .refusing import refused

if TYPE_CHECKING:
    import pandas as pd

    from .response import Target

WORDS = ("multinomial", "categorical")
_MOST = 50  # classes
_EXACT = 30_000  # rows times classes up to which "best" is exact: some ten seconds


@dataclass(frozen=True)
class Classes:
    """The labels of a response.

    Attributes
    ----------
    name : str
        Of the column.
    labels : tuple
        In order, the reference first.
    codes : array (N,)
        Places among the labels, the reference last: as the likelihood takes them. NaN where missing.
    formula, frame : str and pandas frame
        The same model of whether a row is anything but the reference, which has the terms.
    """

    name: str
    labels: tuple[Any, ...]
    codes: np.ndarray
    formula: str
    frame: pd.DataFrame

    @classmethod
    def read(cls, formula: str, data: Table) -> Classes:
        parsed, frame = parse(formula), read_frame("Model", data)
        text = parsed.response.text
        name = text.strip("`")
        if not re.fullmatch(r"[^\W\d]\w*|`[^`]+`", text) or parsed.about:
            raise problem("Model", f'family="multinomial" meets the response {text!r}', "a column of labels")
        if name not in frame.columns:
            raise parsed.refuse(parsed.response.at, *unknown(frame, name))
        if parsed.offsets:
            at = parsed.offsets[0].at
            raise parsed.refuse(at, 'an offset with family="multinomial"', "none: classes would share it")
        column = column_of("Model", frame, name)
        given = getattr(getattr(column, "dtype", None), "categories", None)
        there = ~np.asarray(frame[name].isna())
        values = np.asarray(frame[name], dtype=object)
        found = set(values[there].tolist())
        order = [x for x in given if x in found] if given is not None else sorted(found)
        if not 2 <= len(order) <= _MOST:
            got = f"the response {name!r} has {len(order)} different labels"
            raise problem("Model", got, f"2 to {_MOST}", 'For numbers use family="gaussian".')
        places = {label: (k - 1) % len(order) for k, label in enumerate(order)}  # the first becomes the last
        codes = np.array([places[v] if ok else np.nan for v, ok in zip(values, there, strict=True)])
        own = f"{name} is not {order[0]}"
        right = parsed.formula.split("~", 1)[1].strip()
        other = np.where(there, codes < len(order) - 1, np.nan)
        return cls(name, tuple(order), codes, f"`{own}` ~ {right}", frame.assign(**{own: other}))

    def target(self, target: Target, keep: np.ndarray, bound: str) -> Target:
        """The softmax in the place of the model of whether a row is the reference."""
        K = len(self.labels)
        if bound == "best":
            bound = "exact" if np.count_nonzero(keep) * K <= _EXACT else "tilted"
        likelihood = MultinomialLogit(K, "last", bound)
        return replace(target, likelihood=likelihood, y=self.codes[keep], level=0.0, values=None, words=None)


class FittedMultinomial(FittedModel):
    """What ``Model.fit`` returns for ``family="multinomial"``: a fitted model whose tables have a row a class."""

    @property
    def classes(self) -> list[Any]:
        """Those that have a predictor: all but the reference."""
        return list(self._labels[1:])

    @property
    def _labels(self) -> tuple[Any, ...]:
        assert self.model.classes is not None
        return self.model.classes.labels

    @property
    def coefficients(self) -> pd.DataFrame:
        """Of each class against the reference: mean, sd, 95 % interval."""
        import pandas as pd

        sum_ = self.model.sum
        T = sum_.columns.to_user(sum_.intercept)
        if self.model.fixed.back is not None:
            T = self.model.fixed.to_user(sum_.intercept, len(sum_.fixed_names))[0] @ T
        n = self.solution.posterior.latent_mean.shape[0]
        design = sp.csr_array(np.hstack([np.zeros((T.shape[0], n - T.shape[1])), T]))
        found = self.posterior.at(design=design)
        mean, variance = np.asarray(found.mean), np.asarray(found.variance)
        names = tables.names_of(self.model)
        marginals = [NormalMarginals(mean[:, c], variance[:, c]) for c in self._places]
        each = [marginal_table((None, names), one, "odds_ratio") for one in marginals]
        return pd.concat(dict(zip(self.classes, each, strict=True)), names=["class"])

    @property
    def _places(self) -> range:
        return range(len(self.classes))

    @property
    def covariance(self) -> pd.DataFrame:
        raise problem("covariance", "there are several classes", "coefficients, which has the sd of each")

    @property
    def effects(self) -> Mapping[Any, pd.DataFrame]:
        """Each special term as a frame, one row a class and level: by its text, ``"(1|g)"``, or its column, ``"g"``."""
        return ClassEffects(self)

    def predict(
        self,
        new: Table = None,
        kind: str = "probability",
        *,
        interval: float | None = None,
        new_groups: str = "population",
        without: str | Sequence[str] = (),
        exposure: Any = None,
        trials: Any = None,
    ) -> Any:
        """The probability of each class, the most probable class ("class"), or eta of each ("link").

        ``new``, ``new_groups`` and ``without`` are those of ``FittedModel.predict``. For intervals use ``sample``.
        """
        import pandas as pd

        choice("predict", "kind", kind, ("probability", "class", "link"))
        if interval is not None:
            raise problem("predict", "an interval of several classes", "sample(new, size), draws of the probabilities")
        where = predictions.rows_at(self, new, new_groups, without)
        h, rho = predictions.moments(self, where.new)
        if kind == "link":
            return pd.DataFrame(where.full(h), index=where.index, columns=pd.Index(self.classes))
        p = np.roll(np.asarray(self.found.likelihood.predictive_probabilities(h, rho)), 1, axis=1)
        if kind == "probability":
            return pd.DataFrame(where.full(p), index=where.index, columns=pd.Index(self._labels))
        best = np.empty(where.there.size, dtype=object)
        best[where.there] = [self._labels[k] for k in np.argmax(p, axis=1)]
        return pd.Series(best, index=where.index, name=kind)

    def sample(  # type: ignore[override]
        self, new: Table = None, size: int = 1000, rng: Any = None, *, new_groups: str = "population"
    ) -> np.ndarray:
        """Joint posterior draws (size, M, K) of the probabilities of the classes, the reference first."""
        where, rng = predictions.rows_at(self, new, new_groups), np.random.default_rng(rng)
        latents = predictions.latent_draws(self, count("sample", "size", size, 1), rng)
        eta = np.stack([predictions.eta_draws(where, latents[:, :, c], rng) for c in self._places], axis=2)  # (M, s, C)
        full = np.concatenate([np.zeros((*eta.shape[:2], 1)), eta], axis=2)
        e = np.exp(full - full.max(axis=2, keepdims=True))
        return np.moveaxis(where.full(e / e.sum(axis=2, keepdims=True)), 0, 1)

    _one = "this is asked of one predictor, and each class of a multinomial model has its own"
    _draws = "sample(new, size), joint draws of the probabilities of the classes"
    _tables = "coefficients and effects, tables with a row a class"
    simulate = refused("simulate", _one, _draws)
    exceedance = refused("exceedance", _one, f"{_draws}: the share of them that is above")
    contrast = refused("contrast", _one, f"coefficients for the log odds against the reference, or {_draws}")
    average_effect = refused("average_effect", _one, f"predict at rows that differ in the column, or {_draws}")
    to_arviz = refused("to_arviz", _one, _draws)
    plot = refused("plot", _one, _tables)
    plot_map = refused("plot_map", _one, _tables)
    plot_check = refused(
        "plot_check", _one, "predict(), whose means are shares of the classes, beside those of the data"
    )
    report = refused("report", _one, "summary(), a page of text")


class ClassEffects(tables.Effects):
    """The special terms of classes as frames, each made when it is asked for."""

    _fit: FittedMultinomial

    def __getitem__(self, key: Any) -> pd.DataFrame:
        import pandas as pd

        each = {label: self._of(c)[key] for c, label in enumerate(self._fit.classes)}
        return pd.concat(each, names=["class"])

    def _of(self, c: int) -> tables.Effects:
        """The same of one class."""
        fit = self._fit

        def at(**new: Any) -> NormalMarginals:
            found = fit.posterior.at(**new)
            return NormalMarginals(np.asarray(found.mean)[:, c], np.asarray(found.variance)[:, c])

        parts: dict[str, Any] = {"model": fit.model, "likelihood": SimpleNamespace(ratio="odds_ratio")}
        return tables.Effects(SimpleNamespace(posterior=SimpleNamespace(at=at), **parts))  # type: ignore[arg-type]
