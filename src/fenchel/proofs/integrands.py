"""Integrands over few latents: the groups of a fit given its other latents b, or rows along few directions.

groups   r(x) = sum_c log g_c(b) + log N(b; mu, Q^-1) - log N(b; m, V),      b = m + L x
rows     r(x) = elbo + sum_n gt_n(l_n' x),      R = corr(eta) = l l' of the rows under q
"""

from __future__ import annotations

import numpy as np

from ..corrections.collapsed import Collapsed
from ..corrections.collapsed_fit import third_degree
from ..corrections.group_nodes import Lattice, Nodes, Placed
from ..corrections.low_rank import Directions, directions_of
from ..corrections.sites import Correlations, GaussianFit, Observed, observations
from ..priors.base import NewRows
from ..priors.row_covariances import Lines
from .latent_integral import expected_width

_ROUNDING = 64.0 * np.finfo(float).eps  # rounding error of a sum, relative to the sum of absolute values
_ALONG = 1e-7  # relative tolerance with which a row is a combination of the directions
_FINER = 2  # factor on the number of nodes of a group, and
_WIDER = 1.3  # factor on their range, of the lattice from which their error is estimated


class GroupIntegrand:
    """The likelihood with groups integrated out, as a function of all other latents."""

    def __init__(self, collapsed: Collapsed, width: float = 1e-3, work: float = np.inf) -> None:
        fit = collapsed._found
        self._problem, self._state = fit.problem, fit.state
        self._integrals = fit.problem.integrals
        self.dimension = fit.state.mean.size
        self._nodes, self._shift, self.error = self._chosen(fit.placed, width, work)
        self.densities = self._densities(self._nodes)

    def _densities(self, nodes: Nodes) -> float:
        data = self._integrals.data
        return float(data.kinds.times.size * nodes.step.shape[1] + data.alone.times.size)

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        return self._ratio(x, self._nodes) + self._shift

    def _ratio(self, x: np.ndarray, nodes: Nodes) -> np.ndarray:
        problem, state = self._problem, self._state
        b = state.mean + x @ state.root.T
        off = b - problem.mu
        log_prior = 0.5 * problem.log_det - 0.5 * np.sum((off @ problem.Q) * off, axis=1)
        log_q = -0.5 * np.sum(x * x, axis=1) - float(np.log(np.diag(state.root)).sum())
        return self._log_likelihood(b, nodes) + log_prior - log_q

    def _log_likelihood(self, b: np.ndarray, nodes: Nodes) -> np.ndarray:
        """sum_c log g_c (S,) at each b (S, p)."""
        data = self._integrals.data
        alone = data.alone
        total = alone.log_density(alone.X @ b.T + alone.offset[:, None]).sum(axis=0)
        for part in self._integrals.tilted(b, nodes, slopes=False):
            total[part.points] += data.many[part.kinds] @ part.log_g
        return np.asarray(total)

    def _chosen(self, placed: Placed, width: float, work: float) -> tuple[Nodes, float, float]:
        """The nodes to use with their shift and error: those of the fit or its fine lattice.

        The nodes with the smaller width at this work are used. The error is twice the largest difference from finer and
        wider nodes over the region of q(b), plus rounding.
        """
        lattice = placed.lattice
        place = lattice.centre, lattice.mode, lattice.slope
        ends = _WIDER * lattice.low, _WIDER * lattice.high
        size = int(np.ceil(_FINER * _WIDER * (lattice.size - 1))) + 1
        x = np.concatenate([np.zeros((1, self.dimension)), third_degree(self.dimension, 1).points])
        exact = self._ratio(x, Lattice.spanning(place, lattice.root, ends, size))
        best = np.inf
        chosen: tuple[Nodes, float, float] = lattice, 0.0, np.inf
        for nodes, shift in ((lattice, 0.0), (placed.nodes, placed.shift)):
            error = 2.0 * float(np.abs(self._ratio(x, nodes) + shift - exact).max())
            error += float(_ROUNDING * abs(self._state.elbo))
            apart = expected_width(self.dimension, self._densities(nodes), width, work) + 2.0 * error
            if apart < best:
                best, chosen = apart, (nodes, shift, error)
        return chosen


class RowIntegrand:
    """The likelihood of rows that depend on few directions under q."""

    def __init__(
        self, elbo: float, observed: Observed, groups: Lines, directions: Directions, correlations: Correlations
    ) -> None:
        loading = directions.loading
        self._directions, self._correlations = directions, correlations
        self._observed, self._loading, self._elbo = observed, groups.sign[:, None] * loading[groups.of], elbo
        self._constant = observed.bound() - 0.5 * observed.lam * observed.rho
        self.dimension, self.densities = loading.shape[1], float(observed.h.size)
        self.error = _ROUNDING * (abs(elbo) + float(np.abs(self._constant).sum()))

    def log_ratio(self, x: np.ndarray) -> np.ndarray:
        own = np.ones(self._observed.h.size)
        at = self._loading @ x.T
        return np.asarray(self._elbo + self._observed.left(at, own, self._constant).sum(axis=0))

    def seen(self, new: NewRows, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether new rows are combinations of the directions (M,), and their coefficients (M, d).

        ``variance`` (M,) is their variance under q.
        """
        g = self._directions.of(self._correlations.with_new(new, variance))
        norm = np.sqrt(np.sum(g * g, axis=1))
        inside = np.abs(norm - 1.0) <= _ALONG
        inside &= np.broadcast_to(np.asarray(new.extra_variance) == 0.0, inside.shape)
        return inside, g / np.where(norm > 0.0, norm, 1.0)[:, None]


def row_integrand(solution: GaussianFit, most: int) -> RowIntegrand | None:
    """The integrand of the rows of a fit; None if they have more than ``most`` directions."""
    groups = solution.posterior.factor.predictors.lines()
    correlations = Correlations(solution.posterior, groups)
    directions = directions_of(groups.n, lambda k: correlations.of_sites(np.array([k]))[0], most)
    if directions is None:
        return None
    return RowIntegrand(solution.elbo, observations(solution), groups, directions, correlations)
