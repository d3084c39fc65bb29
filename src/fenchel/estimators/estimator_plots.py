"""Pictures of a fitted estimator, each a few lines over ``fenchel.plots``: decision surfaces, effects, coefficients.

Inputs that are not on an axis stay at their medians. Pipelines are taken: inputs are those of the first step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ..checks import problem, vector
from ..inputs.frames import column_names
from ..plots import plot_decision, plot_forest, plot_path
from ..plots.base import GREY, PALETTE, finish_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_decision_surface(
    estimator: Any,
    X: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    features: Sequence[int | str] = (0, 1),
    resolution: int = 60,
    class_names: Sequence[str] | None = None,
    title: str = "",
) -> Axes:
    """Class probabilities over two columns of X, and the rows of X coloured by y.

    ``estimator`` is any fitted classifier with ``predict_proba``, ours or not, or a pipeline that ends in one.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from fenchel.estimators import GaussianProcessClassifier, plot_decision_surface
    >>> X, y = make_moons(30, noise=0.3, random_state=0)
    >>> plot_decision_surface(GaussianProcessClassifier().fit(X, y), X, y, resolution=20).get_xlabel()
    'x0'
    """
    check_is_fitted(_last(estimator))
    if len(features) != 2 or not hasattr(estimator, "predict_proba"):
        got = f"{type(estimator).__name__} over {len(features)} features"
        raise problem("plot_decision_surface", got, "a classifier with predict_proba, over two of its features")
    table, names = _inputs("plot_decision_surface", X)
    i, j = (_place("plot_decision_surface", names, feature) for feature in features)
    across, up = (_span(table[:, d], resolution, 0.08) for d in (i, j))
    rows = np.tile(np.median(table, axis=0), (up.size * across.size, 1))
    rows[:, i], rows[:, j] = np.tile(across, up.size), np.repeat(up, across.size)
    p = np.asarray(estimator.predict_proba(_like(X, rows))).reshape(up.size, across.size, -1)
    points, classes = None, np.asarray(estimator.classes_)
    if y is not None:
        places = np.argmax(np.asarray(y)[:, None] == classes, axis=1)
        if len(places) != len(table) or (classes[places] != np.asarray(y)).any():
            got = f"{len(places)} labels {np.unique(np.asarray(y)).tolist()}"
            raise problem("plot_decision_surface", got, f"{len(table)} labels among {classes.tolist()}")
        points = (table[:, i], table[:, j], places)
    words = list(classes) if class_names is None else list(class_names)
    return plot_decision(across, up, p, words, ax, points=points, xlabel=names[i], ylabel=names[j], title=title)


def plot_partial_effect(
    estimator: Any,
    X: Any,
    y: Any = None,
    ax: Axes | None = None,
    *,
    feature: int | str = 0,
    level: float = 0.95,
    resolution: int = 200,
    exposure: Any = None,
    **looks: Any,
) -> Axes:
    """Probabilities, or the mean of y, along one column of X with their band, and y as points.

    Points are y / exposure, larger where it is larger. ``looks`` are those of ``fenchel.plots.plot_path``.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.estimators import GaussianProcessPoissonRegressor, plot_partial_effect
    >>> x = np.linspace(0, 6, 40)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(1 + np.sin(2 * x[:, 0])))
    >>> plot_partial_effect(GaussianProcessPoissonRegressor().fit(x, y), x, y).get_ylabel()
    'mean'
    """
    final, where = _last(estimator), "plot_partial_effect"
    check_is_fitted(final)
    table, names = _inputs(where, X)
    d, ends = _place(where, names, feature), np.array([0.5 - level / 2, 0.5 + level / 2])
    x = _span(table[:, d], resolution, 0.03)
    rows = np.tile(np.median(table, axis=0), (x.size, 1))
    rows[:, d] = x
    new = _like(X, rows)
    new = new if final is estimator else estimator[:-1].transform(new)
    ax = new_figure(6.2, 3.6).subplots() if ax is None else ax
    y, classes = None if y is None else np.asarray(y), np.asarray(final.classes_ if is_classifier(final) else ())
    if not is_classifier(final):
        low, middle, high = final.predict_rate(new, [ends[0], 0.5, ends[1]]).T
        if y is not None:
            E = vector(where, "exposure", 1.0 if exposure is None else exposure, y.size)
            size, word = np.clip(20.0 * E / E.mean(), 3.0, 200.0), looks.pop("points_label", "data")
            ax.scatter(table[:, d], y / E, s=size, color=GREY, linewidths=0, alpha=0.7, label=word, clip_on=False)
        own = {"label": "posterior median", "ylabel": "mean"}
    elif len(classes) == 2:
        middle, (low, high) = final.predict_proba(new)[:, 1], final.predict_quantiles(new, ends).T
        if y is not None:
            ax.scatter(table[:, d], y == classes[1], s=12, color=GREY, linewidths=0, alpha=0.7, label="data")
        own = {"label": "predictive probability", "ylabel": f"P({classes[1]})"}
    else:
        p, q = final.predict_proba(new), final.predict_quantiles(new, ends)
        for k, word in enumerate(classes):  # one row of dots a class, just below 0, so that none hides another
            colour = PALETTE[k % len(PALETTE)]
            ax.fill_between(x, q[:, k, 0], q[:, k, 1], color=colour, alpha=0.2, linewidth=0)
            ax.plot(x, p[:, k], color=colour, label=str(word), linestyle=("-", "--", "-.", ":")[k % 4])
            if y is not None:
                mine = table[y == word, d]
                ax.plot(mine, np.full(mine.size, -0.03 * (k + 1)), ".", color=colour, markersize=4)
        return finish_axes(ax, names[d], "probability")
    own |= {"band": f"{100 * level:g} % band", "xlabel": names[d]}
    return plot_path(x, middle, low, high, ax, **own | looks)


def plot_coefficients(
    estimator: Any,
    ax: Axes | None = None,
    *,
    names: Sequence[str] | None = None,
    sort: bool = False,
    level: float = 0.95,
    label: str = "coefficient",
) -> Axes:
    """Coefficients with their intervals, the intercept left out: of one estimator, or of a dict of several by name.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fenchel.estimators import BayesianLogisticRegression, plot_coefficients
    >>> ax = plot_coefficients(BayesianLogisticRegression().fit(*load_iris(return_X_y=True)), names="abcd")
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['a', 'b', 'c', 'd']
    """
    if not 0.0 < level < 1.0:
        raise problem("plot_coefficients", f"level = {level!r}", "a probability between 0 and 1")
    mean, sd, labels = [], [], []
    for word, whole in (estimator if isinstance(estimator, Mapping) else {"": estimator}).items():
        one = _last(whole)
        check_is_fitted(one, ["coef_", "coef_std_"])
        mean.append(np.atleast_2d(one.coef_))
        sd.append(np.atleast_2d(one.coef_std_))
        classes = map(str, one.classes_) if len(mean[-1]) > 1 else [""]
        labels += [", ".join(filter(None, (str(word), c))) for c in classes]
        if names is None:
            names = getattr(one, "feature_names_in_", None)
        if names is None and one is not whole and hasattr(whole[:-1], "get_feature_names_out"):
            names = whole[:-1].get_feature_names_out()
    if len({part.shape[1] for part in mean}) != 1:
        got = f"models of {[part.shape[1] for part in mean]} coefficients"
        raise problem("plot_coefficients", got, "the same features in all")
    m, reach = np.concatenate(mean), ndtri(0.5 + level / 2) * np.concatenate(sd)
    words = [f"x{d}" for d in range(m.shape[1])] if names is None else [str(name) for name in names]
    if len(words) != m.shape[1]:
        raise problem("plot_coefficients", f"{len(words)} names meet {m.shape[1]} coefficients", "one name each")
    by = np.argsort(-np.abs(m[0]), kind="stable") if sort else np.arange(m.shape[1])
    shown, text = labels if any(labels) else (), f"{label}, {100 * level:g} % interval"
    low, high = (m - reach)[:, by], (m + reach)[:, by]
    return plot_forest([words[d] for d in by], m[:, by], low, high, ax, labels=shown, label=text)


# -- small parts -----------------------------------------------------------------------------------------
def _last(estimator: Any) -> Any:
    """The estimator itself, or a pipeline's last step."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _inputs(where: str, X: Any) -> tuple[np.ndarray, list[str]]:
    """X as numbers (N, D), and the names of its columns."""
    table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] == 0:
        raise problem(where, f"X has shape {table.shape}", "(N, D)", "Use x[:, None] for one input.")
    return table, [str(name) for name in column_names(X)] or [f"x{d}" for d in range(table.shape[1])]


def _like(X: Any, rows: np.ndarray) -> Any:
    """More rows of the same kind."""
    names = column_names(X)
    return type(X)(rows, columns=names) if names else rows


def _place(where: str, names: list[str], which: int | str) -> int:
    """The place of a column, by its name or counted from either end."""
    if which in names:
        return names.index(str(which))
    if which not in range(-len(names), len(names)):
        raise problem(where, f"feature {which!r}", f"one of {names}, or its place")
    return int(which) % len(names)


def _span(values: np.ndarray, n: int, margin: float) -> np.ndarray:
    """The range of a column, a little wider."""
    low, high = float(values.min()), float(values.max())
    more = margin * (high - low) or 0.5
    return np.linspace(low - more, high + more, max(int(n), 2))
