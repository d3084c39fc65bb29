"""The corrected posterior and evidence, beyond the Gaussian q: the result of ``Solution.corrected``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .. import gates
from ..checks import problem
from ..files import Stored
from ..linalg.arrays import Array, Seed, asarray, to_numpy
from ..priors.base import NewRows
from ..priors.row_covariances import Lines
from .clusters import ClusterTerms, cluster_terms, clusters_of, labels_of
from .free_levels import free_levels, levels_of
from .grids import GridMarginals, MarginalGrid, with_moments
from .low_rank import LowRank, low_rank
from .pairs import ROUGH, WORK, Finish, Pairs, log_densities, pairs_of, triples_of
from .posterior_on_grids import Like, PosteriorOnGrids
from .sites import Correlations, GaussianFit, Observed, Sites, contradicted, observations, sites_of

if TYPE_CHECKING:
    from .collapsed import Collapsed
    from .importance import ImportanceSample
    from .interpolated import Interpolated

_DENSE_SITES = 3000  # number of sites up to which the whole matrix of their correlations is stored
_PAIRS_SUFFICE = 0.01  # nats: if triples contribute less, clusters are not computed
_COUPLED = 0.03  # nats: if triples contribute less, marginals are trusted whenever the evidence is;
_COUPLED_SITES = 1000  # this holds up to so many sites, and the limit grows in proportion beyond
_SMALL_MOVE = 0.1  # largest change of means (in sds of q) and of log sds that is trusted with larger triples
_MOVED = (
    "marginals differ much from those of q, and observations depend on each other, so they may be inaccurate: "
    'compare importance(), and use bound="exact" if q was fitted under another bound'
)
_SMALL = 0.03  # nats: with a smaller error the cheaper method, groups or expansion, is used without the other
_SMALL_BETWEEN = 0.1  # the same if only differences between theta matter, because most of the error cancels
_FEW_ROWS = 200  # up to so many rows both methods are computed,
_TELLING = 0.002  # if the error of the groups is larger than this (nats);
_CLEARLY = 0.5  # the expansion is then used if its error is less than this share of the error of the groups
_LARGE = 0.25  # nats: an error above this,
_SHARE = 0.05  # and above this share of own terms and pairs, is not trusted
_WITHIN = 0.25  # error of the clusters' contribution beyond pairs, relative to it: benchmarks/correction_errors.py


class Corrected(Stored, PosteriorOnGrids):
    """The posterior under the exact likelihood, by an expansion about q to second order.

    The expansion is in the difference between each log-likelihood and the Gaussian site of q. Moments, quantiles,
    probabilities and densities are those of eta at the observations; ``latents()`` answers for z and ``at(...)`` for
    new rows. ``log_evidence`` is an estimate and not a bound; ``Solution.elbo`` is the certified bound.

    Attributes
    ----------
    log_evidence : float
        Estimate of log p(y), in nats: elbo + own + pairs.
    log_evidence_se : float
        Estimate of its error: the size of the terms that are left out.
    elbo, own, pairs : float
        Its parts: the bound of q, the terms of single observations, and those of pairs of observations.
    n_sites : int
        Number of sites. Observations that see the latents along the same line are merged into one site.
    trusted : bool
        Whether the evidence is reliable; ``marginals_trusted`` says it of means, sds and quantiles.
    nearer : bool
        Whether the estimate is closer to log p(y) than the elbo, judged by its error; True if it is trusted.
    status : str
        A sentence that says why the evidence is trusted or not.

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
    methods = "clusters", "free levels", "neighbours", "drawn sites"  # all methods except integration over groups
    _exact: LowRank | None = None
    _clusters: ClusterTerms | None = None
    _triples: float  # estimated error in nats

    def __init__(self, solution: GaussianFit, groups: Lines, rough: bool = False) -> None:
        self._posterior, self._fit = solution.posterior, solution
        self.elbo, self.n_sites, self._work = solution.elbo, groups.n, ROUGH if rough else WORK
        self._prepare(observations(solution), groups)
        self._count()

    def _prepare(self, observed: Observed, groups: Lines) -> None:
        """Compute the sites and their own terms."""
        self._sites: Sites = sites_of(observed, groups)
        self._correlations = Correlations(self._posterior, groups)
        self.own, self._settled = float(self._sites.log_z.sum()), self._sites.settled

    def _count(self) -> None:
        """Compute the terms beyond single sites.

        Sites with few directions, and free levels, are integrated directly. Otherwise pairs are summed, and
        clusters too if triples of sites matter.
        """
        self._exact = low_rank(self._sites, self._correlations)
        if self._exact is None:
            self._exact = free_levels(self._fit, self._correlations, self.own)
            self.method = "clusters" if self._exact is None else "free levels"
        if self._exact is not None:
            self._pairs, self._triples = Pairs(self._exact.total, self._exact.error), 0.0
            self.pairs = self._pairs.total
            return
        with self._correlations.held(_DENSE_SITES) as R:
            triples = triples_of(self._sites, self._correlations, self._work)
            suffice = triples.orders <= _PAIRS_SUFFICE
            clusters = [] if R is None or suffice else clusters_of(R)
            label = labels_of(clusters, self.n_sites) if clusters else None
            self._triples = triples.orders if suffice else triples.total
            self._pairs = pairs_of(self._sites, self._correlations, label)
            self.pairs = self._pairs.total
            if R is not None and label is not None:
                self._count_clusters(cluster_terms(self._sites, clusters, label), R)

    def _count_clusters(self, clusters: ClusterTerms, R: np.ndarray) -> None:
        """Add the contribution of clusters to the pairs, and update the error."""
        between, chains = clusters.between(R)
        self._clusters, gained = clusters, clusters.total - clusters.pairs
        self.pairs += clusters.total + between
        outside = triples_of(self._sites, self._correlations, self._work, clusters.label).total
        self._triples = outside + _WITHIN * abs(gained) + abs(between) + abs(chains)

    @property
    def log_evidence(self) -> float:
        return self.elbo + self.own + self.pairs

    @property
    def log_evidence_se(self) -> float:
        return self._triples + self._pairs.left_out

    @property
    def trusted(self) -> bool:
        return self._doubt is None and contradicted(self._fit, self.log_evidence, self.log_evidence_se) is None

    @property
    def status(self) -> str:
        doubt = self._doubt or contradicted(self._fit, self.log_evidence, self.log_evidence_se)
        if doubt is not None:
            return doubt
        if self.method == "free levels":
            return "a free level for each interval is integrated out, the other latents by draws"
        return "the terms of the expansion die out" + ("" if self.marginals_trusted else f"; {_MOVED}")

    @property
    def nearer(self) -> bool:
        """Whether ``log_evidence`` is closer to log p(y) than the elbo is, judged by its error."""
        return self.trusted or (self._holds is None and self.own + self.pairs > 2.0 * self.log_evidence_se)

    @cached_property
    def marginals_trusted(self) -> bool:
        """Whether the marginals are as reliable as the evidence.

        They ignore the dependence of the other observations on each other given one unknown. The effect is small if
        triples of observations contribute little, or if no marginal of eta moves far from that of q. Otherwise
        standard deviations can be far off even if the evidence is nearly right.
        """
        if not self.trusted:
            return False
        if self._exact is not None or self.log_evidence_se <= _COUPLED * max(1.0, self.n_sites / _COUPLED_SITES):
            return True  # triples add up over all sites, but a marginal is affected only by the sites near it
        grid = self._grid
        moved = np.maximum(np.abs(grid.first), np.abs(0.5 * np.log(np.maximum(grid.central(2), 1e-300))))
        return bool(np.max(moved[grid.scale > 0.0], initial=0.0) <= _SMALL_MOVE)

    @property
    def _holds(self) -> str | None:
        """Why the expansion is not valid; None if it is."""
        pairs = self._pairs
        if not self._settled:
            return "a likelihood bends too sharply, or reaches too far, for the grid of its quadrature"
        if pairs.smallest <= 0.0:
            return f"a pair of observations has 1 + u = {pairs.smallest:.2g}, which is not positive"
        return None

    @cached_property
    def _doubt(self) -> str | None:
        if self._holds is not None:
            return self._holds
        if self.log_evidence_se > max(_LARGE, _SHARE * (abs(self.own) + abs(self.pairs))):
            return f"the dependence between rows may shift the log evidence by {self.log_evidence_se:.2g} nats"
        return None

    # -- marginals ---------------------------------------------------------------------------------
    @property
    def _finish(self) -> Finish | None:
        """The change that clusters or an exact integral make to the product over sites; None without them."""
        exact, clusters = self._exact, self._clusters

        def finish(R: np.ndarray, x: np.ndarray, log_p: np.ndarray) -> np.ndarray:
            if exact is not None:
                return with_moments(x, log_p, *exact.moments(R))
            assert clusters is not None
            first, second = clusters.bends(R)
            return log_p + first[:, None] * x + 0.5 * second[:, None] * (x * x - 1.0)

        return None if exact is None and clusters is None else finish

    @cached_property
    def _grid(self) -> MarginalGrid:
        """The marginals of eta at all rows: each row has that of its site; rows without a site are added."""
        post, sites = self._posterior, self._sites
        h, rho = (to_numpy(v)[:, 0] for v in post.moments)
        x, log_p = log_densities(sites, self._correlations.between(), self.n_sites, self._finish)
        out = np.empty((h.size, x.size))
        of_rows = log_p[sites.groups.of]
        out[post.active] = np.where(sites.groups.sign[:, None] > 0.0, of_rows, of_rows[:, ::-1])
        rest = np.setdiff1d(np.arange(h.size), post.active)
        if rest.size:
            out[rest] = self._densities(self._correlations.with_rest(rest, rho[rest]))[1]
        return MarginalGrid(h, np.sqrt(rho), x, out)

    @cached_property
    def _latents(self) -> MarginalGrid:
        mean, variance = (to_numpy(v) for v in (self._posterior.latent_mean, self._posterior.latent_variance))
        return MarginalGrid(mean, np.sqrt(variance), *self._densities(self._correlations.with_latents()))

    def marginals_at(self, new: NewRows) -> GridMarginals:
        """The marginals of eta at new rows."""
        centre, spread = (to_numpy(v)[:, 0] for v in self._posterior.moments_at(new))
        densities = self._densities(self._correlations.with_new(new, spread))
        return GridMarginals(MarginalGrid(centre, np.sqrt(spread), *densities), self._like)

    def _densities(self, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The grid x and log densities (T, x.size) of unknowns that have correlations R (T, n) with the sites."""
        whole = (np.arange(R.shape[0]), R)
        return log_densities(self._sites, [whole], R.shape[0], self._finish)

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta (size, N): draws of q, each coordinate transformed to its corrected marginal."""
        return asarray(_moved(self._grid, to_numpy(self._posterior.sample(size, rng))), self._like)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of z (size, L), made like those of ``sample``."""
        return asarray(_moved(self._latents, to_numpy(self._posterior.sample_latents(size, rng))), self._like)

    def sample_some(self, some: np.ndarray, size: int = 1, rng: Seed = None) -> np.ndarray:
        """Joint draws of the latents ``some``: only these are transformed."""
        return _moved(self._latents.take(some), self._posterior.sample_some(some, size, rng))

    def __repr__(self) -> str:
        word = "" if self.trusted else ", not to be trusted"
        return f"Corrected(log_evidence={self.log_evidence:.4f}, error about {self.log_evidence_se:.1g}{word})"


def correct(
    solution: GaussianFit, rough: bool = False, like: Like | None = None
) -> Corrected | Collapsed | Interpolated | ImportanceSample:
    """The corrected posterior of a fit, by integration over groups or by an expansion about q.

    The cheaper method is tried first; with few rows the one with the smaller error is used. If neither can be
    trusted, importance sampling is used, and the status says so.

    ``rough``: for one of several theta. The error is estimated from a part of the triples of sites, which is enough
    to decide whether to trust it.
    ``like``: method and sizes of the correction at a nearby theta. The same method is used here if it can be trusted,
    because the difference between the errors of two methods would look like a slope in theta.
    """
    from .collapsed import MOST, Collapsed, collapse
    from .importance import importance
    from .interpolated import Interpolated

    predictors = solution.posterior.predictors
    if predictors.n_predictors > 1:
        return importance(solution).instead_of(f"{solution.likelihood.name} has several predictors an observation")
    if predictors.has_extra_variance:
        if predictors.n_observations > gates.DRAWN_SITES:
            got = f"the prior has an extra variance (inducing points) and {predictors.n_observations} rows"
            advice = "Use the Gaussian posterior instead: accuracy='fast'."
            raise problem("corrected", got, f"at most {gates.DRAWN_SITES}, which are corrected by draws", advice)
        return importance(solution).instead_of("the prior has an extra variance")
    if solution.likelihood.objective.conjugate:
        return Interpolated(solution)  # a conjugate likelihood: q is the posterior
    small = _SMALL_BETWEEN if rough else _SMALL
    method, sizes = (None, None) if like is None else like
    expands, collapses = method in Corrected.methods, method == Collapsed.method
    work, rest = (np.inf, MOST) if collapses else gates.COLLAPSED_FIRST
    groups = None if expands else collapse(solution, work, rest, sizes)
    good = groups is not None and groups.trusted and (collapses or groups.log_evidence_se <= _SMALL)
    if groups is not None and good:
        few = solution.posterior.active.size <= _FEW_ROWS
        if collapses or not few or groups.log_evidence_se <= _TELLING:
            return groups
    expansion = _expansion(solution, solution.posterior.factor.predictors.lines(), rough)
    if groups is not None and good:
        better = expansion.trusted and expansion.log_evidence_se < _CLEARLY * groups.log_evidence_se
        return expansion if better else groups
    if expansion.trusted and (expands or expansion.log_evidence_se <= small):
        return expansion
    groups = collapse(solution)
    if (
        groups is not None
        and groups.trusted
        and not (expansion.trusted and expansion.log_evidence_se < groups.log_evidence_se)
    ):
        return groups
    if expansion.trusted or expansion.n_sites > gates.DRAWN_SITES:
        return expansion
    drawn = importance(solution).instead_of(expansion.status)
    return drawn if drawn.trusted else expansion


def _expansion(solution: GaussianFit, groups: Lines, rough: bool) -> Corrected:
    """The expansion by all pairs of sites, or for very many sites by neighbours or by drawn sites."""
    from .large import LocalCorrected, TallCorrected

    covariances = solution.posterior.factor.covariances
    drawn = groups.n <= gates.DRAWN_SITES and levels_of(solution) is not None
    if covariances.sparse and groups.n > gates.NEIGHBOUR_PAIRS and not drawn:
        return LocalCorrected(solution, groups, rough)
    if covariances.low_rank and groups.n > gates.AVERAGED_PAIRS:
        return TallCorrected(solution, groups, rough)
    return Corrected(solution, groups, rough)


def _moved(grid: MarginalGrid, draws: np.ndarray) -> np.ndarray:
    """Draws of q (S, T), transformed to the quantiles of the same probabilities of marginals on a grid."""
    from scipy.special import ndtr

    scale = np.where(grid.scale > 0.0, grid.scale, 1.0)
    level = ndtr((draws - grid.centre) / scale)
    return np.asarray(grid.centre + grid.scale * grid.places(level.T).T)
