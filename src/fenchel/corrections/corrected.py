"""The posterior and the evidence beyond the Gaussian q: what ``Solution.corrected`` returns."""

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

_HELD = 3000  # sites whose correlations are held at once
_PAIRS_SUFFICE = 0.01  # nats of triples up to which clusters would add nothing that counts
_COUPLED = 0.03  # nats of triples up to which marginals are trusted as the evidence is,
_MANY = 1000  # sites that may have as much; more sites may have more in proportion
_NEAR = 0.1  # sds of q by which means, and logs by which sds, may move where triples count for more
_MOVED = (
    "marginals move far from q's where observations hang together, and may be off: "
    'compare importance(), and start from bound="exact" if q is of another'
)
_SMALL = 0.03  # nats: with such an error whichever is cheaper, groups or an expansion, is taken alone,
_SMALL_BETWEEN = 0.1  # and with such a one where differences between theta are wanted, which have far less of it
_FEW_ROWS = 200  # up to which both are computed, where
_TELLING = 0.002  # nats is less than the error of groups,
_CLEARLY = 0.5  # and the expansion is taken with less than so much of that error
_LARGE = 0.25  # nats, and
_SHARE = 0.05  # of own terms and pairs: an error above both is not to be trusted
_WITHIN = 0.25  # of what clusters say beyond their pairs that may be wrong: benchmarks/correction_errors.py


class Corrected(Stored, PosteriorOnGrids):
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
    nearer : bool
        Whether it is nearer to log p(y) than the elbo, by its own error; True where it is trusted.
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
    methods = "clusters", "free levels", "neighbours", "drawn sites"  # beside groups that are integrated out
    _exact: LowRank | None = None
    _clusters: ClusterTerms | None = None
    _triples: float  # nats that may be left out

    def __init__(self, solution: GaussianFit, groups: Lines, rough: bool = False) -> None:
        self._posterior, self._fit = solution.posterior, solution
        self.elbo, self.n_sites, self._work = solution.elbo, groups.n, ROUGH if rough else WORK
        self._prepare(observations(solution), groups)
        self._count()

    def _prepare(self, observed: Observed, groups: Lines) -> None:
        """The sites, and their own terms."""
        self._sites: Sites = sites_of(observed, groups)
        self._correlations = Correlations(self._posterior, groups)
        self.own, self._settled = float(self._sites.log_z.sum()), self._sites.settled

    def _count(self) -> None:
        """Few directions as they stand, and free levels; else pairs, with clusters where three sites together count."""
        self._exact = low_rank(self._sites, self._correlations)
        if self._exact is None:
            self._exact = free_levels(self._fit, self._correlations, self.own)
            self.method = "clusters" if self._exact is None else "free levels"
        if self._exact is not None:
            self._pairs, self._triples = Pairs(self._exact.total, self._exact.error), 0.0
            self.pairs = self._pairs.total
            return
        with self._correlations.held(_HELD) as R:
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
        """What clusters add to the pairs between them, and the error with them."""
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
        """Whether it is nearer to log p(y) than the elbo is, by its own error."""
        return self.trusted or (self._holds is None and self.own + self.pairs > 2.0 * self.log_evidence_se)

    @cached_property
    def marginals_trusted(self) -> bool:
        """Whether the marginals may be believed as the evidence is.

        They leave out how the other observations hang together given one unknown. Where three observations together
        count for little, or no eta moves far from q's, that is small; elsewhere standard deviations can be far off
        with an evidence that is nearly right.
        """
        if not self.trusted:
            return False
        if self._exact is not None or self.log_evidence_se <= _COUPLED * max(1.0, self.n_sites / _MANY):
            return True  # triples add up over sites, a marginal sees those near it
        grid = self._grid
        moved = np.maximum(np.abs(grid.first), np.abs(0.5 * np.log(np.maximum(grid.central(2), 1e-300))))
        return bool(np.max(moved[grid.scale > 0.0], initial=0.0) <= _NEAR)

    @property
    def _holds(self) -> str | None:
        """Why the expansion is none; None where it is one."""
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
            return f"observations that hang together may count for {self.log_evidence_se:.2g} nats more or less"
        return None

    # -- marginals ---------------------------------------------------------------------------------
    @property
    def _finish(self) -> Finish | None:
        """What clusters and few directions change of a product over sites."""
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
        """The marginals of eta: those of the sites, given to their rows, and of rows without a site."""
        post, sites = self._posterior, self._sites
        h, rho = (to_numpy(v)[:, 0] for v in post.moments)
        x, log_p = log_densities(sites, self._correlations.between(), self.n_sites, self._finish)
        out = np.empty((h.size, x.size))
        mine = log_p[sites.groups.of]
        out[post.active] = np.where(sites.groups.sign[:, None] > 0.0, mine, mine[:, ::-1])
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
        """x, and the log densities there (T, x.size) of unknowns by their correlations with the sites (T, n)."""
        whole = (np.arange(R.shape[0]), R)
        return log_densities(self._sites, [whole], R.shape[0], self._finish)

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta (size, N): those of q, each coordinate moved to its corrected marginal."""
        return asarray(_moved(self._grid, to_numpy(self._posterior.sample(size, rng))), self._like)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of z (size, L), in the same way."""
        return asarray(_moved(self._latents, to_numpy(self._posterior.sample_latents(size, rng))), self._like)

    def __repr__(self) -> str:
        word = "" if self.trusted else ", not to be trusted"
        return f"Corrected(log_evidence={self.log_evidence:.4f}, error about {self.log_evidence_se:.1g}{word})"


def correct(
    solution: GaussianFit, rough: bool = False, like: Like | None = None
) -> Corrected | Collapsed | Interpolated | ImportanceSample:
    """The corrected posterior of a fit: groups integrated out where it has some, or an expansion about q.

    Whichever is cheaper comes first; in a small table it is the one with the smaller error. Where neither reaches it is
    an importance sample, which says so.

    ``rough``: one of several theta, its error from some triples of sites, enough to tell whether to trust it.
    ``like``: that of the correction at a theta nearby, whose method is taken here too if it is to be trusted: between
    two methods their errors would pass for a slope.
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
            advice = "The Gaussian is what there is: accuracy='fast'."
            raise problem("corrected", got, f"at most {gates.DRAWN_SITES}, which are corrected by draws", advice)
        return importance(solution).instead_of("the prior has an extra variance")
    if solution.likelihood.objective.conjugate:
        return Interpolated(solution)  # q is the posterior
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
    found = _sized(solution, solution.posterior.factor.predictors.lines(), rough)
    if groups is not None and good:
        better = found.trusted and found.log_evidence_se < _CLEARLY * groups.log_evidence_se
        return found if better else groups
    if found.trusted and (expands or found.log_evidence_se <= small):
        return found
    groups = collapse(solution)
    if groups is not None and groups.trusted and not (found.trusted and found.log_evidence_se < groups.log_evidence_se):
        return groups
    if found.trusted or found.n_sites > gates.DRAWN_SITES:
        return found
    drawn = importance(solution).instead_of(found.status)
    return drawn if drawn.trusted else found


def _sized(solution: GaussianFit, groups: Lines, rough: bool) -> Corrected:
    """By all pairs, or as very many sites allow."""
    from .large import LocalCorrected, TallCorrected

    covariances = solution.posterior.factor.covariances
    drawn = groups.n <= gates.DRAWN_SITES and levels_of(solution) is not None
    if covariances.sparse and groups.n > gates.NEIGHBOUR_PAIRS and not drawn:
        return LocalCorrected(solution, groups, rough)
    if covariances.low_rank and groups.n > gates.AVERAGED_PAIRS:
        return TallCorrected(solution, groups, rough)
    return Corrected(solution, groups, rough)


def _moved(grid: MarginalGrid, draws: np.ndarray) -> np.ndarray:
    """Draws of q (S, T) at the same probabilities of the marginals on a grid."""
    from scipy.special import ndtr

    scale = np.where(grid.scale > 0.0, grid.scale, 1.0)
    level = ndtr((draws - grid.centre) / scale)
    return np.asarray(grid.centre + grid.scale * grid.places(level.T).T)
