"""Pictures over the inputs of a fitted estimator: one input with a band, or two inputs as a decision surface.

Inputs that are not on an axis stay at their medians. Pipelines are taken: inputs are those of the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ..checks import choice, problem, vector
from ..linalg.arrays import ArrayLike
from ..plots import plot_path
from ..plots.base import GREY, MARKERS, PALETTE, new_figure, quiet
from .display import Display, _last, _place, _reach


class LatentFunctionDisplay(Display):
    """A function of one input with its band, and the data: the latent function, a rate, or class probabilities.

    Parameters
    ----------
    x : array (M,)
    middle, lower, upper : arrays (M,), or (S, M) for several curves
    labels : sequence of S str
        Of the curves.
    points : (x, y) or (x, y, area) of the data, optional
        For several curves a list of such, one a curve. ``area`` in square points.
    names : pair of str
        Of the axes.
    level : float
        Probability of the band.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import GaussianProcessPoissonRegressor, LatentFunctionDisplay
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> model = GaussianProcessPoissonRegressor().fit(x, y)
    >>> display = LatentFunctionDisplay.from_estimator(model, x, y)
    >>> display.ax_.get_ylabel(), display.middle.shape
    ('rate', (1, 200))
    """

    def __init__(
        self,
        x: Any,
        middle: Any,
        lower: ArrayLike,
        upper: ArrayLike,
        *,
        labels: Sequence[str] = ("posterior median",),
        points: Any = None,
        names: tuple[str, str] = ("", ""),
        level: float = 0.95,
    ) -> None:
        self.x = np.asarray(x, dtype=np.float64)
        self.middle, self.lower, self.upper = (np.atleast_2d(np.asarray(v, float)) for v in (middle, lower, upper))
        self.labels, self.names, self.level = list(labels), names, level
        self.points = [points] if isinstance(points, tuple) else points

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        feature: int | str = 0,
        kind: str = "response",
        exposure: Any = None,
        level: float = 0.95,
        resolution: int = 200,
        ax: Any = None,
        **options: Any,
    ) -> LatentFunctionDisplay:
        """Predict along one input, and draw.

        Parameters
        ----------
        estimator : fitted Gaussian process, linear model, or a pipeline that ends in one
        X : array (N, D)
            Its range is that of the axis.
        y : array (N,), optional
            Drawn as points (``kind="response"`` only).
        feature : int or str
            The input on the axis; the others stay at their medians.
        kind : {"response", "latent"}
            Probabilities or rates, or the latent function eta. Two classes: of the second; more: one curve a class.
        exposure : array (N,), optional
            Points are drawn as y / exposure, larger where it is larger, and rates are per unit of it.
        level, resolution : probability of the band; points along the axis
        ax, **options : as in ``plot``
        """
        choice("LatentFunctionDisplay", "kind", kind, ("response", "latent"))
        final, ahead = _split(estimator)
        table, names, make = _inputs("LatentFunctionDisplay", X)
        d = _place("LatentFunctionDisplay", "feature", names, feature)
        x = _span(table[:, d], int(resolution), 0.03)
        rows = np.tile(np.median(table, axis=0), (x.size, 1))
        rows[:, d] = x
        curves = _latent if kind == "latent" else _probabilities if is_classifier(final) else _rates
        middle, lower, upper, labels, ylabel = curves(final, ahead(make(rows)), level)
        points = None
        if y is not None and kind == "response":
            points = _points(final, table[:, d], np.asarray(y), exposure, len(middle))
        display = cls(
            x, middle, lower, upper, labels=labels, points=points, names=(names[d], ylabel), level=float(level)
        )
        return display.plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> LatentFunctionDisplay:
        """Draw into ``ax`` or a figure of its own; ``options``: xlabel, ylabel, title, points_label."""
        looks = {"xlabel": self.names[0], "ylabel": self.names[1], "title": "", "points_label": "data"} | options
        ax = new_figure(6.2, 3.6).subplots() if ax is None else ax
        word, several = looks.pop("points_label"), len(self.middle) > 1
        for k, (x, y, *area) in enumerate(self.points or []):
            colour = PALETTE[k % len(PALETTE)] if several else GREY
            size, name = area[0] if area else 12.0, None if several else word
            ax.scatter(x, y, s=size, color=colour, linewidths=0, alpha=0.7, label=name, zorder=1, clip_on=False)
        band = f"{100 * self.level:g} % band"
        if not several:
            plot_path(
                self.x, self.middle[0], self.lower[0], self.upper[0], ax, label=self.labels[0], band=band, **looks
            )
            return self._drawn(ax)
        for k, label in enumerate(self.labels):
            colour = PALETTE[k % len(PALETTE)]
            ax.fill_between(self.x, self.lower[k], self.upper[k], color=colour, alpha=0.2, linewidth=0, zorder=2)
            ax.plot(self.x, self.middle[k], color=colour, label=label, linestyle=("-", "--", "-.", ":")[k % 4])
        ax.margins(x=0.01)
        ax.set(**looks)
        ax.legend(frameon=False, fontsize=9, title=f"with {band}", title_fontsize=9)
        quiet(ax)
        return self._drawn(ax)


class DecisionSurfaceDisplay(Display):
    """Predictive class probabilities over two inputs, and the data.

    Two classes: the probability of the second. More: the colour of the most probable class, paler where it is less
    certain; lines where it changes.

    Parameters
    ----------
    x, y : arrays (C,), (R,)
        The grid.
    probabilities : array (R, C, K)
    classes : sequence of K labels
    points : (x, y, class number), optional
        Arrays (N,).
    names : pair of str
        Of the axes.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from fenchel.estimators import DecisionSurfaceDisplay, GaussianProcessClassifier
    >>> X, y = make_moons(30, noise=0.3, random_state=0)
    >>> model = GaussianProcessClassifier(optimizer=None).fit(X, y)
    >>> DecisionSurfaceDisplay.from_estimator(model, X, y, resolution=20).probabilities.shape
    (20, 20, 2)
    """

    def __init__(
        self,
        x: Any,
        y: ArrayLike,
        probabilities: Any,
        classes: Sequence[Any],
        points: tuple[Any, Any, Any] | None = None,
        names: tuple[str, str] = ("", ""),
    ) -> None:
        self.x, self.y, self.probabilities = (np.asarray(v, dtype=np.float64) for v in (x, y, probabilities))
        self.classes, self.points, self.names = list(classes), points, names
        wanted = (self.y.size, self.x.size, len(self.classes))
        if self.probabilities.shape != wanted or len(self.classes) < 2:
            got = f"probabilities have shape {self.probabilities.shape}"
            raise problem("DecisionSurfaceDisplay", got, f"{wanted}: rows, columns, two or more classes")

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        features: Sequence[int | str] = (0, 1),
        resolution: int = 60,
        ax: Any = None,
        **options: Any,
    ) -> DecisionSurfaceDisplay:
        """Predict on a grid over the range of X, and draw.

        Parameters
        ----------
        estimator : any fitted classifier with ``predict_proba``, or a pipeline that ends in one
        X : array (N, D)
        y : labels (N,), optional
            Drawn as points.
        features : two ints or names
            The inputs on the axes; the others stay at their medians.
        resolution : int
            Points along each axis.
        ax, **options : as in ``plot``
        """
        check_is_fitted(_last(estimator))
        table, names, make = _inputs("DecisionSurfaceDisplay", X)
        if len(features) != 2 or not hasattr(estimator, "predict_proba"):
            got = f"{type(estimator).__name__} over {len(features)} features"
            raise problem("DecisionSurfaceDisplay", got, "a classifier with predict_proba, over two of its features")
        i, j = (_place("DecisionSurfaceDisplay", "feature", names, f) for f in features)
        across, up = (_span(table[:, d], int(resolution), 0.08) for d in (i, j))
        rows = np.tile(np.median(table, axis=0), (up.size * across.size, 1))
        rows[:, i], rows[:, j] = np.tile(across, up.size), np.repeat(up, across.size)
        p = np.asarray(estimator.predict_proba(make(rows))).reshape(up.size, across.size, -1)
        points = None
        if y is not None:
            labels, known = np.asarray(y), np.asarray(estimator.classes_).tolist()
            numbers = np.full(labels.shape, -1)
            for k, label in enumerate(known):
                numbers[labels == label] = k
            if labels.shape != table.shape[:1] or (numbers < 0).any():
                got = f"y has shape {labels.shape} and labels {np.unique(labels).tolist()}"
                raise problem("DecisionSurfaceDisplay", got, f"({len(table)},), labels among {known}")
            points = (table[:, i], table[:, j], numbers)
        return cls(across, up, p, estimator.classes_, points, (names[i], names[j])).plot(ax, **options)

    def plot(self, ax: Any = None, *, class_names: Sequence[str] | None = None, title: str = "") -> Any:
        """Draw into ``ax`` or a figure of its own; ``class_names`` replace the labels in the legend."""
        words = [str(c) for c in (self.classes if class_names is None else class_names)]
        ax = new_figure(5.4, 4.2).subplots() if ax is None else ax
        if len(self.classes) == 2:
            self._draw_two(ax, words)
        else:
            self._draw_many(ax)
        x, y, numbers = (np.zeros(0),) * 3 if self.points is None else self.points
        for k, word in enumerate(words):  # without points, the legend still names the colours
            mine = numbers == k
            style: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6, "markersize": 5.5}
            colour = PALETTE[k % len(PALETTE)]
            ax.plot(x[mine], y[mine], MARKERS[k % len(MARKERS)], color=colour, label=word, **style)
        ax.set(xlabel=self.names[0], ylabel=self.names[1], xlim=self.x[[0, -1]], ylim=self.y[[0, -1]])
        ax.set_title(title, fontsize="medium")
        columns = 2 if max(map(len, words)) > 16 else 3
        ax.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=columns)
        return self._drawn(ax)

    def _draw_two(self, ax: Any, words: list[str]) -> None:
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.patheffects import withStroke

        p = self.probabilities[:, :, 1]
        colours = LinearSegmentedColormap.from_list("two classes", [PALETTE[0], "white", PALETTE[1]])
        filled = ax.contourf(self.x, self.y, p, levels=np.linspace(0, 1, 11), cmap=colours, alpha=0.75)
        lines = ax.contour(self.x, self.y, p, levels=[0.1, 0.5, 0.9], colors="black", linewidths=[0.6, 1.3, 0.6])
        for number in ax.clabel(lines, fontsize=9, fmt="%g", zorder=4):  # above the points, and told apart from them
            number.set_path_effects([withStroke(linewidth=2, foreground="white")])
        ax.figure.colorbar(filled, ax=ax, ticks=np.linspace(0, 1, 6)).set_label(f"P({words[1]})")

    def _draw_many(self, ax: Any) -> None:
        from matplotlib.colors import to_rgb

        K = len(self.classes)
        best, top = np.argmax(self.probabilities, axis=2), np.max(self.probabilities, axis=2)
        ink = np.array([to_rgb(PALETTE[k % len(PALETTE)]) for k in range(K)])
        strength = 0.75 * np.clip((top - 1 / K) / (1 - 1 / K), 0.0, 1.0)[:, :, None]
        step_x, step_y = (self.x[1] - self.x[0]) / 2, (self.y[1] - self.y[0]) / 2
        edges = (self.x[0] - step_x, self.x[-1] + step_x, self.y[0] - step_y, self.y[-1] + step_y)
        ax.imshow(1 - strength * (1 - ink[best]), origin="lower", extent=edges, aspect="auto", interpolation="bilinear")
        for k in range(K):  # where class k overtakes the best of the others
            others = np.delete(self.probabilities, k, axis=2).max(axis=2)
            lead = self.probabilities[:, :, k] - others
            if lead.min() < 0.0 < lead.max():
                ax.contour(self.x, self.y, lead, levels=[0.0], colors="black", linewidths=0.8)


# -- small parts ---------------------------------------------------------------------------------------
def _split(estimator: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The last step, and what the steps before it do to X."""
    final = _last(estimator)
    check_is_fitted(final)
    ahead = estimator[:-1].transform if final is not estimator and len(estimator.steps) > 1 else lambda X: X
    return final, ahead


def _inputs(where: str, X: Any) -> tuple[np.ndarray, list[str], Callable[[np.ndarray], Any]]:
    """X as numbers, the names of its columns, and a maker of more rows of the same kind."""
    table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] == 0:
        raise problem(where, f"X has shape {table.shape}", "(N, D)", "Use x[:, None] for one input.")
    if hasattr(X, "columns"):
        import pandas as pd

        return table, [str(c) for c in X.columns], lambda rows: pd.DataFrame(rows, columns=X.columns)
    return table, [f"x{d}" for d in range(table.shape[1])], lambda rows: rows


def _span(values: np.ndarray, n: int, margin: float) -> np.ndarray:
    """The range of a column, a little wider."""
    low, high = float(values.min()), float(values.max())
    more = margin * (high - low) or 0.5
    return np.linspace(low - more, high + more, max(n, 2))


def _latent(model: Any, X: Any, level: float) -> tuple[Any, Any, Any, list[str], str]:
    h, rho = (np.atleast_2d(np.asarray(v).T) for v in model.latent_mean_and_variance(X))
    reach = _reach("LatentFunctionDisplay", level) * np.sqrt(rho)
    labels = ["posterior mean"] if len(h) == 1 else [str(c) for c in model.classes_]
    return h, h - reach, h + reach, labels, "latent function"


def _probabilities(model: Any, X: Any, level: float) -> tuple[Any, Any, Any, list[str], str]:
    _reach("LatentFunctionDisplay", level)
    p, ends = model.predict_proba(X), model.predict_quantiles(X, [(1 - level) / 2, (1 + level) / 2])
    if ends.ndim == 2:
        return p[:, 1], ends[:, 0], ends[:, 1], ["predictive probability"], f"P({model.classes_[1]})"
    return p.T, ends[:, :, 0].T, ends[:, :, 1].T, [str(c) for c in model.classes_], "probability"


def _rates(model: Any, X: Any, level: float) -> tuple[Any, Any, Any, list[str], str]:
    _reach("LatentFunctionDisplay", level)
    low, middle, high = model.predict_rate(X, [(1 - level) / 2, 0.5, (1 + level) / 2]).T
    word = "rate" if "exposure" in model.likelihood_.row_parameters else "mean"
    return middle, low, high, ["posterior median"], word


def _points(model: Any, x: np.ndarray, y: np.ndarray, exposure: ArrayLike, curves: int) -> list[tuple[Any, ...]]:
    """The data on the scale of the curves: labels as 0 and 1, counts per unit of exposure."""
    if not is_classifier(model):
        E = vector("LatentFunctionDisplay", "exposure", 1.0 if exposure is None else exposure, x.size)
        return [(x, y.astype(np.float64) / E, np.clip(20.0 * E / E.mean(), 3.0, 200.0))]
    if curves == 1:
        return [(x, (y == model.classes_[1]).astype(np.float64))]
    # one row of dots a class, just below 0, so that they do not hide one another
    return [(x[y == c], np.full(int((y == c).sum()), -0.03 * (k + 1))) for k, c in enumerate(model.classes_)]
