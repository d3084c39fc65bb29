"""Linear models whose weights have learned variances: eta = W z, z_l ~ N(mean_l, v_{g(l)}), theta = log v.

    d elbo / d theta_g = 1/2 sum over the weights l of group g of ((m_l - mean_l)^2 + V_ll) / v_g - 1

One group is ridge regression with a learned strength; a group for each weight is automatic relevance determination
(``learn_relevance``). A weight in no group (-1) keeps its variance: an intercept.

In automatic relevance determination the log variances have a level and a width, both learned:

    theta_d = log v_d ~ N(level, width^2)       width -> 0 is ridge: one variance for all;  width -> oo is flat theta
    log p(y | width) ~= elbo(theta) + sum_d log integral of exp(along_d(t)) N(t; level, width^2) dt    at the best theta

Flat theta is the textbook's, and overfits: a few weights that separate the training rows buy evidence, and nothing is
charged for having chosen them among many (100 rows, 30 features that all matter: 9 nats gained, test log loss 0.77
where ridge has 0.57). So theta has a prior, and its width has to earn its evidence, with each theta_d integrated out
over ``along_d``, the change of log p(y) as it moves alone. Laplace's method would not do: log p(y) is flat towards
small variances and falls towards large ones, which a parabola at the mode does not see, hundreds of times over.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from ..checks import numeric, positive, problem, vector
from ..likelihoods.base import Likelihood, Targets
from ..linalg.arrays import Array, ArrayLike, asarray, to_numpy
from ..linalg.dense import NotPositiveDefinite
from ..priors.base import Factor, NewRows, Weights
from ..priors.latent_priors import Features
from ..problem import Problem
from ..solvers.solution import Solution
from .base import Family, Learned, log_bounds, offset_at
from .learning import learn

# -- The variance of a softmax's coefficients by Laplace's evidence, for models too large for exact expectations ---
# log p(y | theta) ~ log p(y | h) - 1/2 beta' S beta - 1/2 log|B|      at the mode, h = mt - S beta
#     beta = df/dh and lam_kl = p_k p_l of the contrasts eta_k - eta_l, as in ``likelihoods/softmax_exact.py``
#
# Every theta costs a few factorisations of all coefficients together and no expectation. It is no bound: the fit that
# follows, at this theta, has the elbo and its certificate.
_STEPS = 50  # of Newton's method
_SHORTEST = 1e-6  # share of a step
_RISE = 1e-6  # nats: Newton's method ends after a step that rises by less
_EXACT = 0.01  # of log variance: how exactly its best value is asked for


class Laplace:
    """Laplace's evidence as a function of one hyperparameter; each mode is found from the last one."""

    def __init__(self, likelihood: Likelihood, family: Family, y: Targets) -> None:
        self.likelihood, self.family, self.y = likelihood.changed(bound="exact"), family, y
        self.h: Array | None = None

    def evidence(self, theta: float) -> float:
        """log p(y | theta) + log p(theta), about."""
        at = np.array([theta])
        task = Problem(self.likelihood, self.family.at(at), self.y)
        try:
            value, self.h, factor = _mode(task, task.mt if self.h is None else self.h)
        except NotPositiveDefinite:
            return -np.inf
        return value + task.shift - 0.5 * factor.log_det + self.family.log_prior(at)[0]


def _mode(task: Problem, h: Array) -> tuple[float, Array, Factor]:
    """log p(y | h) - 1/2 beta' S beta at the mode, the contrasts h there, and the factor of its curvature."""
    predictors, bound, w = task.predictors, task.bound.over_contrasts, task.weight
    assert bound is not None
    weights: Weights | None = None
    value, rise = -np.inf, np.inf
    for _ in range(_STEPS):
        loss = bound.at_mean(h, task.rows)
        lam = w[:, None] * loss.lam
        factor = predictors.at(lam)
        if rise < _RISE:
            break
        target, before, t = factor.weights(lam * (h - task.mt) - w[:, None] * loss.alpha), value, 1.0
        assert target is not None
        while t > _SHORTEST:
            trial = target if weights is None else [a + t * (b - a) for a, b in zip(weights, target, strict=True)]
            h = task.mt + predictors.from_weights(trial)
            value = -float(np.sum(w * bound.at_mean(h, task.rows).value)) - 0.5 * predictors.weights_norm(trial)
            if weights is None or value >= before:
                break
            t /= 2
        weights, rise = trial, value - before
    return value, h, factor


def laplace_theta(likelihood: Likelihood, family: Family, y: Targets) -> np.ndarray:
    """The one hyperparameter of a family where Laplace's evidence is largest within its bounds."""
    # no ``Search``: the slope of Laplace's evidence is not known, and there is one entry
    laplace = Laplace(likelihood, family, y)
    result = minimize_scalar(
        lambda theta: -laplace.evidence(theta), bounds=family.bounds[0], method="bounded", options={"xatol": _EXACT}
    )
    return np.array([result.x])


# --------------------------------------------------------------------------------------------------
_LEAST = 1e-10  # determined weights, as a share of all: below, nothing is
_SAME = 1e-6  # relative difference of two numbers whose logarithmic mean is either
WIDTHS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # of log v; at 0.25 the fit is nearly ridge's
LOST = 3.0  # nats below the best so far: wider ones are not tried
_REACH = 6.0  # widths that the integrals go to either side
_POINTS = 97  # of an integral


class WeightVariances(Family):
    """``Features`` with learned prior variances of the weights; theta holds their logs.

    Parameters
    ----------
    design : array (N, L) or scipy sparse
    groups : array (L,) of int, optional
        The number of the variance that each weight has; -1 for a fixed one. Default: one variance for all.
    variance : float or array (L,), default 1.0
        Starting values, and the values of fixed variances.
    mean, offset
        As in ``Features``.
    bounds : pair of float, default (1e-6, 1e6)
        Bounds of every variance.
    log_prior : callable, optional
        theta -> (log density, gradient). Default: flat.
    names : sequence of str, optional
        Names of the variances. Default: "log variance 0", ...

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters import WeightVariances
    >>> WeightVariances(np.ones((4, 3)), groups=[0, 1, -1]).names
    ('log variance 0', 'log variance 1')
    """

    prunes = True

    def __init__(
        self,
        design: Any,
        groups: Any = None,
        variance: ArrayLike = 1.0,
        mean: ArrayLike = 0.0,
        offset: ArrayLike = 0.0,
        bounds: tuple[float, float] = (1e-6, 1e6),
        log_prior: Any = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.base = Features(design, 1.0, mean, offset)
        L = int(self.base.design.shape[1])
        given = np.zeros(L) if groups is None else numeric("WeightVariances", "groups", groups)
        if given.shape != (L,) or not (np.abs(given) < 2**31).all():
            got = f"groups has shape {given.shape}" if given.shape != (L,) else "groups holds others than whole numbers"
            raise problem("WeightVariances", got, f"({L},): one for each weight")
        self.groups = given.astype(int)
        self.variance = np.broadcast_to(
            positive("WeightVariances", "variance", vector("WeightVariances", "variance", variance, L)), (L,)
        )
        self.n_groups = int(self.groups.max(initial=-1)) + 1
        self._bounds = np.tile(log_bounds("WeightVariances", bounds), (self.n_groups, 1))
        self._log_prior, self._names = log_prior, names

    @property
    def theta(self) -> np.ndarray:
        first = [int(np.argmax(self.groups == g)) for g in range(self.n_groups)]
        return np.log(self.variance[first])

    @property
    def bounds(self) -> np.ndarray:
        return self._bounds

    @property
    def names(self) -> tuple[str, ...]:
        numbered = [f"log variance {g}" for g in range(self.n_groups)]
        return tuple(numbered if self._names is None else self._names[: self.n_groups])

    def variances_at(self, theta: np.ndarray) -> np.ndarray:
        """v of every weight (L,)."""
        values = np.append(np.exp(np.asarray(theta, dtype=np.float64)), np.nan)
        return np.where(self.groups >= 0, values[self.groups], self.variance)

    def at(self, theta: np.ndarray) -> Features:
        return self.base.reweighted(self.variances_at(theta))

    def gradient(self, solution: Solution, theta: np.ndarray) -> np.ndarray:
        shift, L = self._shift(solution), self.groups.size
        V = np.reshape(to_numpy(solution.posterior.latent_variance), (L, -1))
        each = 0.5 * np.sum((shift * shift + V) / self.variances_at(theta)[:, None] - 1.0, axis=1)
        live = self.groups >= 0
        return np.bincount(self.groups[live], weights=each[live], minlength=self.n_groups).astype(np.float64)

    def curvature(self, solution: Solution, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
        """Of one variance: such that Newton's step is MacKay's, log v -> log(sum (m - mu)^2 / gamma).

        gamma = sum (1 - V/v), the weights that the data determine, and d elbo / d log v = (a - gamma) / 2 with
        a = sum (m - mu)^2 / v; both change little with v, so the step is long where v is far off. Of several variances
        it would not know how they depend on each other: None.
        """
        if self.n_groups != 1:
            return None
        live, L = self.groups >= 0, self.groups.size
        a = max(float(np.sum(self._shift(solution)[live] ** 2)) * float(np.exp(-theta[0])), _LEAST * L)
        gamma = max(a - 2.0 * float(gradient[0]), _LEAST * L)
        mean = a if abs(a - gamma) < _SAME * a else (a - gamma) / float(np.log(a / gamma))  # logarithmic
        return np.array([[0.5 * mean]])

    def start_by_moments(self, score: np.ndarray, curvature: np.ndarray) -> np.ndarray | None:
        """One variance by a moment of the scores g = W' score of the weights, with G = W' diag(curvature) W:

        E |g|^2 = tr G + v tr G^2,     Var |g|^2 = 2 tr G^2 at v = 0, one standard deviation of which is the least
        """
        if self.n_groups != 1:
            return None
        live, W = self.groups >= 0, self.base.design
        g, G = (to_numpy(x) for x in (W.adjoint(asarray(score, W.like)), W.gram(asarray(curvature, W.like))))
        g, G = g[live], G[np.ix_(live, live)]
        square = max(float(np.sum(G * G)), _LEAST)
        v = (float(g @ g) - float(np.trace(G))) / square
        return np.clip(np.log([max(v, np.sqrt(2.0 / square))]), *self.bounds.T)

    def _shift(self, solution: Solution) -> np.ndarray:
        """m - mu of every weight (L, C)."""
        mean = to_numpy(self.base.mean)
        m = np.reshape(to_numpy(solution.posterior.latent_mean), (self.groups.size, -1))
        return m - (mean[:, None] if mean.ndim == 1 else mean)

    def new_rows(self, theta: np.ndarray, table: Any) -> NewRows:
        """Rows ``table`` (M, L) of the design."""
        return NewRows(design=table, offset=offset_at("WeightVariances", self.base.offset, table.shape[0]))

    def with_log_prior(self, log_prior: Any) -> WeightVariances:
        """The same family with log p(theta); the design is shared."""
        out = copy(self)
        out._log_prior = log_prior
        out.restate(log_prior=log_prior)
        return out

    def shared(self) -> WeightVariances:
        """The same weights, one variance for all that are learned; it starts at the middle of theirs. A flat prior."""
        out, live = self.with_log_prior(None), self.groups >= 0
        out.groups = np.where(live, 0, -1)
        out.variance = np.where(live, np.exp(np.mean(self.theta)), self.variance)
        out.restate(shared=True)  # no argument: it is not kept in a file by itself
        out.n_groups, out._bounds, out._names = 1, self._bounds[:1], ["log variance"]
        return out

    def along(self, solution: Solution, theta: np.ndarray, values: np.ndarray) -> np.ndarray:
        """How log p(y) changes (n_theta, M) as each entry of theta, alone, moves to M values.

        What the rest of the model says of a weight is read off its posterior N(m, V) as a Gaussian factor of precision
        r = 1/V - 1/v, so the move is in closed form: exact for Gaussian rows, and nothing is refitted.
        """
        live, L = self.groups >= 0, self.groups.size
        m = self._shift(solution)[live]
        V = np.reshape(to_numpy(solution.posterior.latent_variance), (L, -1))[live]
        v = self.variances_at(theta)[live, None]
        r = np.maximum(v - V, 0.0) / (v * V)  # y adds precision; rounding may not take any
        each = np.zeros((v.size, len(values)))
        for k in range(V.shape[1]):
            m_k, V_k, r_k = m[:, k, None], V[:, k, None], r[:, k, None]
            grown, to = 1.0 + np.exp(values) * r_k, np.exp(values)
            each += 0.5 * (m_k**2 * (to - v) / (V_k * v * grown) - np.log(grown * V_k / v))
        return np.stack([each[self.groups[live] == g].sum(axis=0) for g in range(self.n_groups)])

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> WeightVariances:
        return cls(rng.normal(size=(n, 4)), groups=[0, 1, 0, -1], variance=[0.8, 1.7, 0.8, 5.0])


@dataclass(frozen=True)
class Spread:
    """log p(theta) for entries drawn from N(level, width^2), the level being the best one: their mean.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.weights import Spread
    >>> Spread(width=2.0)(np.array([1.0, 5.0]))[1]
    array([ 0.5, -0.5])
    """

    width: float

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        away = theta - theta.mean()
        value = -0.5 * float(away @ away) / self.width**2 - theta.size * np.log(self.width * np.sqrt(2 * np.pi))
        return float(value), -away / self.width**2


@dataclass
class Relevance(Learned):
    """What was learned, and how far apart the variances are allowed to be.

    Attributes
    ----------
    width : float
        The standard deviation of the log variances that has the largest evidence.
    evidence : dict of float to float
        log p(y | width), approximately, of each width tried.
    """

    width: float = 0.0
    evidence: dict[float, float] = field(default_factory=dict)


def learn_relevance(
    likelihood: Likelihood, family: WeightVariances, y: ArrayLike, widths: tuple[float, ...] = WIDTHS, **options: Any
) -> Relevance:
    """Learn a variance for each group of weights; weights should be of standardised columns, or of one unit.

    It starts at ridge's optimum and lets the variances apart width by width, so that each search begins near its end.
    The likelihood's own parameters are ridge's: with fewer rows than weights, free variances would take all noise away.

    Parameters
    ----------
    likelihood, family, y
        The model; a log prior that ``family`` has is replaced.
    widths : tuple of float
        To choose from, in increasing order.
    **options : of ``learn``

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters import WeightVariances, learn_relevance
    >>> from fenchel.likelihoods import Poisson
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 20))
    >>> y = rng.poisson(np.exp(X[:, 0]))
    >>> found = learn_relevance(Poisson(), WeightVariances(X, groups=np.arange(20)), y)
    >>> found.width > 1.0, int(np.argmax(found.theta))
    (True, 0)
    """
    ridge = learn(likelihood, family.shared(), y, **options)
    theta, own, likelihood = np.full(family.n_groups, ridge.theta[0]), ridge.theta[1:], ridge.likelihood
    options["learn_likelihood"] = False
    n_evaluations, n_newton = ridge.n_evaluations, ridge.n_newton
    tried: dict[float, tuple[float, Learned]] = {}
    for width in widths:
        result = learn(likelihood, family.with_log_prior(Spread(width)), y, theta=theta, **options)
        tried[width] = width_evidence(family, result, width), result
        theta = result.theta
        best = max(tried, key=lambda tried_width: tried[tried_width][0])
        n_evaluations, n_newton = n_evaluations + result.n_evaluations, n_newton + result.n_newton
        if tried[width][0] < tried[best][0] - LOST:
            break
    fields_of_best = {each.name: getattr(tried[best][1], each.name) for each in fields(Learned)}
    evidence = {width: each for width, (each, _) in tried.items()}
    out = Relevance(**fields_of_best, width=best, evidence=evidence)
    out.n_evaluations, out.n_newton = n_evaluations, n_newton
    if own.size:
        out.theta = np.append(out.theta, own)
        out.gradient = np.append(out.gradient, out.solution.likelihood_gradient())
    return out


def width_evidence(family: WeightVariances, result: Learned, width: float) -> float:
    """log p(y | width): each entry of theta integrated out about ``found``, the level kept at its best."""
    theta = result.theta[: family.n_groups]
    steps = np.linspace(-_REACH, _REACH, _POINTS)
    log_weight = -0.5 * steps**2 - np.log(np.exp(-0.5 * steps**2).sum())
    change = family.along(result.solution, theta, theta.mean() + width * steps)
    return float(result.solution.elbo + np.sum(logsumexp(change + log_weight, axis=1)))
