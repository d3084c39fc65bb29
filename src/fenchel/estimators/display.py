"""Pictures of a fitted estimator in scikit-learn's Display style: here how learning and the fit went.

``from_estimator`` computes and draws; ``plot`` draws again, into other axes. ``display_estimates.py`` has coefficients
and volatility, ``display_inputs.py`` functions and decision surfaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from ..checks import problem
from ..hyperparameters import grid
from ..inference import infer
from ..linalg.arrays import ArrayLike
from ..plots import plot_contours, plot_trace
from ..solvers.solution import Solution
from ..tasks import Jobs


class Display:
    """What they share: ``ax_`` and ``figure_`` after ``plot``.

    Attributes
    ----------
    ax_ : matplotlib Axes, or an array of them
    figure_ : matplotlib Figure
    """

    ax_: Any
    figure_: Any

    def _drawn(self, ax: Any) -> Any:
        self.ax_ = ax
        first = ax if not isinstance(ax, np.ndarray) else ax[0]
        self.figure_ = first.get_figure(root=True)
        return self


class EvidenceDisplay(Display):
    """The evidence bound over two hyperparameters, with a star where learning ended.

    Parameters
    ----------
    x, y : arrays (C,), (R,)
        Values of the two hyperparameters.
    values : array (R, C)
        The elbo at each, in nats.
    star : (x, y), optional
        The learned point.
    best : float, optional
        The elbo there; the picture shows distances from it. Default: the largest value.
    names : pair of str
        Of x and y.
    log : pair of bool
        Which axes are logarithmic.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from fenchel.estimators import EvidenceDisplay, GaussianProcessClassifier
    >>> X, y = make_moons(30, noise=0.3, random_state=0)
    >>> model = GaussianProcessClassifier().fit(X, y)
    >>> display = EvidenceDisplay.from_estimator(model, resolution=5)
    >>> display.ax_.get_xlabel(), bool(display.values.max() <= model.elbo_ + 1e-6)
    ('constant value', True)
    """

    def __init__(
        self,
        x: Any,
        y: ArrayLike,
        values: ArrayLike,
        star: tuple[float, float] | None = None,
        best: float | None = None,
        names: tuple[str, str] = ("", ""),
        log: tuple[bool, bool] = (True, True),
    ) -> None:
        self.x, self.y, self.values = (np.asarray(v, dtype=np.float64) for v in (x, y, values))
        self.star, self.names, self.log = star, names, log
        self.best = float(np.nanmax(self.values) if best is None else best)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        parameters: Sequence[int | str] = (0, 1),
        span: float = 10.0,
        resolution: int = 15,
        jobs: int = 1,
        n_jobs: Jobs = None,
        ax: Any = None,
        **options: Any,
    ) -> EvidenceDisplay:
        """Fit a grid around the learned hyperparameters, and draw it.

        Parameters
        ----------
        estimator : fitted, with at least two hyperparameters
        parameters : two of ``theta_names_``, or their places
            The others stay at their learned values: with more than two this is a slice.
        span : float
            How far the grid goes either way, as a factor; it stays within the bounds of the search.
        resolution : int
            Points along each axis.
        n_jobs : int, None or Dask client
            Who fits the grid, as in ``fenchel.grid``; ``jobs`` is an older name of it.
        ax, **options : as in ``plot``
        """
        estimator = _last(estimator)
        check_is_fitted(estimator)
        family = estimator._latent.family()
        names, n = list(estimator.theta_names_[: family.theta.size]), int(resolution)
        two = parameters if len(parameters) == 2 else (0, 0)
        i, j = (_place("EvidenceDisplay", "parameter", names, p) for p in two)
        if i == j or n < 2 or not span > 1.0:
            got = f"parameters = {list(parameters)}, resolution = {n}, span = {span:g}"
            raise problem("EvidenceDisplay", got, f"two of {names}, at least 2 points and a factor above 1")
        theta, bounds = estimator.theta_[: len(names)], family.bounds
        axes = [np.array([t]) for t in theta]
        for k in (i, j):
            low, high = np.clip(theta[k] + np.log(span) * np.array([-1.0, 1.0]), *bounds[k])
            axes[k] = np.linspace(low, high, n)
        given: dict[str, Any] = {"weights": estimator._weights, "jobs": jobs, "n_jobs": n_jobs}
        found = grid(estimator._fitted, family, estimator._target.y, axes, **given)
        values = found.elbo.reshape(n, n)  # in the order of theta: rows are the earlier of the two
        pair = [_scale(names, k, hasattr(estimator, "kernel_")) for k in (i, j)]
        x, y = (np.exp(axes[k]) if log else axes[k] for k, (_, log) in zip((i, j), pair))
        across, up = (float(np.exp(theta[k]) if log else theta[k]) for k, (_, log) in zip((i, j), pair))
        (first, log_x), (second, log_y) = pair
        values = values.T if i < j else values
        display = cls(x, y, values, (across, up), estimator.elbo_, (first, second), (log_x, log_y))
        return display.plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> EvidenceDisplay:
        """Draw into ``ax`` or a figure of its own; ``options`` are those of ``fenchel.plots.plot_contours``."""
        below = self.values - self.best
        looks: dict[str, Any] = {
            "star": "max" if self.star is None else self.star,
            "star_label": "" if self.star is None else "learned",
            "xlabel": self.names[0],
            "ylabel": self.names[1],
            "label": f"nats from the {'best' if self.star is None else 'learned'} elbo, {self.best:.2f}",
            "log_x": self.log[0],
            "log_y": self.log[1],
            "cmap": "viridis",  # the better side is light
            "levels": _steps_down(below),
            "points": False,
        }
        ax = plot_contours(self.x, self.y, below, ax, **looks | options)
        for axis, log, ends in ((ax.xaxis, self.log[0], self.x), (ax.yaxis, self.log[1], self.y)):
            if log:
                _few_ticks(axis, ends[-1] / ends[0])
        return self._drawn(ax)


class TraceDisplay(Display):
    """Both bounds of a fit against the iteration, and the gap between them.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from fenchel.estimators import GaussianProcessClassifier, TraceDisplay
    >>> model = GaussianProcessClassifier(optimizer=None).fit(*make_moons(30, noise=0.3, random_state=0))
    >>> TraceDisplay.from_estimator(model).ax_[1].get_ylabel()
    'gap (nats)'
    """

    def __init__(self, solution: Solution) -> None:
        self.solution = solution

    @classmethod
    def from_estimator(cls, estimator: Any, *, restart: bool = True, ax: Any = None) -> TraceDisplay:
        """Draw the trace of a fit at the learned hyperparameters.

        Parameters
        ----------
        estimator : fitted
        restart : bool
            Fit once more from the ordinary start. Else draw ``solution_`` itself, which after learning starts from its
            neighbour's fit and can end where it starts.
        ax : as in ``plot``
        """
        estimator = _last(estimator)
        check_is_fitted(estimator)
        solution = estimator.solution_
        if restart:
            family, data = estimator._latent.family(), {"weights": estimator._weights, "tol": estimator._inner_tol()}
            prior = family.at(estimator.theta_[: family.theta.size])
            solution = infer(estimator._fitted, prior, estimator._target.y, **data)
        return cls(solution).plot(ax)

    def plot(self, ax: Any = None) -> TraceDisplay:
        """Draw into a pair of axes, or a figure of its own; ``ax_`` is the pair."""
        if not np.isfinite(self.solution.gap):
            raise problem(
                "TraceDisplay",
                f"{self.solution.likelihood!r} leaves no upper bound",
                "a log-concave likelihood",
                "Its elbo by iteration is solution_.trace.",
            )
        figure = plot_trace(self.solution, ax)
        return self._drawn(np.array(figure.axes[:2] if ax is None else list(ax)))


# -- small parts ---------------------------------------------------------------------------------------
def _last(estimator: Any) -> Any:
    """The estimator itself, or a pipeline's last step."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _reach(where: str, level: float) -> float:
    """Half the width of a normal's central interval, in standard deviations."""
    if not 0.0 < level < 1.0:
        raise problem(where, f"level = {level!r}", "a probability between 0 and 1")
    return float(ndtri(0.5 + level / 2))


def _place(where: str, what: str, names: list[str], which: int | str) -> int:
    """The place of a name, or a place counted from either end."""
    if isinstance(which, str) and which in names:
        return names.index(which)
    if isinstance(which, str) or not -len(names) <= which < len(names):
        raise problem(where, f"{what} {which!r}", f"one of {names}, or its place")
    return int(which) % len(names)


def _scale(names: list[str], k: int, kernel: bool) -> tuple[str, bool]:
    """A hyperparameter's name on its axis, and whether theta is its log."""
    name = names[k]
    if not kernel:
        return name.replace("log ", ""), "log " in name
    short = [other.rpartition("__")[2] for other in names]
    word = short[k].replace("_", " ")
    return (word if short.count(short[k]) == 1 else f"{word} ({name.rpartition('__')[0]})"), True


def _few_ticks(axis: Any, ratio: float) -> None:
    """Powers of ten, with 2 and 5 between them when there are few; no words on minor ticks, which would collide."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if ratio < 300.0 else (1.0,)))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_formatter(NullFormatter())


def _steps_down(below: np.ndarray) -> np.ndarray | None:
    """Levels 0.5, 1, 2, 5, 10, ... nats below: what matters is near the best, however deep the grid goes."""
    finite = below[np.isfinite(below)]
    if finite.size == 0 or finite.min() > -1.0:
        return None
    ends = np.floor(10 * finite.min()) / 10, max(np.ceil(10 * finite.max()) / 10, 0.0)
    steps = [-d for d in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if -d > ends[0]]
    return np.unique([*ends, *steps[:10]])
