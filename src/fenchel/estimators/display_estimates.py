"""Pictures of what was estimated: coefficients as a forest, the volatility of a series as a path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..checks import problem
from ..linalg.arrays import ArrayLike
from ..plots import plot_forest, plot_path
from ..plots.base import ORANGE
from .display import Display, _last, _reach


class CoefficientsDisplay(Display):
    """Coefficients with their intervals, by name: a forest plot.

    Parameters
    ----------
    names : sequence of D str
    mean, std : arrays (D,), or (S, D) to compare S models or classes
    labels : sequence of S str
        For the legend.

    Examples
    --------
    >>> from fenchel.estimators import CoefficientsDisplay
    >>> display = CoefficientsDisplay(["glucose", "age"], [0.9, 0.1], [0.15, 0.1]).plot(level=0.9)
    >>> [tick.get_text() for tick in display.ax_.get_yticklabels()]
    ['glucose', 'age']
    """

    def __init__(self, names: Sequence[str], mean: Any, std: Any, labels: Sequence[str] = ()) -> None:
        self.names, self.labels = [str(name) for name in names], [str(label) for label in labels]
        self.mean, self.std = (np.atleast_2d(np.asarray(v, dtype=np.float64)) for v in (mean, std))

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        feature_names: Sequence[str] | None = None,
        sort: bool = False,
        level: float = 0.95,
        ax: Any = None,
        **options: Any,
    ) -> CoefficientsDisplay:
        """Draw ``coef_`` and its intervals; the intercept is left out.

        Parameters
        ----------
        estimator : fitted, with ``coef_`` and ``coef_std_``; or a dict of several, by the name each has in the legend
            A row of coefficients a class is drawn as a colour a class. A pipeline's last step is drawn.
        feature_names : sequence of str, optional
            Default: the estimator's ``coef_names_`` or ``feature_names_in_``, a pipeline's own, or x0, x1, ...
        sort : bool
            The largest absolute coefficient (of the first estimator) first.
        level, ax, **options : as in ``plot``
        """
        several = estimator if isinstance(estimator, Mapping) else {"": estimator}
        mean, std, labels, names = [], [], [], feature_names
        for word, whole in several.items():
            one = _last(whole)
            check_is_fitted(one, ["coef_", "coef_std_"])
            names = _names(whole) if names is None else names
            rows = np.atleast_2d(one.coef_)
            mean.append(rows)
            std.append(np.atleast_2d(one.coef_std_))
            classes = [str(c) for c in one.classes_] if rows.shape[0] > 1 else [""]
            labels += [", ".join(filter(None, (str(word), c))) for c in classes]
        if len({rows.shape[1] for rows in mean}) != 1:
            got = f"models of {[rows.shape[1] for rows in mean]} coefficients"
            raise problem("CoefficientsDisplay", got, "the same features in all")
        m, s = np.concatenate(mean), np.concatenate(std)
        words = [f"x{d}" for d in range(m.shape[1])] if names is None else [str(name) for name in names]
        if len(words) != m.shape[1]:
            got = f"{len(words)} feature names meet {m.shape[1]} coefficients"
            raise problem("CoefficientsDisplay", got, "one name a coefficient")
        order = np.argsort(-np.abs(m[0]), kind="stable") if sort else np.arange(m.shape[1])
        shown = labels if any(labels) else ()
        return cls([words[d] for d in order], m[:, order], s[:, order], shown).plot(ax, level=level, **options)

    def plot(self, ax: Any = None, *, level: float = 0.95, **options: Any) -> CoefficientsDisplay:
        """Draw intervals of probability ``level``; ``options`` are those of ``fenchel.plots.plot_forest``."""
        reach = _reach("CoefficientsDisplay", level) * self.std
        looks = {"labels": self.labels, "label": f"coefficient, {100 * level:g} % interval"}
        ax = plot_forest(self.names, self.mean, self.mean - reach, self.mean + reach, ax, **looks | options)
        return self._drawn(ax)


class VolatilityDisplay(Display):
    """The volatility of a series with its band, and if asked what comes next.

    Parameters
    ----------
    mean, lower, upper : arrays (N,)
        The standard deviation of a return, and its interval.
    t : array (N,) of numbers or dates (datetime64), optional
        Default: 0, 1, ...
    returns : array (N,) or shorter, optional
        Drawn behind the path, as absolute values.
    ahead : int
        How many of the last entries are a forecast; they are drawn dashed.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import VolatilityDisplay
    >>> display = VolatilityDisplay(np.ones(4), np.full(4, 0.5), np.full(4, 1.5)).plot(xlabel="day")
    >>> display.ax_.get_ylabel()
    'volatility'
    """

    def __init__(
        self, mean: Any, lower: ArrayLike, upper: ArrayLike, t: Any = None, returns: Any = None, ahead: int = 0
    ) -> None:
        self.mean, self.lower, self.upper = (np.asarray(v, dtype=np.float64) for v in (mean, lower, upper))
        self.t = np.arange(self.mean.size) if t is None else np.asarray(t)
        self.returns = None if returns is None else np.asarray(returns, dtype=np.float64)
        self.ahead = int(ahead)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, t: Any = None, returns: Any = None, forecast: int = 0, ax: Any = None, **options: Any
    ) -> VolatilityDisplay:
        """Draw ``volatility_``, and ``forecast`` steps after it.

        Parameters
        ----------
        estimator : fitted ``StochasticVolatilityModel``
        t : array (N,), optional
            Default: the times of the fit. A forecast goes on by their mean step.
        returns : array (N,), optional
        forecast : int
        ax, **options : as in ``plot``
        """
        estimator = _last(estimator)
        check_is_fitted(estimator, "volatility_")
        path = [np.asarray(part) for part in estimator.volatility_]
        when = np.asarray(getattr(estimator, "times_", np.arange(path[0].size)) if t is None else t)
        if forecast:
            next_ = estimator.forecast(forecast, (0.025, 0.975))
            columns = ("volatility", "volatility_0.025", "volatility_0.975")
            path = [np.append(part, next_[column]) for part, column in zip(path, columns)]
            when = np.append(when, _onwards(when, int(forecast)))
        mean, lower, upper = path
        return cls(mean, lower, upper, when, returns, forecast).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> VolatilityDisplay:
        """Draw into ``ax`` or a figure of its own; ``options`` are those of ``fenchel.plots.plot_path``."""
        seen = slice(0, self.mean.size - self.ahead)
        looks: dict[str, Any] = {"label": "volatility", "ylabel": "volatility", "points_label": "absolute return"}
        if self.returns is not None:
            looks["points"] = np.abs(self.returns[seen])
        t, mean, lower, upper = self.t, self.mean, self.lower, self.upper
        ax = plot_path(t[seen], mean[seen], lower[seen], upper[seen], ax, **looks | options)
        if self.ahead:
            rest = slice(max(self.mean.size - self.ahead - 1, 0), None)  # from the last estimate on
            ax.fill_between(t[rest], lower[rest], upper[rest], color=ORANGE, alpha=0.25, linewidth=0, zorder=2)
            ax.plot(t[rest], mean[rest], color=ORANGE, linestyle="--", linewidth=1.2, label="forecast", zorder=3)
            ax.legend(frameon=False, fontsize=9, loc="best")
        return self._drawn(ax)


def _names(estimator: Any) -> Any:
    """What an estimator calls its coefficients, or None."""
    final = _last(estimator)
    found = getattr(final, "coef_names_", getattr(final, "feature_names_in_", None))
    if found is None and final is not estimator and hasattr(estimator[:-1], "get_feature_names_out"):
        found = estimator[:-1].get_feature_names_out()
    return found


def _onwards(t: np.ndarray, steps: int) -> np.ndarray:
    """The next times: the last one and its mean step, so that trading days keep the pace of the calendar."""
    first, last = (t[[0, -1]].astype("datetime64[s]") if t.dtype.kind == "M" else t[[0, -1]]).astype(np.float64)
    later = last + (last - first) / max(t.size - 1, 1) * np.arange(1, steps + 1)
    return later.astype(np.int64).astype("datetime64[s]").astype(t.dtype) if t.dtype.kind == "M" else later
