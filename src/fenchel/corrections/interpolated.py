"""The corrected posterior at one theta, interpolated from corrected posteriors at nearby theta.

    mean = m + s sum_j b_j (M_j - m_j) / s_j,     log sd = log s + sum_j b_j log(S_j / s_j),     sum_j b_j = 1

m, s are the mean and sd of q at this theta, m_j, s_j those of q and M_j, S_j the corrected ones at the others. The
change that a correction makes to a marginal, in units of its Gaussian, varies slowly with theta. The shape of the
density is that at the nearest theta.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from ..files import Stored
from ..linalg.arrays import Array, Seed, asarray, to_numpy
from ..posterior import Posterior
from ..priors.base import NewRows
from ..row_scores import LeaveOneOut, leave_one_out
from .grids import CorrectedLeaveOneOut, GridMarginals, MarginalGrid
from .posterior_on_grids import Moments, PosteriorOnGrids, moments_at
from .sites import GaussianFit

if TYPE_CHECKING:
    from .collapsed import Collapsed
    from .corrected import Corrected

_X = 0.25 * np.arange(-56, 57)  # grid of a Gaussian marginal


class Interpolated(Stored, PosteriorOnGrids):
    """An interpolated corrected posterior; without others to interpolate from it is q itself (Gaussian likelihoods).

    The attributes are those of ``Corrected``; here ``own`` is the whole difference from the elbo.

    Parameters
    ----------
    given : sequence of Corrected or Collapsed (m)
        Corrected posteriors of the same model at other theta.
    shares : array (m,)
        Weights b, which sum to 1.
    nearest : int
        Index of the one whose shape is used.
    gain : float
        log p(y) minus the elbo, in nats.
    error : float
        Error of the interpolation, in nats.
    """

    method = "interpolated"

    def __init__(
        self,
        solution: GaussianFit,
        given: Sequence[Corrected | Collapsed] = (),
        shares: np.ndarray | None = None,
        nearest: int = 0,
        gain: float = 0.0,
        error: float = 0.0,
    ) -> None:
        self._given, self._shares, self._nearest = list(given), shares, nearest
        self._posterior, self._fit, self.elbo = solution.posterior, solution, solution.elbo
        self.own, self.pairs, self.log_evidence = gain, 0.0, solution.elbo + gain
        self.log_evidence_se = error + (given[nearest].log_evidence_se if given else 0.0)
        self.n_sites = given[nearest].n_sites if given else int(self._posterior.active.size)

    @property
    def trusted(self) -> bool:
        return all(each.trusted for each in self._given)

    @property
    def nearer(self) -> bool:
        return all(each.nearer for each in self._given)

    @property
    def marginals_trusted(self) -> bool:
        return all(each.marginals_trusted for each in self._given)

    @property
    def status(self) -> str:
        if not self._given:
            return "the likelihood is Gaussian, so q is the posterior"
        return f"interpolated between {len(self._given)} hyperparameters: {self._given[self._nearest].status}"

    @cached_property
    def _grid(self) -> MarginalGrid:
        return self._between(_of_rows(self._posterior), lambda each: (each._grid, _of_rows(each._posterior)))

    @cached_property
    def _latents(self) -> MarginalGrid:
        of_other = lambda each: (each._latents, _of_latents(each._posterior))
        return self._between(_of_latents(self._posterior), of_other)

    def marginals_at(self, new: NewRows) -> GridMarginals:
        """The marginals of eta at new rows."""
        if self._given and new.design is None:  # covariances with the latents change with theta
            from .corrected import correct

            return correct(self._fit, rough=True).marginals_at(new)  # type: ignore[return-value]

        here = moments_at(self._posterior, new)
        return GridMarginals(self._between(here, lambda each: each.grid_at(new)), self._like)

    def _between(
        self,
        moments: Moments,
        given: Callable[[Corrected | Collapsed], tuple[MarginalGrid, Moments]],
    ) -> MarginalGrid:
        """Interpolate the marginals of the others, in units of the Gaussian of each."""
        mean, variance = moments
        sd = np.sqrt(variance)
        if not self._given:
            return MarginalGrid(mean, sd, _X, np.tile(-0.5 * _X * _X, (mean.size, 1)))
        assert self._shares is not None
        shift, stretch = np.zeros((2, mean.size))
        for share, each in zip(self._shares, self._given, strict=True):
            grid, (m, v) = given(each)
            scale = np.sqrt(np.where(v > 0.0, v, 1.0))
            shift += share * (grid.centre + grid.scale * grid.first - m) / scale
            stretch += share * np.log(np.maximum(grid.scale * np.sqrt(grid.central(2)), 1e-300) / scale)
        near, _ = given(self._given[self._nearest])
        wide = sd * np.exp(stretch) / np.sqrt(np.maximum(near.central(2), 1e-300))
        return MarginalGrid(mean + sd * shift - wide * near.first, wide, near.x, near.log_density)

    @cached_property
    def _left_out(self) -> tuple[CorrectedLeaveOneOut, LeaveOneOut]:
        """Interpolated leave-one-out predictions: an interpolated density cannot be divided by a likelihood."""
        if not self._given:
            return super()._left_out
        fit, shares = self._fit, self._shares
        assert shares is not None
        plain, each = leave_one_out(fit.likelihood, fit.posterior, fit.y), [one._left_out for one in self._given]
        density, mean, variance = (to_numpy(v) for v in (plain.log_density, plain.mean, plain.variance))
        sd, shift, stretch, more = np.sqrt(variance), 0.0, 0.0, 0.0
        pit, below, trusted = 0.0, 0.0, np.ones(density.size, dtype=bool)
        for share, (better, q) in zip(shares, each, strict=True):
            m, v = to_numpy(q.mean), to_numpy(q.variance)
            shift = shift + share * (better.mean - m) / np.sqrt(v)
            stretch = stretch + share * 0.5 * np.log(better.variance / v)
            more = more + share * (better.log_density - to_numpy(q.log_density))
            pit, below = pit + share * better.pit, below + share * better.pit_below
            trusted = trusted & better.trusted
        upto, under = (np.clip(np.where(trusted, end, np.nan), 0.0, 1.0) for end in (pit, below))
        wide = variance * np.exp(2.0 * stretch)
        return CorrectedLeaveOneOut(density + more, mean + sd * shift, wide, upto, under, trusted), plain

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta (size, N): draws of q, each coordinate transformed to its marginal."""
        return self._moved(self._grid, _of_rows(self._posterior), self._posterior.sample(size, rng))

    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of z (size, L), made like those of ``sample``."""
        return self._moved(self._latents, _of_latents(self._posterior), self._posterior.sample_latents(size, rng))

    def sample_some(self, some: np.ndarray, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of the latents ``some``: only these are transformed."""
        mean, variance = _of_latents(self._posterior)
        drawn = self._posterior.sample_some(some, size, rng)
        return to_numpy(self._moved(self._latents.take(some), (mean[some], variance[some]), drawn))

    def _moved(self, grid: MarginalGrid, moments: Moments, draws: Array) -> Array:
        if not self._given:
            return draws
        mean, sd = moments[0], np.sqrt(np.where(moments[1] > 0.0, moments[1], 1.0))
        levels = np.clip(ndtr((to_numpy(draws) - mean) / sd), 1e-12, 1.0 - 1e-12)
        return asarray(grid.centre + grid.scale * grid.places(levels.T).T, self._like)

    def __repr__(self) -> str:
        return f"Interpolated(log_evidence={self.log_evidence:.4f}, error about {self.log_evidence_se:.1g})"


def _of_rows(posterior: Posterior) -> Moments:
    mean, variance = (to_numpy(v)[:, 0] for v in posterior.moments)
    return mean, variance


def _of_latents(posterior: Posterior) -> Moments:
    return to_numpy(posterior.latent_mean), to_numpy(posterior.latent_variance)
