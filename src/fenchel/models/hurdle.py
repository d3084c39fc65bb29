"""A hurdle model with a formula for its zeros: two models of the same rows that share nothing, so two fits.

    P(y = 0) = pi,   logit pi = the predictor of zero=            a Bernoulli model of every row
    p(y | y > 0) = a truncated count of the model's own predictor    of the rows with a count above 0

The log-likelihood is the sum of the two, as are the elbos and the gaps; E[y] = (1 - pi) E[y | y > 0].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, count, problem
from ..criticism import InformationCriterion
from ..files import Stored
from ..inputs.frames import Table
from ..likelihoods import WORDS
from ..likelihoods.prediction import quantile_of
from ..marginals import probabilities
from ..row_scores import LeaveOneOut
from . import predictions, tables
from .compiler import Scope
from .refusing import refused
from .response import read_second
from .stated_priors import FLAT, term_named

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

_DRAWS = 2000  # of a fixed seed, for the interval of a mean


PARTS = ("count", "zero")


def above_zero(family: object) -> str | None:
    """The family of the counts above 0 of one whose zeros may be a model of their own; None for any other."""
    own = WORDS.get(family) if isinstance(family, str) else None
    return None if own is None else own.above_zero


def zeros_of(scope: Scope, family: object, zero: str | None, **given: Any) -> Model | None:
    """The model of zeros of a hurdle family whose zeros have a formula; None for any other.

    ``given`` are weights, levels, priors and fixed_sd of the whole model; priors may name what only the counts have.
    """
    from .model import Model

    if zero is None or above_zero(family) is None:
        return None
    text = scope.parsed.response.text
    name = text.strip("`")
    if not re.fullmatch(r"[^\W\d]\w*|`[^`]+`", text) or name not in scope.columns:
        raise problem("Model", f"zero= meets the response {text!r}", "a column of counts")
    right = read_second("zero", zero).formula.split("~", 1)[1].strip()
    y, own = scope.frame[name], f"{name} is 0"
    frame = scope.frame.assign(**{own: np.where(y.isna(), np.nan, np.asarray(y, dtype=float) == 0.0)})
    env = {**scope.caller, **scope.env}
    options: dict[str, Any] = {"graphs": scope.graphs, "env": env, "_elsewhere": list(given["priors"])}
    given["priors"], wider = of_part(given["priors"], "zero")
    given["fixed_sd"] *= wider
    options["_depth"] = 1 if scope.python else None
    return Model(f"`{own}` ~ {right}", frame, "bernoulli", **given, **options)


def of_part(asked: Mapping[str, Any], part: str) -> tuple[dict[str, Any], float]:
    """The priors of a part, those of either and those stated of it, and how much wider its coefficients' are."""
    stated = asked.get(part, {})
    if not (stated is None or isinstance(stated, Mapping)):
        got = f"priors[{part!r}] is {stated!r}"
        raise problem("Model", got, f"{{name: prior}} of the model of {part}s, or None for flat coefficients")
    both = {key: value for key, value in asked.items() if key not in PARTS}
    return both | dict(stated or {}), FLAT if stated is None else 1.0


def names_in(zeros: Model, asked: Iterable[str]) -> list[str]:
    """What priors may name of the model of zeros, and what they do name of it."""
    own, terms = tables.names_of(zeros), zeros.sum.effects
    return [*own, *(str(term.name) for term in terms), *(k for k in asked if term_named(terms, k) is not None)]


def _refused(name: str) -> Any:
    why = "a hurdle with a formula for its zeros is two models"
    return refused(name, why, f"fit.count.{name} of the counts above 0, or fit.zero.{name} of the zeros")


class FittedHurdle(Stored):
    """What ``Model.fit`` returns for a hurdle family with ``zero=``.

    Attributes
    ----------
    count, zero : FittedModel
        Of the counts above 0, and of whether a row is 0. Each has its own certificate.
    converged : bool
        Whether both are.
    elbo, gap : float
        The sums over the two.
    """

    def __init__(self, count: FittedModel, zero: FittedModel) -> None:
        self.count, self.zero, self.model = count, zero, count.model
        self.converged = count.converged and zero.converged
        self.elbo, self.gap = count.elbo + zero.elbo, count.gap + zero.gap

    def corrected(self) -> FittedHurdle:
        """Both parts beyond the Gaussian, as ``FittedModel.corrected`` has them."""
        return FittedHurdle(self.count.corrected(), self.zero.corrected())

    # -- tables ------------------------------------------------------------------------------------
    def _both(self, name: str) -> pd.DataFrame:
        """A table of both parts; a part whose table is empty has no rows in it."""
        import pandas as pd

        each = {part: getattr(getattr(self, part), name) for part in PARTS}
        filled = {part: frame for part, frame in each.items() if len(frame)}
        return pd.concat(filled, names=["part"]) if filled else each["count"]

    @property
    def coefficients(self) -> pd.DataFrame:
        """Of both parts: mean, sd, 95 % interval."""
        return self._both("coefficients")

    @property
    def hyperparameters(self) -> pd.DataFrame:
        """Of both parts: value and 95 % interval."""
        return self._both("hyperparameters")

    @property
    def priors(self) -> pd.DataFrame:
        """Every prior of both parts, in words."""
        return self._both("priors")

    @property
    def effects(self) -> Mapping[Any, pd.DataFrame]:
        """Each special term as a frame, one row a part and level: by its text, ``"(1|g)"``, or its column, ``"g"``."""
        return PartEffects(self)

    def summary(self) -> str:
        """Both parts, each with its certificate."""
        word = "converged" if self.converged else "NOT CONVERGED"
        top = f"{word}: two fits that share nothing, gap {self.gap:.1e} nats, log evidence at least {self.elbo:.3f}"
        parts = ("counts above 0", self.count), ("zeros", self.zero)
        return "\n\n".join([top, *(f"-- {name} --\n{fit.summary()}" for name, fit in parts)])

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        formulas = f"{self.count.model.formula!r}, {self.zero.model.formula!r}"
        return f"FittedHurdle({formulas}, {word}, elbo={self.elbo:.4f}, gap={self.gap:.1e})"

    def report(self, path: str | Path, geometry: dict[str, Any] | None = None) -> Path:
        """Write one html page of both parts, each as ``FittedModel.report`` has it."""
        from .page import report_of_parts

        parts = {"Counts above 0": self.count, "Zeros": self.zero}
        return report_of_parts(self.model.formula, parts, path, geometry or {})

    # -- criteria ----------------------------------------------------------------------------------
    @property
    def observed(self) -> np.ndarray:
        """y of every row of the data, NaN where it is missing or a part left the row out."""
        n, zero, above = len(self.model.data_index), self.zero.model, self.count.model
        none, y = np.full(n, np.nan), np.full(n, np.nan)
        none[zero.kept] = np.where(zero.target.seen > 0.0, zero.target.y, np.nan)
        y[above.kept] = np.where(above.target.seen > 0.0, above.target.y, 0.0)  # a zero has no count
        return np.where(np.isnan(none) | ((y > 0.0) == (none == 1.0)), np.nan, y)

    def loo(self, corrected: bool = False) -> LeaveOneOut:
        """Leave-one-out predictive densities of every row of the data: log p(is it 0) + log p(count | above 0).

        ``mean`` and ``variance`` (N, 2) are of eta of the counts and of the zeros.
        """
        parts = [getattr(self, part).loo(corrected) for part in PARTS]
        moments = (np.stack([np.asarray(getattr(p, name)) for p in parts], axis=1) for name in ("mean", "variance"))
        return LeaveOneOut(self._added([p.log_density for p in parts]), *moments)

    def _added(self, parts: Sequence[Any]) -> np.ndarray:
        """What the two parts say of each row (N,): both of a count, that of zeros alone of a zero."""
        of_count, of_zero = (np.asarray(part) for part in parts)
        y = self.observed
        return np.where(np.isnan(y), np.nan, of_zero + np.where(y > 0.0, of_count, 0.0))

    def waic(self) -> InformationCriterion:
        """The widely applicable information criterion, row by row; ``loo`` is the better one."""
        parts = [getattr(self, part).waic() for part in PARTS]
        density, penalty = (self._added([getattr(p, name) for p in parts]) for name in ("log_density", "penalty"))
        return InformationCriterion(density, penalty, parts[0].flagged | parts[1].flagged)

    covariance = property(_refused("covariance"))
    contrast = _refused("contrast")
    average_effect = _refused("average_effect")
    exceedance = _refused("exceedance")
    leave_group_out = _refused("leave_group_out")
    k_fold = _refused("k_fold")
    plot = _refused("plot")
    plot_check = _refused("plot_check")
    plot_joint = _refused("plot_joint")
    plot_map = _refused("plot_map")
    to_arviz = _refused("to_arviz")

    # -- predictions -------------------------------------------------------------------------------
    def predict(
        self,
        new: Table = None,
        kind: str = "mean",
        *,
        interval: float | None = None,
        new_groups: str = "population",
        without: str | Sequence[str] = (),
        exposure: Any = None,
    ) -> Any:
        """E[y] ("mean"), the same with the sd and the interval of y itself ("outcome"), or P(y = 0) ("zero").

        With an ``interval`` a frame with mean, sd, lower and upper.

        ``new``, ``interval``, ``new_groups``, ``without`` and ``exposure`` are those of ``FittedModel.predict``; a term
        of ``without`` is 0 in each part that has it.
        """
        import pandas as pd

        choice("predict", "kind", kind, ("mean", "outcome", "zero"))
        count_less, zero_less = (self._known(part, without) for part in PARTS)
        if kind == "zero":
            return self.zero.predict(new, interval=interval, new_groups=new_groups, without=zero_less)
        of_zeros: dict[str, Any] = {"new_groups": new_groups, "without": zero_less, "interval": interval}
        of_counts: dict[str, Any] = {**of_zeros, "without": count_less, "exposure": exposure}
        none, above = self.zero.predict(new, **of_zeros), self.count.predict(new, kind, **of_counts)
        if interval is None:
            return ((1.0 - none) * above).rename(kind)
        mean, sd = _product(none, above, kind)
        inside = float(probabilities("predict", interval, "interval"))
        ends = np.array([0.5 - inside / 2, 0.5 + inside / 2])
        if kind == "mean":
            draws = self.sample(new, _DRAWS, 0, new_groups=new_groups, without=without, exposure=exposure)
            limits = np.quantile(draws, ends, axis=0).T
        else:
            where = predictions.rows_at(self.count, new, new_groups, count_less)
            limits = self._quantiles(where, ends, none["mean"].to_numpy(), exposure)
        return pd.DataFrame({"mean": mean, "sd": sd, "lower": limits[:, 0], "upper": limits[:, 1]})

    def _known(self, part: str, without: str | Sequence[str]) -> list[str]:
        """Of the terms left out, those of one part."""
        asked, terms = [without] if isinstance(without, str) else list(without), {}
        for name in PARTS:
            terms[name] = getattr(self, name).model.sum.effects
        for key in asked:
            if key != "groups" and all(term_named(terms[name], key) is None for name in PARTS):
                known = ", ".join(repr(str(each.name)) for name in PARTS for each in terms[name]) or "none is there"
                raise problem("predict", f"without names {key!r}", f'"groups", or terms of either part: {known}')
        return [key for key in asked if key == "groups" or term_named(terms[part], key) is not None]

    def _quantiles(self, where: predictions.Where, ends: np.ndarray, none: np.ndarray, exposure: Any) -> np.ndarray:
        """Of y (M, 2): P(y <= k) = pi + (1 - pi) P(count <= k)."""
        h, rho = predictions.moments(self.count, where.new)
        likelihood, pi = predictions.likelihood_at(self.count, where, {"exposure": exposure}), none[where.there]
        out = []
        for end in ends:
            level = np.clip((end - pi) / (1.0 - pi), 1e-12, 1.0 - 1e-12)
            out.append(np.where(end <= pi, 0.0, quantile_of(likelihood, h, rho, level)))
        return where.full(np.stack(out, axis=1))

    def sample(
        self,
        new: Table = None,
        size: int = 1000,
        rng: Any = None,
        *,
        kind: str = "mean",
        new_groups: str = "population",
        without: str | Sequence[str] = (),
        exposure: Any = None,
    ) -> np.ndarray:
        """Joint posterior draws (size, M) of E[y] at new rows, or of y ("outcome")."""
        choice("sample", "kind", kind, ("mean", "outcome"))
        size, rng = count("sample", "size", size, 1), np.random.default_rng(rng)
        count_less, zero_less = (self._known(part, without) for part in PARTS)
        above = self.count.sample(
            new, size, rng, kind=kind, new_groups=new_groups, without=count_less, exposure=exposure
        )
        none = self.zero.sample(new, size, rng, kind="mean", new_groups=new_groups, without=zero_less)
        if kind == "mean":
            return np.asarray((1.0 - none) * above)
        return np.where(np.isnan(none), np.nan, np.where(rng.random(none.shape) < none, 0.0, above))

    def simulate(self, size: int = 1, rng: Any = None, data: Table = None, **options: Any) -> np.ndarray:
        """Data sets as the fitted model would make them (size, N), at the rows of the fit or of ``data``."""
        return self.sample(data, size, rng, kind="outcome", **options)


def _product(none: pd.DataFrame, above: pd.DataFrame, kind: str) -> tuple[pd.Series, pd.Series]:
    """Mean and sd of (1 - pi) E[count], or of y ("outcome"), by the moments of the two parts, which are independent.

    E[m^2] = E[(1 - pi)^2] E[mu^2];  E[y^2] = E[1 - pi] E[count^2]
    """
    some = 1.0 - none["mean"]
    square = above["sd"] ** 2 + above["mean"] ** 2
    second = (some if kind == "outcome" else some**2 + none["sd"] ** 2) * square
    mean = some * above["mean"]
    return mean, np.sqrt(np.maximum(second - mean**2, 0.0))


class PartEffects(Mapping[Any, Any]):
    """The special terms of both parts as frames, each made when it is asked for."""

    def __init__(self, fit: FittedHurdle) -> None:
        self._parts = {part: getattr(fit, part) for part in PARTS}

    def __getitem__(self, key: Any) -> pd.DataFrame:
        import pandas as pd

        have = {p: fit for p, fit in self._parts.items() if term_named(fit.model.sum.effects, key) is not None}
        if not have:
            raise KeyError(str(problem("effects", f"there is no term {key!r}", f"one of {list(self)}")))
        return pd.concat({part: fit.effects[key] for part, fit in have.items()}, names=["part"])

    def __iter__(self) -> Iterator[Any]:
        return iter(dict.fromkeys(name for fit in self._parts.values() for name in fit.effects))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"effects of {', '.join(map(str, self))}" if len(self) else "no effects"
