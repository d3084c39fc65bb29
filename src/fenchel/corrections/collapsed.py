"""The posterior with groups integrated out: q(b) of the other latents, and each group's effects given b.

    E[h(b, u)] = sum_k w_k E_t[h(b_k, u) | b_k],      t(u | b) the tilted density of a group's effects
    dP/dQ = 1/2 (Sigma - E[(z - mu)(z - mu)'])        on the pattern of Q, which has no entries between u and b

See ``collapsed_fit`` for q(b) and ``group_quadrature`` for t.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import gates
from ..checks import count
from ..files import Stored
from ..linalg.arrays import Array, Seed, asarray, to_numpy
from ..priors.base import NewRows
from .collapsed_fit import CollapsedFit, Cubature, rule_of, solve_collapsed, third_degree
from .grids import GridMarginals, MarginalGrid
from .group_marginals import GroupEffects, LinearTargets, drawn_effects, marginals_of
from .group_nodes import NodeSizes
from .group_quadrature import GroupIntegrals
from .group_structure import GroupedRows, grouped_rows
from .posterior_on_grids import Like, PosteriorOnGrids
from .sites import GaussianFit, contradicted

MOST = 200  # largest number of latents that are not effects of groups
_NODES = {1: 17.0, 2: 100.0}  # typical number of quadrature points of a group, by the number of its effects
_STEP = 1e-4  # step in a likelihood's own parameter for differences
_LARGE = 0.25  # nats: a larger error is not trusted
_DRAWS_AT_ONCE = 64


class Collapsed(Stored, PosteriorOnGrids):
    """The posterior with the effects of groups integrated out by quadrature, and a Gaussian q(b) for the other latents.

    ``log_evidence`` is the lower bound of this problem. It is close to log p(y), because the posterior of b is nearly
    Gaussian if there are many groups. The other attributes are those of ``Corrected``; here ``own`` is the whole
    difference from the elbo.

    Attributes
    ----------
    n_groups : int
        Number of groups.
    gap : float
        Upper bound on the gain by any other Gaussian q(b), in nats.
    n_iter : int
        Iterations of Newton's method for q(b).
    """

    method = "collapsed"
    leaves_one_out = True

    def __init__(self, solution: GaussianFit, data: GroupedRows, found: CollapsedFit) -> None:
        self._fit, self._posterior = solution, solution.posterior
        self._data, self._found = data, found
        self.elbo, self.log_evidence = solution.elbo, found.elbo
        self.own, self.pairs = self.log_evidence - self.elbo, 0.0
        self.n_groups, self.n_sites = data.kind_of.size, int(data.kind_of.size + data.alone.times.size)
        self.n_iter, self.gap = found.n_iter, found.problem.gap(found.state)

    @property
    def like(self) -> Like:
        return self.method, self._found.placed.sizes

    # -- the evidence ------------------------------------------------------------------------------
    @cached_property
    def log_evidence_se(self) -> float:
        """Estimated error, in nats: of the lattices, of the rule of points, and of the Gaussian shape of q(b)."""
        return self._found.placed.missed + self._rule_error + self.remainder

    @property
    def lower_bound(self) -> float:
        """Lower bound on log p(y): ``log_evidence`` less the errors of the lattices and of the rule of points."""
        return self.log_evidence - self._found.placed.missed - self._rule_error

    @cached_property
    def _at_points(self) -> tuple[Cubature, np.ndarray, np.ndarray]:
        """A second, rotated rule of degree 3, with the values and gradients of the groups at its points."""
        found, p = self._found, self._found.state.mean.size
        rule = third_degree(p, 1)
        b = found.state.mean + rule.points @ found.state.root.T
        return rule, *found.problem.integrals.values(b, found.placed.nodes)[:2]

    @cached_property
    def _rule_error(self) -> float:
        """Error of the rule of points: the difference between two rules, reduced if the first has degree 5."""
        found = self._found
        rule, value, _ = self._at_points
        other = float(rule.weights @ value)
        used = float(found.weights @ found.state.values)
        third = found.weights.size == rule.weights.size
        return abs(other - used) * (1.0 if third else 0.25)

    @cached_property
    def remainder(self) -> float:
        """log p(y) minus the bound, in nats: the largest of three estimates.

        The first is |T|^2 / 12, where T are the third derivatives of log p in units of q. Derivatives T[k, k, .] come
        from gradients at the points of a rule, and the others are as large on average. If the posterior is far from
        Gaussian, such as for separated data, this is too small. The other two estimates, the variances of
        log p - log q over the points of the two rules, are not.
        """
        found = self._found
        rule, values, gradient = self._at_points
        p, root = found.state.mean.size, found.state.root
        middle = found.problem.integrals.values(found.state.mean[None], found.placed.nodes)[1]
        half = gradient.shape[0] // 2
        along = (gradient[:half] + gradient[half:] - 2.0 * middle) @ root / p  # T[e_k, e_k, .]
        square, trace = float(np.sum(along**2)), float(np.sum(along.sum(axis=0) ** 2))
        cubic = max(square, 0.5 * ((p + 2.0) * square - trace)) / 12.0
        problem, state = found.problem, found.state
        return max(cubic, *(problem.shortfall(state, *one) for one in ((rule, values), (problem.rule, state.values))))

    @property
    def trusted(self) -> bool:
        fine = self._found.converged and self.log_evidence_se <= _LARGE
        return fine and contradicted(self._fit, self.log_evidence, self.log_evidence_se) is None

    @property
    def nearer(self) -> bool:
        return self._found.converged and self.log_evidence_se < max(_LARGE, abs(self.own))

    @property
    def marginals_trusted(self) -> bool:
        return self.trusted

    @property
    def status(self) -> str:
        if not self._found.converged:
            return f"the search of q ended with a decrement of {self._found.decrement:.1e} nats"
        wrong = contradicted(self._fit, self.log_evidence, self.log_evidence_se)
        if wrong is not None:
            return wrong
        if not self.trusted:
            return f"latents other than the groups are not Gaussian: the error is about {self.log_evidence_se:.2g} nats"
        return f"the effects of {self.n_groups} groups are integrated out, to {self.log_evidence_se:.1g} nats"

    # -- moments -----------------------------------------------------------------------------------
    @cached_property
    def _effects(self) -> GroupEffects:
        """Moments of the groups' effects at the points of the rule."""
        return GroupEffects.of(self._data, self._found)

    def _marginals(self, W: Any, offset: np.ndarray, extra: np.ndarray | float = 0.0) -> MarginalGrid:
        """Marginals of W z + offset + e, where Var e = extra."""
        X, A = self._data.split.seen(W)
        return marginals_of(self._effects, LinearTargets(X, A, offset, np.broadcast_to(extra, offset.shape)))

    @cached_property
    def _grid(self) -> MarginalGrid:
        predictors: Any = self._posterior.predictors
        return self._marginals(predictors.W, to_numpy(predictors.offset)[:, 0])

    @cached_property
    def _latents(self) -> MarginalGrid:
        n = self._data.split.n_latents
        return self._marginals(sp.eye_array(n, format="csr"), np.zeros(n))

    def marginals_at(self, new: NewRows) -> GridMarginals:
        """The marginals of eta at new rows."""
        predictors: Any = self._posterior.predictors
        (rows,), m = predictors.new_rows(new)
        given = np.zeros(m)
        extra = np.broadcast_to(
            np.asarray(new.extra_variance, dtype=np.float64), (m, *np.shape(new.extra_variance)[1:])
        )
        extra = extra.reshape(m)
        offset = given + np.reshape(np.asarray(new.offset, dtype=np.float64), (-1,) if np.ndim(new.offset) else ())
        if new.design is not None:
            return GridMarginals(self._marginals(rows.csr(), offset, extra), self._like)
        cross = to_numpy(rows)
        W = cross @ predictors.pattern.Q  # E[eta* | z] = mean + c Q (z - mu)
        left = np.asarray(new.variance, dtype=np.float64).reshape(m) - np.sum(W * cross, axis=1)
        centre, _ = self._posterior.moments_at(new)
        offset = to_numpy(centre)[:, 0] - W @ to_numpy(self._posterior.latent_mean)
        return GridMarginals(self._marginals(sp.csr_array(W), offset, np.maximum(left, 0.0) + extra), self._like)

    @property
    def work(self) -> float:
        """Cost of the integrals: rows times points, of which there are more with more other latents."""
        return _work(self._data)

    @property
    def n_rest(self) -> int:
        """Number of latents that are not effects of groups."""
        return int(self._data.split.rest.size)

    def beside_groups(self, new: NewRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which rows of a design see no group (M,), and their mean (M,) and directions (M, p).

        At these rows eta = mean + directions x with x ~ N(0, I) under q(b).
        """
        X, A = self._data.split.seen(new.design)
        A.eliminate_zeros()
        state = self._found.state
        alone = np.diff(A.indptr) == 0
        alone &= np.broadcast_to(np.asarray(new.extra_variance) == 0.0, alone.shape)
        return alone, X @ state.mean + np.broadcast_to(new.offset, alone.shape), X @ state.root

    # -- draws -------------------------------------------------------------------------------------
    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of z (size, L): b from q, and the effects of each group given b."""
        return asarray(self._drawn(size, rng, with_groups=True), self._like)

    def sample_some(self, some: np.ndarray, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of the latents ``some``; effects of groups are drawn only if one of them is an effect."""
        with_groups = not np.isin(some, self._data.split.rest).all()
        return self._drawn(size, rng, with_groups)[:, some]

    def _drawn(self, size: int, rng: Seed, with_groups: bool) -> np.ndarray:
        draws, size = np.random.default_rng(rng), count("collapsed.sample_latents", "size", size)
        state, split = self._found.state, self._data.split
        b = state.mean + draws.standard_normal((size, state.mean.size)) @ state.root.T
        out = np.empty((size, split.n_latents))
        out[:, split.rest] = b
        for i in range(0, size if with_groups else 0, _DRAWS_AT_ONCE):
            some = slice(i, i + _DRAWS_AT_ONCE)
            u = drawn_effects(self._data, self._found, b[some], draws)
            out[some, split.groups.ravel()] = u.reshape(u.shape[0], -1)
        return out

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta (size, N)."""
        predictors: Any = self._posterior.predictors
        z = to_numpy(self.sample_latents(size, rng))
        return asarray((predictors.W @ z.T).T + to_numpy(predictors.offset)[:, 0], self._like)

    # -- gradients ---------------------------------------------------------------------------------
    def precision_adjoint(self) -> list[sp.csc_array]:
        """dP/dQ on the pattern of Q; ``family.gradient`` reads it from ``as_solution()``."""
        predictors: Any = self._posterior.predictors
        pattern, data, state = predictors.pattern, self._data, self._found.state
        Q, split = pattern.Q, data.split
        (G, d), p = split.groups.shape, split.rest.size
        place = np.empty(split.n_latents, dtype=np.int64)
        place[split.groups.ravel()], place[split.rest] = np.arange(G * d), G * d + np.arange(p)
        row, column = place[Q.indices], place[np.repeat(np.arange(Q.shape[0]), np.diff(Q.indptr))]
        off = state.mean - data.rest_mean
        of_rest = state.root @ state.root.T + np.outer(off, off)
        of_groups = self._effects.second(data.mean)
        in_rest = (row >= G * d) & (column >= G * d)
        second = np.empty(row.size)
        second[in_rest] = of_rest[row[in_rest] - G * d, column[in_rest] - G * d]
        i, j = row[~in_rest], column[~in_rest]
        second[~in_rest] = of_groups[i // d, i % d, j % d]
        data_out = 0.5 * (pattern.base.inverse_at(pattern.places) - second)
        return [sp.csc_array((data_out, Q.indices, Q.indptr), shape=Q.shape)]

    def likelihood_gradient(self) -> np.ndarray:
        """Gradient of ``log_evidence`` in the likelihood's own theta: E[d log p / d theta], by differences of log p."""
        likelihood, fit = self._fit.likelihood, self._fit
        theta = likelihood.theta
        moved = []
        for step in _STEP * np.eye(theta.size):
            sides = [likelihood.with_theta(theta + side) for side in (step, -step)]
            moved.append([(one, one.prepare(fit.y)) for one in sides])
        return self._effects.likelihood_slopes(moved) / (2.0 * _STEP)

    def as_solution(self) -> CollapsedSolution:
        """The part of a solution that ``Family.gradient`` reads, with the moments of this posterior."""
        return CollapsedSolution(self)

    def __repr__(self) -> str:
        word = "" if self.trusted else ", not to be trusted"
        value = f"log_evidence={self.log_evidence:.4f}, error about {self.log_evidence_se:.1g}{word}"
        return f"Collapsed({self.n_groups} groups, {value})"


@dataclass(frozen=True)
class CollapsedSolution:
    """A solution as ``Family.gradient`` sees it: ``posterior.adjoint().precision`` and ``likelihood_gradient``."""

    collapsed: Collapsed

    @property
    def posterior(self) -> CollapsedSolution:
        return self

    def adjoint(self) -> CollapsedSolution:
        return self

    @cached_property
    def precision(self) -> list[sp.csc_array]:
        return self.collapsed.precision_adjoint()

    def likelihood_gradient(self) -> np.ndarray:
        return self.collapsed.likelihood_gradient()


def collapse(
    solution: GaussianFit, work: float = np.inf, most: int = MOST, sizes: NodeSizes | None = None
) -> Collapsed | None:
    """Integrate the groups of a fit out; None if it has no groups, or too many rows or other latents.

    ``sizes``: the numbers of nodes that sufficed at a nearby theta.
    """
    if solution.likelihood.objective.conjugate:
        return None
    data = grouped_rows(solution, most)
    if data is None or _work(data) > min(work, gates.COLLAPSED_WORK):
        return None
    split, post = data.split, solution.posterior
    unit = np.zeros((split.n_latents, split.rest.size))
    unit[split.rest, np.arange(split.rest.size)] = 1.0
    factor: Any = post.factor
    mean, V = to_numpy(post.latent_mean), np.asarray(factor.parts[0].solve(unit))[split.rest]
    try:
        begun = mean[split.rest], 0.5 * (V + V.T), mean[split.groups[data.first]]
        fit = solve_collapsed(GroupIntegrals(data), *begun, sizes=sizes)
    except NotImplementedError:  # the likelihood has no derivatives
        return None
    if fit is None or not np.isfinite(fit.elbo) or fit.elbo < solution.elbo - 1e-6 * abs(solution.elbo):
        return None
    return Collapsed(solution, data, fit)


def _work(data: GroupedRows) -> float:
    """Cost of the integrals: rows times points of the quadrature."""
    (G, d), p = data.split.groups.shape, data.split.rest.size
    return float(data.kinds.times.size * rule_of(p, G, d).weights.size * _NODES[d])
