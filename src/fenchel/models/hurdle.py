"""A hurdle model with a formula for its zeros: two models of the same rows that share nothing, so two fits.

    P(y = 0) = pi,   logit pi = the predictor of zero=            a Bernoulli model of every row
    p(y | y > 0) = a truncated count of the model's own predictor    of the rows with a count above 0

The log-likelihood is the sum of the two, as are the elbos and the gaps; E[y] = (1 - pi) E[y | y > 0].
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, count, problem
from ..likelihoods.prediction import quantile_of
from ..marginals import probabilities
from . import predictions
from .compiler import Scope
from .frames import Table
from .second import read_second

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .model import Model

TRUNCATED = {"hurdle-poisson": "truncated-poisson", "hurdle-negative-binomial": "truncated-negative-binomial"}
_DRAWS = 2000  # of a fixed seed, for the interval of a mean


def zeros_of(
    scope: Scope, family: object, zero: str | None, weights: Any, levels: Mapping[Hashable, Iterable[Hashable]] | None
) -> Model | None:
    """The model of zeros of a hurdle family whose zeros have a formula; None for any other."""
    from .model import Model

    if zero is None or family not in TRUNCATED:
        return None
    text = scope.parsed.response.text
    name = text.strip("`")
    if not re.fullmatch(r"[^\W\d]\w*|`[^`]+`", text) or name not in scope.columns:
        raise problem("Model", f"zero= meets the response {text!r}", "a column of counts")
    right = read_second("zero", zero).formula.split("~", 1)[1].strip()
    y, own = scope.frame[name], f"{name} is 0"
    frame = scope.frame.assign(**{own: np.where(y.isna(), np.nan, np.asarray(y, dtype=float) == 0.0)})
    env = {**scope.caller, **scope.env}
    given = {"weights": weights, "graphs": scope.graphs, "env": env, "levels": levels}
    return Model(f"`{own}` ~ {right}", frame, "bernoulli", **given)


class FittedHurdle:
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

    # -- tables ------------------------------------------------------------------------------------
    def _both(self, name: str) -> pd.DataFrame:
        import pandas as pd

        return pd.concat({part: getattr(getattr(self, part), name) for part in ("count", "zero")}, names=["part"])

    @property
    def coefficients(self) -> pd.DataFrame:
        """Of both parts: mean, sd, 95 % interval."""
        return self._both("coefficients")

    @property
    def hyperparameters(self) -> pd.DataFrame:
        """Of both parts: value and 95 % interval."""
        return self._both("hyperparameters")

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

    # -- predictions -------------------------------------------------------------------------------
    def predict(
        self,
        new: Table = None,
        kind: str = "mean",
        *,
        interval: float | None = None,
        new_groups: str = "population",
        exposure: Any = None,
    ) -> Any:
        """E[y] ("mean"), the same with the interval of y itself ("outcome"), or P(y = 0) ("zero").

        ``new``, ``interval``, ``new_groups`` and ``exposure`` are those of ``FittedModel.predict``.
        """
        import pandas as pd

        choice("predict", "kind", kind, ("mean", "outcome", "zero"))
        if kind == "zero":
            return self.zero.predict(new, interval=interval, new_groups=new_groups)
        none = self.zero.predict(new, new_groups=new_groups)
        above = self.count.predict(new, new_groups=new_groups, exposure=exposure)
        mean = ((1.0 - none) * above).rename(kind)
        if interval is None:
            return mean
        inside = float(probabilities("predict", interval, "interval"))
        ends = np.array([0.5 - inside / 2, 0.5 + inside / 2])
        if kind == "mean":
            draws = self.sample(new, _DRAWS, 0, new_groups=new_groups, exposure=exposure)
            limits = np.quantile(draws, ends, axis=0).T
        else:
            limits = self._quantiles(new, ends, none.to_numpy(), new_groups, exposure)
        return pd.DataFrame({"mean": mean, "lower": limits[:, 0], "upper": limits[:, 1]})

    def _quantiles(self, new: Table, ends: np.ndarray, none: np.ndarray, new_groups: str, exposure: Any) -> np.ndarray:
        """Of y (M, 2): P(y <= k) = pi + (1 - pi) P(count <= k)."""
        where = predictions.rows_at(self.count, new, new_groups)
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
        exposure: Any = None,
    ) -> np.ndarray:
        """Joint posterior draws (size, M) of E[y] at new rows, or of y ("outcome")."""
        choice("sample", "kind", kind, ("mean", "outcome"))
        size, rng = count("sample", "size", size, 1), np.random.default_rng(rng)
        above = self.count.sample(new, size, rng, kind=kind, new_groups=new_groups, exposure=exposure)
        none = self.zero.sample(new, size, rng, kind="mean", new_groups=new_groups)
        if kind == "mean":
            return np.asarray((1.0 - none) * above)
        return np.where(np.isnan(none), np.nan, np.where(rng.random(none.shape) < none, 0.0, above))

    def simulate(self, size: int = 1, rng: Any = None) -> np.ndarray:
        """Data sets as the fitted model would make them (size, N)."""
        return self.sample(None, size, rng, kind="outcome")

    def save(self, path: str | Path) -> None:
        """Keep the fitted model in a file; ``fenchel.load`` brings it back."""
        Path(path).write_bytes(pickle.dumps(self))
