"""The corrected posterior for very many sites, without matrices of sites by sites.

    log p(x_i) = gt_i(x_i) - x_i^2/2 + sum_k A_ik he_k(x_i),     A_ik = sum_{m != i} R_im^k c_km,   k <= 4

is the product of the factors 1 + sum_k R^k c_km he_k(x) to first order in each of them. Beyond 4.5 standard deviations
the sum is constant. Under a sparse prior the sums are over neighbours (``local.py``). Under few features a random
sample of sites is paired with all others, more skewed sites with higher probability, and totals are weighted by the
inverse of the probability. Densities are computed only when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from ..linalg.arrays import to_numpy
from ..linalg.design import Design
from ..linalg.matrix_designs import as_design
from ..priors.row_covariances import Lines
from .corrected import Corrected
from .grids import MarginalGrid
from .local import TERMS, neighbours, patch_triples
from .pairs import Pairs, held, triples_among
from .sites import Correlations, Observed, hermite, sites_of

_ORDER = 12  # highest order of the Hermite coefficients
_STEPS = (0.25, 0.125, 0.03125)  # steps of the grid of a site, tried in turn
_AT_ONCE = 8192  # sites at a time
_DRAWN = 128  # sampled sites that are paired with all others
_AMONG = 400  # sites among which triples are summed
_FAR = 4.5  # standard deviations beyond which the sums are constant
_BLOCK = 1 << 22  # numbers in memory at a time
_CACHEFUL = 2048  # rows of a grid that stay in cache


class LargeCorrected(Corrected):
    """The expansion with only the Hermite coefficients of the sites in memory."""

    @property
    def nearer(self) -> bool:
        """The same as ``trusted``, because the error is estimated from a sample of the sites."""
        return self.trusted

    def _prepare(self, observed: Observed, groups: Lines) -> None:
        self._observed, self._groups = observed, groups
        self._correlations = Correlations(self._posterior, groups)
        log_z, c, self._settled = np.empty(groups.n), np.empty((groups.n, _ORDER + 1)), True
        for which, rows, own in groups.stretches(_AT_ONCE):
            some = sites_of(observed.take(rows), own, _STEPS, _ORDER)
            log_z[which], c[which], self._settled = some.log_z, some.c, self._settled and some.settled
        self.own, self._c = float(log_z.sum()), c

    @cached_property
    def _x(self) -> np.ndarray:
        return 0.25 * np.arange(-32, 33)

    def _own(self, sites: np.ndarray) -> np.ndarray:
        """gt of some sites on the grid (M, 65)."""
        out = np.empty((sites.size, self._x.size))
        for i in range(0, sites.size, _AT_ONCE):
            rows, start = self._groups.rows_of(sites[i : i + _AT_ONCE])
            part = self._observed.take(rows)
            left = part.left(self._x, self._groups.sign[rows], part.bound() - 0.5 * part.lam * part.rho)
            out[i : i + _AT_ONCE] = np.maximum(np.add.reduceat(left, start, axis=0), -700.0)
        return out

    def _summed(self, A: np.ndarray, own: np.ndarray | float = 0.0) -> np.ndarray:
        """own - x^2/2 + sum_k A_k he_k(x) (T, M), in blocks of rows that stay in cache."""
        he, out = hermite(np.clip(self._x, -_FAR, _FAR), TERMS - 1)[1:], np.empty((A.shape[0], self._x.size))
        for i in range(0, A.shape[0], _CACHEFUL):
            rows = slice(i, i + _CACHEFUL)
            others = A[rows, 1:] @ he
            gt = own[rows] if isinstance(own, np.ndarray) else own
            out[rows] = held(self._x, gt - 0.5 * self._x**2 + 0.0 * others, others)
        return out

    def _of_sites(self) -> np.ndarray:
        """The sums A (n, TERMS) for the sites."""
        raise NotImplementedError

    @cached_property
    def _grid(self) -> MarginalGrid:
        post, groups = self._posterior, self._groups
        h, rho = (to_numpy(v)[:, 0] for v in post.moments)
        log_p = self._summed(self._of_sites(), self._own(np.arange(groups.n)))
        out = log_p[groups.of]
        turned = groups.sign < 0.0
        out[turned] = out[turned, ::-1]
        if post.active.size < h.size:
            everywhere = np.empty((h.size, self._x.size))
            everywhere[post.active] = out
            rest = np.setdiff1d(np.arange(h.size), post.active)
            predictors: Any = post.predictors
            design = predictors.designs[0].take(rest)
            everywhere[rest] = self._summed(self._sums(design.take, rho[rest]))
            out = everywhere
        return MarginalGrid(h, np.sqrt(rho), self._x, out)

    def _sums(self, rows: Callable[[np.ndarray], Design], variance: np.ndarray) -> np.ndarray:
        """The sums A (M, TERMS) for new rows of W, from their correlations with every site, some rows at a time."""
        M, step = variance.size, max(1, _BLOCK // self.n_sites)
        out = np.zeros((M, TERMS))
        for i in range(0, M, step):
            which = np.arange(i, min(M, i + step))
            out[which] = self._powers(self._correlations.with_design(rows(which), variance[which]))
        return out

    def _powers(self, R: np.ndarray) -> np.ndarray:
        """sum_m R_tm^k c_km (T, TERMS) for targets with correlations R (T, n) with the sites."""
        out, power = np.zeros((R.shape[0], TERMS)), np.ones_like(R)
        for k in range(1, TERMS):
            power *= R
            out[:, k] = power @ self._c[:, k]
        return out

    def _densities(self, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._x, self._summed(self._powers(R))


class LocalCorrected(LargeCorrected):
    """The expansion under a sparse prior, with pairs of neighbouring sites."""

    method = "neighbours"

    def _count(self) -> None:
        self._near = neighbours(self._correlations, self._c)
        self._pairs = Pairs(self._near.total, self._near.error)
        self.pairs = self._near.total
        self._triples = patch_triples(self._correlations, self._c)

    def _of_sites(self) -> np.ndarray:
        return self._near.of_sites

    @cached_property
    def _latents(self) -> MarginalGrid:
        """Marginals of the latents; a latent that is the only one of a site has the marginal of that site."""
        post = self._posterior
        mean, variance = (to_numpy(v) for v in (post.latent_mean, post.latent_variance))
        log_p = self._summed(self._near.of_latents)
        W = self._correlations.covariances.design
        alone = np.flatnonzero(np.diff(W.indptr) == 1)
        entry = W.indptr[alone]
        of_sites = self._summed(self._near.of_sites[alone], self._own(alone))
        turned = W.data[entry] < 0.0
        of_sites[turned] = of_sites[turned, ::-1]
        log_p[W.indices[entry]] = of_sites
        return MarginalGrid(mean, np.sqrt(variance), self._x, log_p)


class TallCorrected(LargeCorrected):
    """The expansion under few features, with a sample of sites paired with all others in passes over the rows."""

    method = "drawn sites"

    def _count(self) -> None:
        rng, c = np.random.default_rng(0), self._c
        size = np.sqrt(np.sum(c[:, 1:] ** 2, axis=1)) + 1e-300
        probability = 0.9 * size / size.sum() + 0.1 / size.size
        seeds = rng.choice(size.size, _DRAWN, p=probability)
        weight = 1.0 / (_DRAWN * probability[seeds])
        order = max(TERMS - 1, int(np.flatnonzero(np.abs(c).max(axis=0) > 1e-6).max()))
        each, self._sums_of_sites = np.zeros(_DRAWN), np.zeros((self.n_sites, TERMS))
        for which, R in self._with_all(seeds):
            own = seeds[None, :] == np.arange(which.start, min(which.stop, self.n_sites))[:, None]
            u, p = np.zeros_like(R), np.where(own, 0.0, 1.0)
            for k in range(1, order + 1):
                p *= R
                if k < TERMS:
                    self._sums_of_sites[which, k] = p @ (weight * c[seeds, k])
                u += p * c[which, k, None] * c[seeds, k]
            each += np.log1p(np.maximum(u, -0.9)).sum(axis=0)
        totals = 0.5 * each / probability[seeds]
        self.pairs = float(totals.mean())
        self._pairs = Pairs(self.pairs, float(totals.std(ddof=1)) / np.sqrt(_DRAWN))
        self._triples = self._scaled_triples()

    def _with_all(
        self, seeds: np.ndarray, others: np.ndarray | slice = slice(None)
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the correlations (M, S) of sites with the sampled ones, some sites at a time."""
        covariances, scale = self._correlations.covariances, self._correlations.scale
        V = covariances.by_weights(seeds) * scale[seeds]
        rows = np.arange(self.n_sites)[others]
        for i in range(0, rows.size, _AT_ONCE):
            which = slice(i, i + _AT_ONCE)
            R = covariances.from_weights(rows[which], V) * scale[rows[which], None]
            yield which, np.clip(R, -1.0, 1.0)

    def _scaled_triples(self) -> float:
        """The contribution of triples, extrapolated from the triples among some sites."""
        few = min(_AMONG, self.n_sites)
        some = np.random.default_rng(1).choice(self.n_sites, few, replace=False)
        R = next(self._with_all(some, some))[1]
        return triples_among(self._c[some], R) * (self.n_sites / few) ** 3

    def _of_sites(self) -> np.ndarray:
        return self._sums_of_sites

    @cached_property
    def _latents(self) -> MarginalGrid:
        mean, variance = (to_numpy(v) for v in (self._posterior.latent_mean, self._posterior.latent_variance))
        units = np.eye(mean.size)
        A = self._sums(lambda rows: as_design(units[rows], self._like), variance)
        return MarginalGrid(mean, np.sqrt(variance), self._x, self._summed(A))
