"""Marginal distributions of many unknowns: what every posterior answers, Gaussian or not.

``Marginals`` is the contract: moments, quantiles, probabilities and densities of each entry on its own. ``Answers`` is
the contract of a whole posterior: marginals of eta, of the latents and of new rows, and joint draws. Whoever reads a
posterior through these two (criteria, tables, plots) reads any of them.

    N(m, v):   quantile(q) = m + sqrt(v) ndtri(q),   cdf(x) = Phi((x - m) / sqrt(v))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from scipy.special import ndtr, ndtri

from .checks import numeric, problem
from .linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from .priors.base import NewRows

Levels = float | Sequence[float] | np.ndarray
Nodes = tuple[slice, np.ndarray, np.ndarray]  # some rows, their values (n, M), and weights (n, M) or (1, M) of sum 1


@runtime_checkable
class Marginals(Protocol):
    """Many unknowns, each with a distribution of its own; arrays have their shape, (N,) or (N, C)."""

    @property
    def mean(self) -> Array: ...
    @property
    def variance(self) -> Array: ...
    @property
    def sd(self) -> Array: ...
    @property
    def skewness(self) -> Array: ...
    @property
    def spread(self) -> Array: ...  # the variance, or the covariances (N, C, C) of the unknowns of a row
    @property
    def nodal(self) -> bool: ...  # whether they are weighted points: ``NodalMarginals``
    def quantile(self, q: Levels) -> Array: ...
    def interval(self, level: float = 0.95) -> Array: ...
    def cdf(self, x: ArrayLike) -> Array: ...  # x: a number, one for each unknown, or (1, G) or (N, G) for G of each
    def density(self, x: ArrayLike) -> Array: ...


@runtime_checkable
class NodalMarginals(Marginals, Protocol):
    """Marginals that are weighted points: densities on a grid, draws."""

    def nodes(self) -> Iterator[Nodes]: ...


@runtime_checkable
class Answers(Marginals, Protocol):
    """A posterior: itself the marginals of eta at the observations."""

    @property
    def leaves_one_out(self) -> bool: ...  # whether ``loo()`` answers; else that of the solution does
    def loo(self) -> Any: ...
    def latents(self) -> Marginals: ...
    def at(self, new: NewRows | None = None, **rows: Any) -> Marginals: ...
    def sample(self, size: int = 1, rng: Seed = None) -> Array: ...
    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array: ...


M = TypeVar("M", bound=Marginals)


class AnswersAtNewRows(ABC, Generic[M]):
    """Marginals and moments of eta at new rows, for a posterior that says ``marginals_at``."""

    leaves_one_out = False

    def loo(self) -> Any:
        """Leave-one-out predictions, of a posterior that ``leaves_one_out``."""
        raise NotImplementedError

    @abstractmethod
    def marginals_at(self, new: NewRows) -> M:
        """The marginals of eta at new rows."""

    def at(self, new: NewRows | None = None, **rows: Any) -> M:
        """The marginals of eta at new rows: ``at(NewRows(...))``, or its fields by name, ``at(design=...)``.

        Parameters
        ----------
        new : NewRows, optional
            As a family or a term makes it: ``at(family.new_rows(theta, table))``. Or, instead of it:
        design : array (M, L) or scipy sparse
            New rows of W; or, instead of it:
        cross : array (M, L), or (C, M, L) for predictors with own covariances
            Covariance of the new eta with the latents z: ``K(x_new, x)`` for a Gaussian process.
        variance : array (M,) or (M, C)
            Prior variance of the new eta: ``diag K(x_new, x_new)``. Needed with ``cross``.
        mean : float or array, optional
            Prior mean at the new points, with ``cross``. Default: the prior's mean when that is one number.
        offset : float or array, optional
        extra_variance : float or array, optional
            Variance of the new eta beyond that, for priors that have some: it is added.
        """
        return self.marginals_at(NewRows(**rows) if new is None else new)

    def predict(self, new: NewRows | None = None, **rows: Any) -> tuple[Array, Array]:
        """Mean and variance of eta at new rows, (M,) or (M, C); the rows are given as in ``at``."""
        there = self.at(new, **rows)
        return there.mean, there.variance


class MarginalAnswers:
    """Intervals, probabilities and densities, for marginals with ``quantile``, and ``_cdf`` and ``_density`` at x."""

    nodal = False

    @property
    def spread(self) -> Array:
        """The variance, or the covariance (M, C, C) of the C unknowns of a row where these are correlated."""
        return self.variance  # type: ignore[attr-defined]

    def quantile(self, q: Levels) -> Array:
        """Quantiles: the shape of ``mean`` for one q, with an axis of Q at the end for Q of them."""
        raise NotImplementedError

    def _cdf(self, x: np.ndarray) -> Array:
        """P(unknown <= x), x a number or one for each unknown."""
        raise NotImplementedError

    def _density(self, x: np.ndarray) -> Array:
        """The density at x, a number or one for each unknown."""
        raise NotImplementedError

    @property
    def _unknowns_like(self) -> Array:
        """Any array of the shape of the unknowns."""
        raise NotImplementedError

    def interval(self, level: float = 0.95) -> Array:
        """Lower and upper ends (..., 2) of the central interval of probability ``level``."""
        inside = float(probabilities("interval", level))
        return self.quantile([0.5 - inside / 2, 0.5 + inside / 2])

    def cdf(self, x: ArrayLike) -> Array:
        """P(unknown <= x), x a number, one for each unknown, or (1, G) or (N, G): G of them for each."""
        return at_each(x, self._unknowns_like, self._cdf)

    def density(self, x: ArrayLike) -> Array:
        """The density at x, given as in ``cdf``."""
        return at_each(x, self._unknowns_like, self._density)


class NormalAnswers(MarginalAnswers):
    """Quantiles, probabilities and densities from ``mean`` and ``variance``, for whoever has these two."""

    mean: Array
    variance: Array

    @property
    def _unknowns_like(self) -> Array:
        return self.mean

    @property
    def sd(self) -> Array:
        """Standard deviations."""
        return namespace(self.variance).sqrt(self.variance)

    @property
    def skewness(self) -> Array:
        """Third standardised moments: 0."""
        return namespace(self.mean).zeros_like(self.mean)

    def quantile(self, q: Levels) -> Array:
        """Quantiles: the shape of ``mean`` for one q, with an axis of Q at the end for Q of them."""
        levels = probabilities("quantile", q)
        z, mean, sd = ndtri(levels), self.mean, self.sd
        return mean + sd * float(z) if levels.ndim == 0 else mean[..., None] + sd[..., None] * asarray(z, mean)

    def _cdf(self, x: np.ndarray) -> Array:
        return asarray(ndtr(to_numpy(self._standardised(x))), self.mean)

    def _density(self, x: ArrayLike) -> Array:
        xp, t, sd = namespace(self.mean), self._standardised(x), self.sd
        none = xp.zeros_like(t)  # an unknown without variance has no density but at its mean
        spike = xp.where(asarray(np.asarray(x, dtype=np.float64), self.mean) == self.mean, xp.inf + none, none)
        smooth = xp.exp(-0.5 * t * t) / (xp.where(sd == 0.0, 1.0 + none, sd) * float(np.sqrt(2.0 * np.pi)))
        return xp.where(sd == 0.0, spike, smooth)

    def _standardised(self, x: ArrayLike) -> Array:
        xp, sd, off = namespace(self.mean), self.sd, asarray(np.asarray(x, dtype=np.float64), self.mean) - self.mean
        known = sd == 0.0  # an unknown without variance: a step at its mean, which belongs to the upper side
        jump = xp.where(off >= 0.0, xp.inf + xp.zeros_like(off), -xp.inf + xp.zeros_like(off))
        return xp.where(known, jump, off / xp.where(known, xp.ones_like(sd), sd))


@dataclass(frozen=True)
class NormalMarginals(NormalAnswers):
    """Normal marginals by their moments.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.marginals import NormalMarginals
    >>> NormalMarginals(np.array([0.0, 10.0]), np.array([1.0, 4.0])).interval(0.95).round(2)
    array([[-1.96,  1.96],
           [ 6.08, 13.92]])
    """

    mean: Array
    variance: Array
    find_covariance: Callable[[], Array] | None = field(default=None, repr=False, compare=False)

    @property
    def spread(self) -> Array:
        """The variance, or the covariance (M, C, C) of the C unknowns of a row where these are correlated."""
        return self.variance if self.find_covariance is None else self.find_covariance()

    @classmethod
    def of(cls, mean: Array, spread: Array) -> NormalMarginals:
        """By the variance, or the covariance (M, C, C) of the C unknowns of a row."""
        if spread.ndim < 3:
            return cls(mean, spread)
        return cls(mean, namespace(spread).einsum("nkk->nk", spread), lambda: spread)


def at_each(x: ArrayLike, like: Array, ask: Callable[[np.ndarray], Array]) -> Array:
    """What is asked at x, a number or one for each of the unknowns ``like``; with one more axis, G of them for each."""
    at, shape = np.asarray(x, dtype=np.float64), tuple(like.shape)
    if at.ndim == len(shape) + 1 and at.shape[:-1] in (shape, (1,) * len(shape)):
        each = np.broadcast_to(at, (*shape, at.shape[-1]))
        return namespace(like).stack([ask(each[..., g]) for g in range(at.shape[-1])], axis=-1)
    if at.ndim and at.shape != shape:
        many = "x[None, :] asks for all of them of every unknown." if at.ndim == 1 else ""
        raise problem("marginals", f"x has shape {at.shape}", f"a number, shape {shape} or one more axis", many)
    return ask(at)


def probabilities(where: str, q: Levels, name: str = "q") -> np.ndarray:
    """Levels strictly between 0 and 1: a number () or several (Q,)."""
    levels = numeric(where, name, q)
    if levels.ndim > 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise problem(where, f"{name} = {levels.tolist()}", "probabilities strictly between 0 and 1")
    return levels
