"""Marginal distributions of many unknowns, and the contract of a posterior.

``Marginals`` is the contract of the distributions of single unknowns: moments, quantiles, probabilities, densities.
``Answers`` is the contract of a posterior: marginals of eta, of the latents and at new rows, and joint draws. Criteria,
tables and plots use these two alone, and so work with every posterior, Gaussian or corrected.

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
    """The marginal distributions of many unknowns; results have their shape, (N,) or (N, C)."""

    @property
    def mean(self) -> Array: ...
    @property
    def variance(self) -> Array: ...
    @property
    def sd(self) -> Array: ...
    @property
    def skewness(self) -> Array: ...
    @property
    def spread(self) -> Array: ...  # the variance, or covariances (N, C, C) if the unknowns of a row are correlated
    @property
    def nodal(self) -> bool: ...  # whether they are ``NodalMarginals``
    def quantile(self, q: Levels) -> Array: ...
    def interval(self, level: float = 0.95) -> Array: ...
    def cdf(self, x: ArrayLike) -> Array: ...  # x: a number, one for each unknown, or (1, G) or (N, G)
    def density(self, x: ArrayLike) -> Array: ...


@runtime_checkable
class NodalMarginals(Marginals, Protocol):
    """Marginals that are weighted points, such as densities on a grid or draws."""

    def nodes(self) -> Iterator[Nodes]: ...


@runtime_checkable
class Answers(Marginals, Protocol):
    """The contract of a posterior, which itself has the marginals of eta at the observations."""

    @property
    def leaves_one_out(self) -> bool: ...  # whether it has ``loo()``; else the solution has
    def loo(self) -> Any: ...
    def latents(self) -> Marginals: ...
    def at(self, new: NewRows | None = None, **rows: Any) -> Marginals: ...
    def sample(self, size: int = 1, rng: Seed = None) -> Array: ...
    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array: ...
    def sample_some(self, some: np.ndarray, size: int = 1, rng: Seed = None) -> np.ndarray: ...


M = TypeVar("M", bound=Marginals)


class AnswersAtNewRows(ABC, Generic[M]):
    """Marginals and moments of eta at new rows, for a posterior with ``marginals_at``."""

    leaves_one_out = False

    def loo(self) -> Any:
        """Leave-one-out predictions; only if ``leaves_one_out``."""
        raise NotImplementedError

    def sample_some(self, some: np.ndarray, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws (size, m) of the latents ``some`` (m,), which may cost less than draws of all."""
        return to_numpy(self.sample_latents(size, rng))[:, some]  # type: ignore[attr-defined]

    @abstractmethod
    def marginals_at(self, new: NewRows) -> M:
        """Marginals of eta at new rows."""

    def at(self, new: NewRows | None = None, **rows: Any) -> M:
        """Marginals of eta at new rows, given as ``at(NewRows(...))`` or by the fields of it, ``at(design=...)``.

        Parameters
        ----------
        new : NewRows, optional
            New rows as a family makes them, ``family.new_rows(theta, table)``; or one of the following two.
        design : array (M, L) or scipy sparse
            New rows of the design W.
        cross : array (M, L), or (C, M, L) for predictors with different covariances
            Prior covariance of the new eta with the latents z: ``K(x_new, x)`` for a Gaussian process.
        variance : array (M,) or (M, C)
            Prior variance of the new eta, needed with ``cross``: the diagonal of ``K(x_new, x_new)``.
        mean : float or array, optional
            Prior mean at the new points, with ``cross``. Default: the mean of the prior, if it is one number.
        offset : float or array, optional
            Added to eta.
        extra_variance : float or array, optional
            Prior variance of the new eta that the latents do not explain; it is added.

        Returns
        -------
        Marginals
            With ``mean``, ``sd``, ``quantile(q)``, ``interval(level)``, ``cdf(x)`` and ``density(x)``.
        """
        return self.marginals_at(NewRows(**rows) if new is None else new)

    def predict(self, new: NewRows | None = None, **rows: Any) -> tuple[Array, Array]:
        """Mean and variance of eta at new rows, arrays (M,) or (M, C); the rows are given as in ``at``."""
        marginals = self.at(new, **rows)
        return marginals.mean, marginals.variance


class MarginalAnswers:
    """Base class: intervals, probabilities and densities from ``quantile``, ``_cdf`` and ``_density``."""

    nodal = False

    @property
    def spread(self) -> Array:
        """Variance; if the C unknowns of a row are correlated, their covariance (M, C, C)."""
        return self.variance  # type: ignore[attr-defined]

    def quantile(self, q: Levels) -> Array:
        """Quantiles: an array of the shape of ``mean`` for one q, with one more axis (..., Q) for Q of them."""
        raise NotImplementedError

    def _cdf(self, x: np.ndarray) -> Array:
        """P(unknown <= x), for a number x or one for each unknown."""
        raise NotImplementedError

    def _density(self, x: np.ndarray) -> Array:
        """Density at x, a number or one for each unknown."""
        raise NotImplementedError

    @property
    def _unknowns_like(self) -> Array:
        """An array with the shape of the unknowns."""
        raise NotImplementedError

    def interval(self, level: float = 0.95) -> Array:
        """Lower and upper ends (..., 2) of the central interval with probability ``level``."""
        inside = float(probabilities("interval", level))
        return self.quantile([0.5 - inside / 2, 0.5 + inside / 2])

    def cdf(self, x: ArrayLike) -> Array:
        """P(unknown <= x), for a number x, one for each unknown (N,), or G for each, (1, G) or (N, G)."""
        return at_each(x, self._unknowns_like, self._cdf)

    def density(self, x: ArrayLike) -> Array:
        """Density at x, which is given as in ``cdf``."""
        return at_each(x, self._unknowns_like, self._density)


class NormalAnswers(MarginalAnswers):
    """Base class of normal marginals: everything follows from ``mean`` and ``variance``."""

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
        """Third standardised moments, which are 0."""
        return namespace(self.mean).zeros_like(self.mean)

    def quantile(self, q: Levels) -> Array:
        """Quantiles: an array of the shape of ``mean`` for one q, with one more axis (..., Q) for Q of them."""
        levels = probabilities("quantile", q)
        z, mean, sd = ndtri(levels), self.mean, self.sd
        return mean + sd * float(z) if levels.ndim == 0 else mean[..., None] + sd[..., None] * asarray(z, mean)

    def _cdf(self, x: np.ndarray) -> Array:
        return asarray(ndtr(to_numpy(self._standardised(x))), self.mean)

    def _density(self, x: ArrayLike) -> Array:
        xp, t, sd = namespace(self.mean), self._standardised(x), self.sd
        zero = xp.zeros_like(t)  # the density of an unknown without variance is infinite at its mean, else 0
        spike = xp.where(asarray(np.asarray(x, dtype=np.float64), self.mean) == self.mean, xp.inf + zero, zero)
        smooth = xp.exp(-0.5 * t * t) / (xp.where(sd == 0.0, 1.0 + zero, sd) * float(np.sqrt(2.0 * np.pi)))
        return xp.where(sd == 0.0, spike, smooth)

    def _standardised(self, x: ArrayLike) -> Array:
        xp, sd, off = namespace(self.mean), self.sd, asarray(np.asarray(x, dtype=np.float64), self.mean) - self.mean
        known = sd == 0.0  # the cdf of an unknown without variance is a step at its mean, continuous from the right
        jump = xp.where(off >= 0.0, xp.inf + xp.zeros_like(off), -xp.inf + xp.zeros_like(off))
        return xp.where(known, jump, off / xp.where(known, xp.ones_like(sd), sd))


@dataclass(frozen=True)
class NormalMarginals(NormalAnswers):
    """Normal marginal distributions, given by their means and variances.

    Parameters
    ----------
    mean, variance : arrays (N,) or (N, C)
    find_covariance : callable, optional
        Returns the covariances (N, C, C) if the C unknowns of a row are correlated.

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
        """Variance; if the C unknowns of a row are correlated, their covariance (M, C, C)."""
        return self.variance if self.find_covariance is None else self.find_covariance()

    @classmethod
    def of(cls, mean: Array, spread: Array) -> NormalMarginals:
        """From the means and either the variances or the covariances (M, C, C) of the C unknowns of a row."""
        if spread.ndim < 3:
            return cls(mean, spread)
        return cls(mean, namespace(spread).einsum("nkk->nk", spread), lambda: spread)


def at_each(x: ArrayLike, like: Array, ask: Callable[[np.ndarray], Array]) -> Array:
    """Evaluate ``ask`` at x: a number, one for each unknown (of shape ``like``), or G for each (one more axis)."""
    at, shape = np.asarray(x, dtype=np.float64), tuple(like.shape)
    if at.ndim == len(shape) + 1 and at.shape[:-1] in (shape, (1,) * len(shape)):
        each = np.broadcast_to(at, (*shape, at.shape[-1]))
        return namespace(like).stack([ask(each[..., g]) for g in range(at.shape[-1])], axis=-1)
    if at.ndim and at.shape != shape:
        advice = "x[None, :] evaluates all of them for every unknown." if at.ndim == 1 else ""
        raise problem("marginals", f"x has shape {at.shape}", f"a number, shape {shape} or one more axis", advice)
    return ask(at)


def probabilities(where: str, q: Levels, name: str = "q") -> np.ndarray:
    """Check probabilities strictly between 0 and 1, and return them as an array () or (Q,)."""
    levels = numeric(where, name, q)
    if levels.ndim > 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise problem(where, f"{name} = {levels.tolist()}", "probabilities strictly between 0 and 1")
    return levels
