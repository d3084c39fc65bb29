"""The posterior and the evidence beyond the Gaussian q: what ``Solution.corrected`` returns."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..criteria import leave_one_out as gaussian
from ..files import Stored
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, to_numpy
from ..priors.base import NewRows
from ..priors.sparse import SparseFactor
from ..priors.weightspace import WeightsFactor
from .clusters import Pairs, jointly, log_densities, pairs_of
from .correlations import Correlations
from .grids import Grid, GridAnswers, GridMarginals
from .loo import CorrectedLeaveOneOut, leave_one_out
from .merging import Groups, groups_of
from .predictive import Predictive
from .sites import Fit, Observed, Sites, sites_of
from .triples import ROUGH, WORK, triples_of

if TYPE_CHECKING:
    from .importance import ImportanceSample

_FEW = 3  # sites up to which the expectation is integrated as it stands
_SPARSE = 2000  # sites of a sparse prior above which pairs are those of neighbours
_TALL = 10_000  # sites of few features above which pairs are averages over draws
_DRAWN = 3000  # sites up to which draws are tried where the expansion does not hold
_COUPLED, _MANY, _NEAR = (
    0.03,
    1000,
    0.1,
)  # nats of triples, of up to so many sites; sds of q by which means, and logs by which sds, may move beside more
_MOVED = (
    "marginals move far from q's where observations hang together, and may be off: "
    'compare importance(), and start from bound="exact" if q is of another'
)
_LARGE, _SHARE = 0.5, 0.05  # nats, and of own terms and pairs: an error above both is not to be trusted


class Corrected(Stored, GridAnswers):
    """The posterior with each likelihood as it is, to second order in what q's Gaussian sites leave of it.

    Quantiles, probabilities and densities are those of eta at the observations; ``latents()`` and ``at(...)`` have the
    same of z and of new rows. It is no bound: ``Solution.elbo`` remains the one that is certified.

    Attributes
    ----------
    log_evidence : float
        elbo + own + pairs: an estimate of log p(y).
    log_evidence_se : float
        How far it may be off: an estimate of what is left out.
    elbo, own, pairs : float
        Its parts: q's own, each observation by itself, pairs of observations.
    n_sites : int
        Observations after those along one line of the latents have been merged.
    trusted : bool
        Of the evidence; ``marginals_trusted`` is that of means, sds and quantiles.
    status : str
        Why it is trusted, or why not, as a sentence.

    Examples
    --------
    One coin under a wide prior: the evidence is one half, and the posterior leans to one side.

    >>> import numpy as np, fenchel
    >>> from fenchel.likelihoods import BernoulliLogit
    >>> from fenchel.priors import DenseCovariance
    >>> sol = fenchel.infer(BernoulliLogit("exact"), DenseCovariance([[25.0]]), [1])
    >>> found = sol.corrected()
    >>> np.exp([sol.elbo, found.log_evidence]).round(3).tolist()
    [0.484, 0.5]
    >>> found.skewness.round(2).tolist()
    [0.63]
    """

    method = "clusters"
    _work = WORK  # of the estimate of its error

    def __init__(self, solution: Fit, groups: Groups) -> None:
        self._posterior, self._fit = solution.posterior, solution
        self.elbo, self.n_sites = solution.elbo, groups.n
        self._prepare(observations(solution), groups)
        self._count()

    def _prepare(self, observed: Observed, groups: Groups) -> None:
        """The sites, and their own terms."""
        self._sites: Sites = sites_of(observed, groups)
        self._correlations = Correlations(self._posterior, groups)
        self.own, self._settled = float(self._sites.log_z.sum()), self._sites.settled

    def _count(self) -> None:
        """Pairs, all of them; two or three sites are integrated as they stand."""
        if 1 < self.n_sites <= _FEW and not self._correlations.in_blocks:
            (_, _, R), *_ = self._correlations.between()
            total = jointly(self._sites, R) - self.own
            self._pairs = Pairs(total, 0.0, 0, float(np.exp(min(total, 0.0))))
        else:
            self._pairs = pairs_of(self._sites, self._correlations)
        self.pairs = self._pairs.total

    @property
    def log_evidence(self) -> float:
        return self.elbo + self.own + self.pairs

    @property
    def log_evidence_se(self) -> float:
        return self._triples + self._pairs.left_out

    @cached_property
    def _triples(self) -> float:
        return 0.0 if self.n_sites <= _FEW else triples_of(self._sites, self._correlations, self._work)

    @property
    def trusted(self) -> bool:
        return self._doubt is None

    @property
    def status(self) -> str:
        if self._doubt is not None:
            return self._doubt
        return "the terms of the expansion die out" + ("" if self.marginals_trusted else f"; {_MOVED}")

    @cached_property
    def marginals_trusted(self) -> bool:
        """Whether the marginals may be believed as the evidence is.

        They leave out how the other observations hang together given one unknown. Where three observations together
        count for little, or no eta moves far from q's, that is small; elsewhere standard deviations can be far off
        with an evidence that is nearly right.
        """
        if not self.trusted:
            return False
        if self.n_sites <= _FEW or self.log_evidence_se <= _COUPLED * max(1.0, self.n_sites / _MANY):
            return True  # triples add up over sites, a marginal sees those near it
        grid = self._grid
        moved = np.maximum(np.abs(grid.first), np.abs(0.5 * np.log(np.maximum(grid.central(2), 1e-300))))
        return bool(np.max(moved[grid.scale > 0.0], initial=0.0) <= _NEAR)

    @cached_property
    def _doubt(self) -> str | None:
        pairs = self._pairs
        if not self._settled:
            return "a likelihood bends too sharply, or reaches too far, for the grid of its quadrature"
        if pairs.smallest <= 0.0:
            return f"a pair of observations has 1 + u = {pairs.smallest:.2g}, which is not positive"
        if self.log_evidence_se > max(_LARGE, _SHARE * (abs(self.own) + abs(self.pairs))):
            return f"observations taken three at a time may count for {self.log_evidence_se:.2g} nats"
        return None

    # -- marginals ---------------------------------------------------------------------------------
    @cached_property
    def _grid(self) -> Grid:
        """The marginals of eta: those of the sites, given to their rows, and of rows without a site."""
        post, sites = self._posterior, self._sites
        h, rho = (to_numpy(v)[:, 0] for v in post._marginals)
        x, log_p = log_densities(sites, self._correlations.between(), self.n_sites)
        out = np.empty((h.size, x.size))
        mine = log_p[sites.groups.of]
        out[post._active] = np.where(sites.groups.sign[:, None] > 0.0, mine, mine[:, ::-1])
        rest = np.setdiff1d(np.arange(h.size), post._active)
        if rest.size:
            blocks = self._correlations.with_rest(rest, rho[rest])
            out[rest] = log_densities(sites, blocks, rest.size)[1]
        return Grid(h, np.sqrt(rho), x, out)

    @property
    def _like(self) -> Array:
        return self._posterior.mean

    def latents(self) -> GridMarginals:
        """The marginals of z."""
        return GridMarginals(self._latents, self._like)

    @cached_property
    def _latents(self) -> Grid:
        mean, variance = (to_numpy(v) for v in (self._posterior.latent_mean, self._posterior.latent_variance))
        x, log_p = log_densities(self._sites, self._correlations.with_latents(), mean.size)
        return Grid(mean, np.sqrt(variance), x, log_p)

    def at(
        self,
        *,
        design: Any = None,
        cross: ArrayLike | None = None,
        variance: ArrayLike | None = None,
        mean: ArrayLike | None = None,
        offset: ArrayLike = 0.0,
        extra_variance: ArrayLike = 0.0,
    ) -> GridMarginals:
        """The marginals of eta at new rows, which are given as in ``Posterior.predict``."""
        new = NewRows(design, cross, variance, mean, offset, extra_variance)
        centre, spread = (to_numpy(v)[:, 0] for v in self._posterior._predict(new))
        x, log_p = self._densities_at(new, spread)
        return GridMarginals(Grid(centre, np.sqrt(spread), x, log_p), self._like)

    def _densities_at(self, new: NewRows, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x, and the log densities of new rows there (M, x.size)."""
        return log_densities(self._sites, iter([self._correlations.with_new(new, spread)]), spread.size)

    def predictive(self, likelihood: Likelihood | None = None) -> Predictive:
        """y at the observations: means, probabilities, quantiles, densities; ``at(...).predictive`` at new rows."""
        return Predictive(self._fit.likelihood if likelihood is None else likelihood, self)

    def predict(self, **where: Any) -> tuple[Array, Array]:
        """Mean and variance of eta at new rows, given as in ``at``."""
        there = self.at(**where)
        return there.mean, there.variance

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta (size, N): those of q, each coordinate moved to its corrected marginal."""
        return asarray(_moved(self._grid, to_numpy(self._posterior.sample(size, rng))), self._like)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of z (size, L), in the same way."""
        return asarray(_moved(self._latents, to_numpy(self._posterior.sample_latents(size, rng))), self._like)

    def loo(self) -> CorrectedLeaveOneOut:
        """Leave-one-out densities (CPO) and probabilities (PIT), from these marginals; nothing is refitted."""
        fit = self._fit
        rows = {key: to_numpy(value) for key, value in fit._rows.items()}
        plain = gaussian(fit.likelihood, fit.posterior, fit.y)
        return leave_one_out(fit.likelihood, rows, counted(fit), fit.y, self._grid, plain)

    def __repr__(self) -> str:
        word = "" if self.trusted else ", not to be trusted"
        return f"Corrected(log_evidence={self.log_evidence:.4f}, error about {self.log_evidence_se:.1g}{word})"


def correct(solution: Fit, rough: bool = False) -> Corrected | ImportanceSample:
    """The corrected posterior of a fit; where the expansion does not reach, an importance sample, which says so.

    ``rough``: its error from some triples of sites, enough to tell whether to trust it.
    """
    from .importance import importance

    predictors = solution.posterior._all
    if predictors.n_predictors > 1:
        return importance(solution).instead_of(f"{solution.likelihood.name} has several predictors an observation")
    if not isinstance(predictors.extra_variance, float):
        return importance(solution).instead_of("the prior has an extra variance")
    found = _sized(solution, groups_of(solution.posterior._factor.predictors))
    found._work = ROUGH if rough else WORK
    if found.trusted or found.n_sites > _DRAWN:
        return found
    drawn = importance(solution).instead_of(found.status)
    return drawn if drawn.trusted else found


def _sized(solution: Fit, groups: Groups) -> Corrected:
    """By all pairs, or as very many sites allow."""
    from .large import LocalCorrected, TallCorrected

    factor = solution.posterior._factor
    if isinstance(factor, SparseFactor) and groups.n > _SPARSE:
        return LocalCorrected(solution, groups)
    if isinstance(factor, WeightsFactor) and groups.n > _TALL:
        return TallCorrected(solution, groups)
    return Corrected(solution, groups)


def observations(solution: Fit) -> Observed:
    """The active rows of a fit with one predictor each."""
    post = solution.posterior
    active = post._active
    h, rho = (to_numpy(v)[:, 0] for v in post._active_marginals)
    rows = {key: to_numpy(value)[active] for key, value in solution._rows.items()}
    alpha, lam = (to_numpy(v)[active, 0] for v in (post._alpha, post._lam))
    return Observed(solution.likelihood, rows, counted(solution)[active], h, rho, alpha, lam)


def counted(solution: Fit) -> np.ndarray:
    """How often each observation counts (N,): its weight but for the likelihood's own, such as a number of trials."""
    own = to_numpy(solution.likelihood.prepare(solution.y)["weight"])
    return np.asarray(to_numpy(solution._rows["weight"]) / np.where(own > 0.0, own, 1.0))


def _moved(grid: Grid, draws: np.ndarray) -> np.ndarray:
    """Draws of q (S, T) at the same probabilities of the marginals on a grid."""
    from scipy.special import ndtr

    scale = np.where(grid.scale > 0.0, grid.scale, 1.0)
    level = ndtr((draws - grid.centre) / scale)
    return np.asarray(grid.centre + grid.scale * grid.places(level.T).T)
