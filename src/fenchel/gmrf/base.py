"""A Markov field: a sparse precision Q(theta) with derivatives; design and constraints do not depend on theta.

d elbo / d theta_i = sum over the pattern of dP/dQ o dQ/dtheta_i,    dP/dQ = 1/2 (Sigma - V - (m-mu)(m-mu)')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..checks import count, scalar
from ..hyperparameters.base import Family, Summand
from ..linalg.arrays import ArrayLike
from ..priors.base import NewRows
from ..priors.sparse import SparsePrecision
from ..solvers.solution import Solution
from .precisions import Precision, Remembered, ScaledStructure

WIDE = (-12.0, 12.0)  # log units: default bounds of a hyperparameter
SIZE = (-6.0, 6.0)  # log units: default bounds of a log sd
_SAME = 1e-6  # relative difference below which two precisions are equal
_NARROW, _WIDE = 0.1, 1e3  # bounds of the factor by which information is scaled far from the optimum


class MovingRows(ABC):
    """Rows of a field whose design depends on theta; each has extra variance that the latents do not explain."""

    @abstractmethod
    def at(self, theta: np.ndarray) -> tuple[Any, np.ndarray]:
        """The design (N, latents), scipy sparse of one pattern for every theta, and the extra variances (N,)."""

    @abstractmethod
    def slopes(self, solution: Solution, theta: np.ndarray, latents: slice) -> np.ndarray:
        """The gradient d elbo / d theta at the fit of a stack, in which the latents of the field are ``latents``."""


class MarkovField(Family):
    """A family of sparse priors whose precision Q depends on hyperparameters theta.

    Parameters
    ----------
    build : callable
        theta -> Q, [dQ/dtheta_1, ...], scipy sparse; the pattern of Q is the same for every theta.
    theta, names, bounds : the starting hyperparameters, their names, and (lower, upper) of each
    design : scipy sparse (N, L), optional
    constraints : array (k, L), optional
    log_prior : callable, optional
        theta -> (log density, gradient).
    moving : MovingRows, optional
        Rows of a design that depends on theta, for a field in a ``stack``.
    """

    def __init__(
        self,
        build: Precision,
        theta: ArrayLike,
        names: Sequence[str],
        bounds: Any = None,
        design: Any = None,
        constraints: Any = None,
        log_prior: Callable[[np.ndarray], tuple[float, np.ndarray]] | None = None,
        moving: MovingRows | None = None,
    ) -> None:
        self.moving = moving
        self.build, self.design, self.constraints = Remembered(build), design, constraints
        self._theta = np.asarray(theta, dtype=np.float64)
        self._names = tuple(names)
        wide = [WIDE] * self._theta.size
        self._bounds = np.asarray(wide if bounds is None else bounds, dtype=np.float64).reshape(-1, 2)
        self._log_prior = log_prior
        self._made: SparsePrecision | None = None

    @property
    def theta(self) -> np.ndarray:
        return self._theta

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    @property
    def bounds(self) -> np.ndarray:
        return self._bounds

    @cached_property
    def n_latents(self) -> int:
        """The number of columns of the design; without a design, the size of Q at the starting theta."""
        return int((self.build(self._theta)[0] if self.design is None else self.design).shape[1])

    def at(self, theta: ArrayLike | None = None, mean: ArrayLike = 0.0, offset: ArrayLike = 0.0) -> SparsePrecision:
        """The prior at theta (default: the starting value); the symbolic analysis is done once."""
        Q = sp.csc_array(self.build(self._theta if theta is None else np.asarray(theta, dtype=np.float64))[0])
        if self._made is None:
            self._made = SparsePrecision(Q, design=self.design, constraints=self.constraints)
        out = self._made.reweighted(Q)
        out.mean, out.offset = np.asarray(mean, dtype=np.float64), offset
        return out

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        G = sum(solution.posterior.adjoint().precision)
        return np.array([float(G.multiply(sp.csc_array(dQ)).sum()) for dQ in self.build(np.asarray(theta))[1]])

    def curvature(self, solution: Solution, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The average information 1/2 h_i' (Sigma - V) h_j with h_i = dQ/dtheta_i (m - mu), scaled for longer steps."""
        adjoint, slopes = solution.posterior.adjoint(), self.build(np.asarray(theta))[1]
        if not slopes:  # only the likelihood has hyperparameters
            return np.zeros((0, 0))
        return reaching_information(*adjoint.precision_curvature([sp.csc_array(dQ) for dQ in slopes]), gradient)

    def summands(self) -> Sequence[Summand]:
        """The field itself, if a direction u of theta only scales Q: sum_i u_i dQ/dtheta_i = -2 Q."""
        Q, slopes = self.build(self._theta)
        if not slopes:
            return ()
        unit = 1.0 / np.sqrt(np.maximum(Q.diagonal(), np.finfo(float).tiny))
        v = unit * np.random.default_rng(0).choice([-1.0, 1.0], Q.shape[0])
        each = np.stack([unit * (dQ @ v) for dQ in slopes], axis=1)
        whole = unit * (Q @ v)
        size = np.linalg.lstsq(each, -2.0 * whole, rcond=_SAME)[0]
        if not np.abs(each @ size + 2.0 * whole).max() <= _SAME * np.abs(whole).max():
            return ()
        size[np.abs(size) < _SAME] = 0.0
        return (Summand(slice(0, self.n_latents), size, tuple(np.flatnonzero(size == 0.0).tolist())),)

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """Rows ``table`` (M, L) of the design."""
        return NewRows(design=table)

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> MarkovField:
        from .series import ar1

        return ar1(n, phi=0.6, variance=0.7)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={value:.3g}" for name, value in zip(self._names, self._theta, strict=True))
        return f"MarkovField({pairs})"


def reaching_information(information: np.ndarray, squares: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Scale the average information so that Newton's step reaches further.

    The slope in a log sd is S - e, where S is a sum of squares and e the effective number of latents that the data
    determine. For fixed S and e the slope is zero after a step of 1/2 log(S / e); Newton's step is (S - e) / 2 S.
    """
    traces = gradient + squares
    with np.errstate(all="ignore"):
        ratio = traces / squares
        apart = np.isfinite(ratio) & (ratio > 0.0) & (np.abs(ratio - 1.0) > 1e-6)
        scale = np.where(apart, (ratio - 1.0) / np.log(ratio), 1.0)
    root = np.sqrt(np.clip(scale, _NARROW, _WIDE))
    return np.asarray(root[:, None] * information * root)


def scaled(structure: Any, precision: float, **options: Any) -> MarkovField:
    """Q = k R: a precision k times a fixed structure R, with theta = log sd = -log(k) / 2."""
    start = log_sd("gmrf", "precision", precision)
    build = ScaledStructure(sp.csc_array(structure).astype(np.float64))
    return MarkovField(build, [start], ["log sd"], [SIZE], **options)


def log_sd(where: str, name: str, precision: float) -> float:
    """The log sd that corresponds to a precision."""
    return -0.5 * float(np.log(scalar(where, name, precision, 0.0)))


def iid(n: int, precision: float = 1.0) -> MarkovField:
    """Independent effects with precision k: Q = k I."""
    return scaled(sp.eye_array(count("iid", "n", n, 1), format="csc"), precision)
