"""The contract of a likelihood: the density p(y | eta) of one observation, and the methods that a fit uses.

    the target       check, prepare                     the density       log_density, derivatives, landmarks, constant
    its parameters   parameters, theta_slopes           its y             mean_at, cdf, draw, predictive_*
    where it starts  starting, level, scale_of          its bounds        bounds, bound, objective, exact_loss

Shapes. There are N observations with C predictors each. eta is (N, M) at M places (one predictor), h and rho (N, C).
Data are passed in and never stored: ``prepare(y)`` makes ``rows``, a dictionary of arrays whose first axis is the
observation, and every method takes ``rows``. Values are per unit of weight; the problem multiplies them by
rows["weight"] (0 = unobserved).

A fit minimises a bound on E[-log p(y|eta)]: ``bounds`` maps names to the classes of ``bounds.py``, ``bound`` is the
name in use, and ``objective`` the bound itself. A likelihood without bounds is fitted by exact expectations, which need
only ``derivatives``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ..checks import choice, first_value, number, numeric, problem
from ..files import Stated
from ..linalg.arrays import Array, ArrayLike
from ..linalg.quadrature import expect
from . import numerical
from .bounds import Bound, Bounds, ConvexBound, ExactExpectation, Loss, expected_loss
from .outcomes import Predicted, Rows, column, flat, on_host, slice_rows
from .parameters import observed

__all__ = ["LABELS", "Likelihood", "Rows", "Targets", "column", "flat", "slice_rows"]
LABELS = "Encode labels as integers first, for example with sklearn.preprocessing.LabelEncoder."


class Likelihood(Predicted, Stated, ABC):
    """The density p(y | eta) and its bounds. See the module for shapes and notation.

    Attributes
    ----------
    word : its name in ``family=`` and ``likelihood=``, or None
    aliases : its names in other software (R, brms, glmmTMB, mgcv), without punctuation
    needs : the ``row_parameters`` that have no default
    of_variance : whether eta is the log variance of y, whose mean is 0
    above_zero : the word of the family of its positive counts, for hurdle models
    support : the values of y: "real", "count", "positive", "unit" (between 0 and 1) or "levels" (0, ..., K-1)
    noise : whether eta is on the scale of y
    ratio : the name of exp(effect), or None
    moves_eta : whether sds of eta have to include the uncertainty of its own parameters
    ordered : whether cutpoints take the place of an intercept
    durations : whether y is a duration, so that there is a ``predictive_survival``
    least : the smallest count
    atom : whether a nonnegative y is 0 with positive probability
    rows_hold_parameters : whether its bound reads its parameters only from its rows
    """

    word: str | None = None
    aliases: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    of_variance: bool = False
    above_zero: str | None = None
    support: str = "real"
    noise: bool = False
    ratio: str | None = None
    moves_eta: bool = False
    ordered: bool = False
    durations: bool = False
    least: int = 0
    atom: bool = False
    rows_hold_parameters: bool = False

    bound: str = "exact"
    bounds: ClassVar[Bounds] = {"exact": ExactExpectation}
    n_predictors: int = 1
    log_concave: bool = True  # in eta: without it a stationary point need not be the best
    smooth: bool = True  # in eta: without it sums over even points converge slowly
    row_parameters: tuple[str, ...] = ()  # constructor arguments with one number an observation, such as an exposure

    # -- its bound ---------------------------------------------------------------------------------
    def _choose(self, bound: str | type[Bound]) -> None:
        """Keep the bound asked for: one of the likelihood's by its word, a class of the user's own, or "best"."""
        if isinstance(bound, type) and issubclass(bound, Bound):
            self.__dict__["bounds"] = {**self.bounds, bound.__name__: bound}
            bound = bound.__name__
        choice(self.name, "bound", bound, ("best", *self.bounds))
        self.bound = self.tightest if bound == "best" else str(bound)

    @property
    def tightest(self) -> str:
        """The word of the best bound: that of exact expectations where they are at hand, or the last one."""
        return "exact" if "exact" in self.bounds else list(self.bounds)[-1]

    @cached_property
    def objective(self) -> Bound:
        """The bound at work."""
        return self.bounds[self.bound](self)

    def neighbour(self) -> Likelihood | None:
        """A likelihood of the same rows that has a dual and lies near, or is this one: where a bound without starts."""
        return self.with_dual()

    def with_dual(self) -> Self | None:
        """This likelihood by a bound that has a dual, the tilted one among several; None where it has none."""
        convex = [word for word, cls in self.bounds.items() if issubclass(cls, ConvexBound)]
        return self.changed(bound="tilted" if "tilted" in convex else convex[0]) if convex else None

    def with_rows(self, **values: Any) -> Self:
        """The same likelihood with other per-observation parameters (an exposure, trials, an event indicator)."""
        unknown = sorted(set(values) - set(self.row_parameters))
        if unknown:
            known = ", ".join(self.row_parameters) or "none"
            raise problem(self.name, f"{unknown[0]!r} is not a value that its rows have", f"one of: {known}")
        return self.changed(**values)

    @property
    def row_values(self) -> dict[str, Any]:
        """Those of ``row_parameters`` that were given, by name."""
        own = {key: getattr(self, key) for key in self.row_parameters}
        return {key: value for key, value in own.items() if value is not None}

    def take(self, index: Any) -> Self:
        """The same likelihood for some of its rows."""
        own = self.row_values.items()
        some = {key: np.asarray(value)[index] for key, value in own if np.ndim(value) == 1} | self.taken(index)
        return self.changed(**some) if some else self

    def lenient(self) -> Self:
        """The same for targets that are scored, not fitted: real numbers where only whole ones were taken."""
        return self

    # -- where a fit starts ------------------------------------------------------------------------
    def starting(self, y: np.ndarray, weights: Any = None, bound: str = "best", **rows: Any) -> Self:
        """One of its kind where learning from y (N,), NaN where unobserved, starts; bound "best" is the tightest."""
        seen, w = observed(y, weights)
        given = {p.attribute: p.start(self, seen, w) for p in self.parameters if p.start is not None}
        if len(self.bounds) > 1:
            given["bound"] = self.tightest if bound == "best" else bound
        return type(self)(**given, **rows)

    @classmethod
    def scale_of(cls, y: np.ndarray, weights: ArrayLike | None = None) -> float:
        """The scale of eta: that of y where eta is on it, 1 elsewhere."""
        return 1.0

    def level(self, y: np.ndarray, weights: Any = None) -> float:
        """The link of the overall mean of y (N,), NaN where unobserved: what the latent function need not carry."""
        return self._level(*observed(y, weights))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """The same, w being 0 where y is unobserved; here the one eta that makes y most likely."""
        return numerical.level(self, y, w)

    def in_units(self, y: np.ndarray, weights: ArrayLike | None = None) -> Likelihood:
        """The same in units in which the level of eta does not move with the parameters, where that needs any."""
        return self

    def reported(self) -> tuple[Likelihood, float]:
        """The likelihood on the scale its class documents, and what eta is there above eta as fitted."""
        return self, 0.0

    # -- the target --------------------------------------------------------------------------------
    @abstractmethod
    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Refuse a target that is not one; return the per-row arrays the other methods read.

        ``y`` is float64 of shape (N,), NaN where unobserved. The result may hold ``"weight"`` to scale rows
        (Binomial) or to switch them off (exposure 0); NaN rows are switched off by ``prepare``.
        """

    def prepare(self, y: ArrayLike, weights: ArrayLike | None = None) -> dict[str, np.ndarray]:
        """Check ``y`` and ``weights``; return the rows, with unobserved ones at weight 0."""
        y = numeric(self.name, "y", y, LABELS, missing=True)
        if y.ndim != 1 or y.shape[0] == 0:
            raise problem(
                self.name,
                f"y has shape {y.shape}",
                "one value an observation, shape (N,) with N >= 1",
                "An unobserved value is NaN, not a missing row."
                if y.size == 0
                else "Use y.ravel() on a column; turn one-hot rows into labels with argmax.",
            )
        if np.isinf(y).any():
            i = int(np.flatnonzero(np.isinf(y))[0])
            raise problem(self.name, f"y[{i}] = {number(y[i])} is not finite", "numbers, or NaN for unobserved")
        rows = dict(self.check(y))
        weight = np.broadcast_to(rows.pop("weight", 1.0), y.shape)
        if weights is not None:
            weights = numeric(self.name, "weights", weights)
            if weights.shape != y.shape:
                got = f"weights of shape {weights.shape} do not fit y of shape {y.shape}"
                raise problem(self.name, got, "one number >= 0 for each observation")
            bad = ~(np.isfinite(weights) & (weights >= 0))
            if bad.any():
                raise problem(self.name, f"weights{first_value(bad, weights)} is not a weight", "finite numbers >= 0")
            weight = weight * weights
        rows["weight"] = np.where(np.isnan(y), 0.0, weight)
        return rows

    # -- the density -------------------------------------------------------------------------------
    def constant(self, rows: Rows) -> Array:
        """What -log p(y|eta) has beyond what depends on eta, per unit of weight (N,)."""
        return 0.0 * rows["weight"]

    def expectations(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """E[psi], E[psi'], E[psi''] under N(h, rho), each (N, 1), accurate at any mean and variance."""
        exact = self.exact_loss(h, rho, rows)
        return exact.value[:, None], exact.alpha[:, None], exact.lam[:, None]

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """f = E[psi] with its slopes and curvature at h, rho (N, 1); here by panel quadrature."""
        marks = self.landmarks(rows)
        return expected_loss(self.derivatives, lambda g: expect(g, h[:, 0], rho[:, 0], marks), h, rho, rows)

    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        """dpsi/dtheta at eta (N, M): (n_theta, N, M). Needed by the exact mode of a likelihood with parameters."""
        raise NotImplementedError(f"{self.name} does not implement theta_slopes(); learning its parameters needs it.")

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        """-sum_n weight_n df_n/dtheta at (h, rho) (N, 1): the evidence gradient, by the envelope theorem."""
        return self.objective.theta_gradient(h, rho, rows)

    # -- for the registry tests --------------------------------------------------------------------
    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Likelihood, np.ndarray]:
        """A likelihood with n random targets of it: every contract test runs on this."""
        raise NotImplementedError(f"{cls.__name__} does not implement example(); the contract tests need it.")


class Targets:
    """Checked targets (N,), NaN where unobserved, and the rows that the likelihood made of them.

    Targets are checked once, and fits at many hyperparameters share them.
    """

    def __init__(self, likelihood: Likelihood, y: Any, weights: ArrayLike | None = None) -> None:
        self.y = numeric(likelihood.name, "y", on_host(y), LABELS, missing=True)
        self._weights, self._likelihood = weights, likelihood
        self._rows = likelihood.prepare(self.y, weights)

    def rows_of(self, likelihood: Likelihood) -> Rows:
        """The rows; made again for a likelihood whose own parameters have moved, since they may hold those."""
        return self._rows if likelihood is self._likelihood else likelihood.prepare(self.y, self._weights)
