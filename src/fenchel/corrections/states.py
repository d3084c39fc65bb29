"""The contract of a space of draws: a state of standard normals of which eta, z and new rows are linear functions.

The part of an unknown that is not a function of the state is a normal residual, whose variance is that of the prior.

If one observation is very informative, the posterior has the wide tail of the prior on one side, and q has not.
Therefore a share of the draws is made from q with weaker sites, c Lam, at the same mean (``MIXTURE``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..linalg.arrays import Array, asarray, to_numpy
from ..linalg.design import Design
from ..posterior import Posterior
from ..priors.base import NewRows

MIXTURE = ((1.0, 0.7), (0.5, 0.1), (0.15, 0.2))  # the strength c of the sites, and the share of draws made with it
_NONE = 1e-9  # residuals smaller than this share of a variance are rounding errors
_EMPTY = np.empty(0)

States = list[np.ndarray]  # (r, K) of each block: K draws


@dataclass(frozen=True)
class Unknowns:
    """Unknowns as linear functions of a state: a design for the state of each block.

    mean, variance : under q, in the shape of the results
    residual : variance given the state, or None if it is 0
    """

    designs: list[Design]
    mean: np.ndarray
    variance: np.ndarray
    residual: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        return int(self.designs[0].shape[0])

    def take(self, rows: slice) -> Unknowns:
        """The unknowns of some rows of the designs, flat; each row has one unknown for each block."""
        B, index = len(self.designs), np.arange(self.n_rows)[rows]
        some = slice(index[0] * B, (index[-1] + 1) * B)
        return Unknowns(
            [design.take(index) for design in self.designs],
            self.mean.ravel()[some],
            self.variance.ravel()[some],
            None if self.residual is None else self.residual.ravel()[some],
        )

    def deviations(self, states: States) -> np.ndarray:
        """Deviations of the unknowns from their mean (M, K) given the states, in the order of ``mean.ravel()``."""
        parts = [to_numpy(W.times(asarray(v, W.like))) for W, v in zip(self.designs, states, strict=True)]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=1).reshape(-1, parts[0].shape[1])


class Space(ABC):
    """The space in which draws of one posterior are made."""

    quasi = True  # whether states are computed from given standard normals, which may be quasi-random
    sizes: list[int]  # standard normals of each block
    log_dets: list[float]  # log|B| at each strength of the sites

    def __init__(self, posterior: Posterior) -> None:
        self.posterior = posterior
        self.everyone: Any = posterior.predictors  # of the kind that the space is for, as is the factor
        self.factor: Any = posterior.factor

    def states(self, normals: States, which: np.ndarray, rng: np.random.Generator) -> States:
        """States of K draws from standard normals (r, K) of each block; ``which`` (K,): index into ``MIXTURE``."""
        out = [np.empty((size, which.size)) for size in self.sizes]
        for k in range(len(MIXTURE)):
            chosen = np.flatnonzero(which == k)
            if chosen.size:
                for x, y in zip(out, self._drawn([u[:, chosen] for u in normals], k, rng), strict=True):
                    x[:, chosen] = y
        return out

    @abstractmethod
    def _drawn(self, normals: States, k: int, rng: np.random.Generator) -> States:
        """States of one component of the mixture."""

    @abstractmethod
    def active(self) -> list[Design]:
        """Designs on the states for eta of the observations with curvature."""

    @abstractmethod
    def _eta(self) -> list[Design]:
        """Designs for eta of all observations."""

    @abstractmethod
    def _latents(self) -> list[Design]:
        """Designs for z."""

    def _new_rows(self, new: NewRows) -> list[Design]:
        """Designs for eta at new rows."""
        rows, _ = self.everyone.new_rows(new)
        return self.on_states(rows) if new.design is not None else self.on_states_by_cross(rows)

    def on_states(self, rows: list[Design]) -> list[Design]:
        """Rows over the latents as rows over the states."""
        raise NotImplementedError

    def on_states_by_cross(self, rows: list[Array]) -> list[Design]:
        """The same for rows given by their covariances with the latents."""
        raise NotImplementedError

    @abstractmethod
    def _explained(self, designs: list[Design]) -> list[Array]:
        """Variances of designs on the states under q, for each block."""

    @abstractmethod
    def joint_latents(self, states: States, rng: np.random.Generator) -> States:
        """Joint draws of z - m given the states: (L, K) of each block."""

    def eta(self) -> Unknowns:
        """eta at the observations, without their extra variance, which is drawn separately."""
        post = self.posterior
        mean, variance = to_numpy(post.mean), to_numpy(post.variance)
        return self._with_residual(self._eta(), mean, variance, to_numpy(post.extra_variance).reshape(mean.shape))

    def latents(self) -> Unknowns:
        """z."""
        post = self.posterior
        return self._with_residual(self._latents(), to_numpy(post.latent_mean), to_numpy(post.latent_variance))

    def at(self, new: NewRows) -> Unknowns:
        """eta at new rows."""
        mean, variance = self.posterior.moments_at(new)
        shaped = self.posterior.shaped
        return self._with_residual(self._new_rows(new), to_numpy(shaped(mean)), to_numpy(shaped(variance)))

    def _with_residual(
        self, designs: list[Design], mean: np.ndarray, variance: np.ndarray, apart: np.ndarray | float = 0.0
    ) -> Unknowns:
        """The unknowns with their residual variance: their variance minus that of the states and ``apart``."""
        explained = self._explained(designs)
        seen = explained[0] if len(explained) == 1 else np.stack(explained, axis=1)
        residual = variance - apart - np.reshape(seen, variance.shape)
        residual = np.where(residual > _NONE * variance, residual, 0.0)
        return Unknowns(designs, mean, variance, residual if residual.any() else None)

    def joint_eta(self, states: States, rng: np.random.Generator) -> np.ndarray:
        """Joint draws of eta - h (N, C, K) at all observations, without their extra variance."""
        z = self.joint_latents(states, rng)
        return in_observations(Unknowns(self.everyone.designs, _EMPTY, _EMPTY).deviations(z), self.everyone.mt.shape)


def in_observations(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Reshape (N*C, K) to (N, C, K)."""
    return flat.reshape(shape[0], shape[1], -1)
