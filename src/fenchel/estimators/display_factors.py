"""Pictures of a factor model: rows and loadings together, the loadings by name, the choice of their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..factors.selection import Selection
from ..linalg.arrays import ArrayLike
from ..plots import plot_biplot, plot_components, plot_loadings
from .display import Display, _last


class BiplotDisplay(Display):
    """Rows at their factors and the longest loadings as arrows.

    Parameters
    ----------
    scores : array (R, L)
    loadings : array (P, L)
    names : P str
    labels : R labels, optional

    Examples
    --------
    >>> from fenchel.datasets import load_zoo
    >>> from fenchel.estimators import BiplotDisplay, ProbabilisticPCA
    >>> zoo = load_zoo()
    >>> model = ProbabilisticPCA(2, likelihood={12: "poisson"}, strength=1.0).fit(zoo.X)
    >>> BiplotDisplay.from_estimator(model, zoo.X, zoo.type).ax_.get_xlabel()
    'factor 1'
    """

    def __init__(self, scores: Any, loadings: Any, names: Sequence[str] = (), labels: Any = None) -> None:
        self.scores, self.loadings = np.asarray(scores), np.asarray(loadings)
        self.names, self.labels = list(names), labels

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        names: Sequence[str] = (),
        ax: Any = None,
        **options: Any,
    ) -> BiplotDisplay:
        """Draw the rows of X, coloured by y.

        Parameters
        ----------
        estimator : fitted ``ProbabilisticPCA`` of at least two factors; of a pipeline the last step
        X : table
        y : labels (R,), optional
        names : of the predictors, optional
            Default: ``predictor_names_``.
        ax, **options : as in ``plot``
        """
        final = _last(estimator)
        check_is_fitted(final, "components_")
        scores = np.asarray(estimator.transform(X))
        return cls(scores, final.components_.T, list(names) or final.predictor_names_, y).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> BiplotDisplay:
        """Draw into ``ax`` or a figure of its own; ``options`` are those of ``fenchel.plots.plot_biplot``."""
        looks: dict[str, Any] = {"names": self.names, "labels": self.labels}
        return self._drawn(plot_biplot(self.scores, self.loadings, ax, **looks | options))


class LoadingsDisplay(Display):
    """The loadings by name.

    Parameters
    ----------
    loadings : array (P, L)
    names : P str

    Examples
    --------
    >>> from fenchel.estimators import LoadingsDisplay
    >>> display = LoadingsDisplay([[0.2, 1.0], [1.5, -0.3]], ["small", "large"]).plot()
    >>> [tick.get_text() for tick in display.ax_.get_yticklabels()]
    ['large', 'small']
    """

    def __init__(self, loadings: Any, names: Sequence[str] = ()) -> None:
        self.loadings, self.names = np.asarray(loadings), list(names)

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, names: Sequence[str] = (), ax: Any = None, **options: Any
    ) -> LoadingsDisplay:
        """Draw ``components_``; ``names``, of the predictors, are ``predictor_names_`` by default."""
        final = _last(estimator)
        check_is_fitted(final, "components_")
        return cls(final.components_.T, list(names) or final.predictor_names_).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> LoadingsDisplay:
        """Draw into ``ax`` or a figure of its own; ``options`` are those of ``fenchel.plots.plot_loadings``."""
        return self._drawn(plot_loadings(self.loadings, self.names, ax, **options))


class ComponentsDisplay(Display):
    """Evidence and the cost of hidden cells against the number of factors.

    Parameters
    ----------
    selection : Selection
        What ``select_components`` returns.

    Examples
    --------
    >>> from fenchel.datasets import load_zoo
    >>> from fenchel.estimators import ComponentsDisplay, select_components
    >>> found = select_components(load_zoo().X[:, :8], [1, 2], max_iter=50, random_state=0)
    >>> [ax.get_ylabel() for ax in ComponentsDisplay(found).plot().ax_]
    ['evidence (nats)', 'bits a hidden cell']
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection

    def plot(self, ax: Any = None, **options: Any) -> ComponentsDisplay:
        """Draw into ``ax``, a pair where cells were hidden; ``options`` as in ``fenchel.plots.plot_components``."""
        found = self.selection
        looks: dict[str, Any] = {"bits": None, "baseline": None}
        if found.bits.shape[1]:
            looks = {"bits": found.bits, "baseline": found.baseline}
        return self._drawn(plot_components(found.n_components, found.evidence, ax=ax, **looks | options))
