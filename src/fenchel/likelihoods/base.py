"""The east wing's contract: a likelihood is a site, one observation at a time.

A site is a curve tau -> (alpha, lam) and a convex conjugate k on it (eq:conjugate):

    f(h, rho) = max_tau [ alpha(tau) h + lam(tau) rho/2 - k(tau) ] + const  >=  E[-log p(y|eta)]
    alpha(tau) = c_h + a_h tau (affine),   lam(tau) concave,   k convex

The library walks on it in the mirror coordinate s = k'(tau), in which every real number is feasible.

Shapes. N observations, C predictors and P potentials an observation: h, rho, alpha, lam are (N, C) and
s, tau are (N, P). Potential p belongs to predictor ``layout[p]``. Data is passed in, never stored:
``prepare(y)`` makes ``rows``, a dictionary of arrays whose first axis is the observation, and every method
takes it back. Values are per unit of weight; the problem multiplies by rows["weight"] (0 = unobserved).

Not every bound has a convex dual: the expectation itself does not for a logistic, nor do quadratic bounds with their
parameter optimised. Such a likelihood says ``convex = False`` and gives ``loss`` (f with its slopes and curvature)
instead of a site; ``relaxed`` may name a convex neighbour to start from. Scalar predictors only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np

from ..checks import Refusal, first_value, number, numeric, problem
from ..linalg.arrays import Array, namespace, to_numpy
from . import by_density
from .prediction import Predicted, Rows, column, flat, slice_rows
from .sites import Domain, Loss, Site, loss_of_site
from .summaries import observed

__all__ = ["LABELS", "Likelihood", "Rows", "column", "flat", "is_short", "slice_rows"]
LABELS = "Encode labels as integers first, for example with sklearn.preprocessing.LabelEncoder."


class Likelihood(Predicted, ABC):
    """p(y | eta) together with its convex bound. See the module for shapes and notation.

    Attributes
    ----------
    word : what an estimator calls it, or None
    support : "real", "count", "positive", "unit" (between 0 and 1) or "levels" (0, ..., K-1), what y is
    noise : whether eta is on the scale of y
    ratio : what exp(effect) is called, or None
    ordered : whether cutpoints take the place of an intercept
    durations : whether y are durations, of which ``predictive_survival`` knows
    """

    word: str | None = None
    support: str = "real"
    noise: bool = False
    ratio: str | None = None
    ordered: bool = False
    durations: bool = False

    bound: str = "none"
    bounds: tuple[str, ...] = ("none",)
    domain: Domain = Domain()
    layout: tuple[int, ...] = (0,)
    n_predictors: int = 1
    needs_independent_predictors: bool = False
    coupled: bool = False  # whether the potentials of an observation share a normalisation
    log_concave: bool = True  # in eta: without it a stationary point need not be the best
    row_parameters: tuple[str, ...] = ()  # constructor arguments with one number an observation, such as an exposure

    @property
    def convex(self) -> bool:
        """Whether this bound has a convex dual, that is, a site."""
        return self.bound not in ("exact", "jaakkola", "super-gaussian")

    def relaxed(self) -> Likelihood | None:
        """A likelihood of the same targets that has a dual and lies near: where a bound without one starts."""
        return self if self.convex else None

    def with_rows(self, **values: Any) -> Self:
        """The same likelihood with other per-observation parameters (an exposure, trials, an event indicator)."""
        unknown = sorted(set(values) - set(self.row_parameters))
        if unknown:
            known = ", ".join(self.row_parameters) or "none"
            raise problem(self.name, f"{unknown[0]!r} is no parameter of its rows", f"one of: {known}")
        return self.changed(**values)

    def take(self, index: Any) -> Self:
        """The same likelihood for some of its rows."""
        own = {key: getattr(self, key) for key in self.row_parameters}
        some = {key: np.asarray(value)[index] for key, value in own.items() if np.ndim(value) == 1}
        return self.changed(**some) if some else self

    # -- where a fit starts ------------------------------------------------------------------------
    @classmethod
    def starting(cls, y: np.ndarray, weights: Any = None, bound: str = "best", **rows: Any) -> Self:
        """The likelihood where learning from y (N,), NaN where unobserved, starts; ``bound`` "best" is the tightest."""
        seen, w = observed(y, weights)
        given = {p.attribute: p.start(cls, seen, w) for p in cls.parameters if p.start is not None}
        if len(cls.bounds) > 1:
            tightest = "exact" if "exact" in cls.bounds else list(cls.bounds)[-1]
            given["bound"] = tightest if bound == "best" else bound
        return cls(**given, **rows)

    @classmethod
    def scale_of(cls, y: np.ndarray, weights: Any = None) -> float:
        """The scale of eta: that of y where eta is on it, 1 elsewhere."""
        return 1.0

    def level(self, y: np.ndarray, weights: Any = None) -> float:
        """The link of the overall mean of y (N,), NaN where unobserved: what the latent function need not carry."""
        return self._level(*observed(y, weights))

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """The same, w being 0 where y is unobserved; here the one eta that makes y most likely."""
        return by_density.level(self, y, w)

    def in_units(self, y: np.ndarray, weights: Any = None) -> Likelihood:
        """The same in units in which the level of eta does not move with the parameters, where that needs any."""
        return self

    def reported(self) -> tuple[Likelihood, float]:
        """The likelihood on the scale its class documents, and what eta is there above eta as fitted."""
        return self, 0.0

    # -- the target --------------------------------------------------------------------------------
    @abstractmethod
    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """Refuse a target that is not one; return the per-row arrays the other methods read.

        ``y`` is float64 of shape (N,), NaN where unobserved. The result may hold ``"weight"`` to scale rows
        (Binomial) or to switch them off (exposure 0); NaN rows are switched off by ``prepare``.
        """

    def prepare(self, y: Any, weights: Any = None) -> dict[str, np.ndarray]:
        """Check ``y`` and ``weights``; return the rows, with unobserved ones at weight 0."""
        y = numeric(self.name, "y", y, LABELS, missing=True)
        if y.ndim != 1 or y.shape[0] == 0:
            raise problem(
                self.name,
                f"y has shape {y.shape}",
                "one value an observation, shape (N,) with N >= 1",
                "An unobserved value is NaN, not a missing row."
                if y.size == 0
                else "Use y.ravel() on a column; turn one-hot rows into labels with argmax.",
            )
        if np.isinf(y).any():
            i = int(np.flatnonzero(np.isinf(y))[0])
            raise problem(self.name, f"y[{i}] = {number(y[i])} is not finite", "numbers, or NaN for unobserved")
        rows = dict(self.check(y))
        weight = np.broadcast_to(rows.pop("weight", 1.0), y.shape)
        if weights is not None:
            weights = numeric(self.name, "weights", weights)
            if weights.shape != y.shape:
                got = f"weights of shape {weights.shape} do not fit y of shape {y.shape}"
                raise problem(self.name, got, "one number >= 0 for each observation")
            bad = ~(np.isfinite(weights) & (weights >= 0))
            if bad.any():
                raise problem(self.name, f"weights{first_value(bad, weights)} is not a weight", "finite numbers >= 0")
            weight = weight * weights
        rows["weight"] = np.where(np.isnan(y), 0.0, weight)
        return rows

    # -- the curve and its conjugate ---------------------------------------------------------------
    def site(self, s: Array, rows: Rows) -> Site:
        """The curve and the conjugate at s (N, P)."""
        raise self._without_dual()

    def signs(self, rows: Rows) -> Array:
        """a_h of every potential: an array that broadcasts against (N, P)."""
        raise self._without_dual()

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        """s = k'(tau), the inverse of ``site(s).tau``."""
        raise self._without_dual()

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        """phi(s_hat) - phi(s) - phi'(s)(s_hat - s) >= 0 of each observation (N,), as one stable number."""
        raise self._without_dual()

    def is_flat(self, rows: Rows) -> Array:
        """Observations with lam = 0 whatever s is (N,): they only shift the mean and leave the system."""
        return rows["weight"] != rows["weight"]

    def reach(self, rows: Rows) -> Any:
        """How far one step may move a coordinate before tau(s) runs away: a number, or an array like s.

        4 suits potentials that bend on the scale of e; a quadratic one has no limit.
        """
        return 4.0

    def straight(self, s: Array, ds: Array, rows: Rows) -> Array | None:
        """s once tau has moved straight by J ds, k'(tau + J ds); None where it would come near its boundary.

        To first order it is s + ds. alpha being affine in tau, S alpha then moves exactly as Newton's step foresaw.
        """
        return None

    def domain_of(self, rows: Rows) -> Domain:
        """Where tau may lie in these rows."""
        return self.domain

    def start(self, rows: Rows, shrink: float) -> Array:
        """A starting s (N, P). ``shrink`` in (0, 1] moves alpha towards 0, where a wide prior wants it."""
        raise self._without_dual()

    def constant(self, rows: Rows) -> Array:
        """const(y) of f, per unit of weight (N,)."""
        return 0.0 * rows["weight"]

    def cancelling(self, h: Array, rows: Rows, dual: bool) -> Array:
        """The size of the terms that cancel in the dual, or in ``loss``, of each observation (N,), at h (N, C).

        Per unit of weight its constant, and a slope in eta of at most 1: that of a label or of a share.
        """
        xp = namespace(h)
        return xp.abs(self.constant(rows)) + xp.max(xp.abs(h), axis=1)

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        """s_hat(h, rho), where the maximum that defines f is reached. Affine lam: the coordinate itself.

        ``s`` is any current point; a curved lam may start its search there.
        """
        site = self.site(s, rows)
        return self.seen_from(h, rho, site.lam_slope, rows)

    def seen_from(self, h: Array, rho: Array, lam_slope: Array, rows: Rows) -> Array:
        """s* = a_h h + lam'(tau) rho/2 (N, P): where q says the sites are."""
        return self.signs(rows) * self.spread_out(h) + lam_slope * self.spread_out(rho) / 2

    def spread_out(self, x: Array) -> Array:
        """Predictor values (N, C) repeated for every potential (N, P)."""
        if self.layout == tuple(range(self.n_predictors)):
            return x
        xp = namespace(x)
        return xp.stack([x[:, c] for c in self.layout], axis=1)

    def curve_gap(self, tau_hat: Array, tau: Array) -> Array | None:
        """lam(tau_hat) + lam'(tau_hat)(tau - tau_hat) - lam(tau) >= 0 (N, P); None for an affine lam."""
        return None

    def _without_dual(self) -> Refusal:
        return problem(
            self.name, f"bound={self.bound!r} has no convex dual", "a bound with one", "Use infer, or relaxed()."
        )

    def f(self, h: Array, rho: Array, rows: Rows) -> Array:
        """The bound on E[-log p(y|eta)] (N,), from its definition as a maximum."""
        if not self.convex:
            return self.loss(h, rho, rows).value
        s_hat = self.maximiser(h, rho, self.start(rows, 1.0), rows)
        site = self.site(s_hat, rows)
        xp = namespace(h)
        linear = xp.sum(site.alpha * h + site.lam * rho / 2, axis=1)
        return linear - site.k + self.constant(rows)

    def gap(self, s: Array, h: Array, rho: Array, rows: Rows) -> Array:
        """max_tau' G(tau') - G(tau) >= 0 of each observation (N,), G = alpha h + lam rho/2 - k."""
        xp = namespace(s)
        s_hat = self.maximiser(h, rho, s, rows)
        gap = self.divergence(s_hat, s, rows)
        bend = self.curve_gap(self.site(s_hat, rows).tau, self.site(s, rows).tau)
        return gap if bend is None else gap + xp.sum(bend * self.spread_out(rho) / 2, axis=1)

    def gap_bound(self, g: Array, rho: Array, rows: Rows) -> Array | None:
        """Above ``gap``, from the slope g = s - s* (N, P) alone; None where nothing so cheap is known.

        G is strongly concave in tau: gap <= g^2 / (2 m), m the least of k'' - lam'' rho/2 over all tau.
        """
        return None

    # -- the likelihood itself ---------------------------------------------------------------------
    def expectations(self, h: Array, rho: Array, rows: Rows) -> tuple[Array, Array, Array]:
        """E[psi], E[psi'], E[psi''] under N(h, rho), each (N, 1), accurate at any mean and variance."""
        exact = self.exact_loss(h, rho, rows)
        return exact.value[:, None], exact.alpha[:, None], exact.lam[:, None]

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """f = E[psi] with its slopes and curvature at h, rho (N, 1): panel quadrature, unless a subclass knows better.

        Third and fourth derivatives come by parts: E[psi'' t]/rho and E[psi'' (t^2/rho - 1)]/rho, with t = eta - h.
        """
        from ..linalg.quadrature import expect

        xp = namespace(h)

        def integrand(eta: Array, chunk: slice) -> Array:
            psi, first, second = self.derivatives(eta, slice_rows(rows, chunk))
            v = xp.where(rho[chunk, :] > 0.0, rho[chunk, :], xp.ones_like(rho[chunk, :]))
            t = (eta - h[chunk, :]) / xp.sqrt(v)
            return xp.stack([psi, first, second, second * t / xp.sqrt(v), second * (t * t - 1.0) / v])

        out = expect(integrand, h[:, 0], rho[:, 0], self.landmarks(rows))
        return Loss(out[0, :], out[1, :], out[2, :], out[2, :], out[3, :] / 2, out[4, :] / 4)

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        """f of this bound with its slopes and curvature at h, rho (N, 1); one predictor only."""
        if not self.convex:
            return self.exact_loss(h, rho, rows)
        site = self.site(self.maximiser(h, rho, self.start(rows, 1.0), rows), rows)
        return loss_of_site(site, self.signs(rows), h, rho, self.constant(rows))

    # -- its own parameters ------------------------------------------------------------------------
    def theta_slopes(self, eta: Array, rows: Rows) -> Array:
        """dpsi/dtheta at eta (N, M): (n_theta, N, M). Needed by the exact mode of a likelihood with parameters."""
        raise NotImplementedError(f"{self.name} does not implement theta_slopes(); learning its parameters needs it.")

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        """-sum_n weight_n df_n/dtheta at (h, rho) (N, 1): the evidence gradient, by the envelope theorem.

        Here for f = E[psi], by quadrature; a bound overrides it.
        """
        from ..linalg.quadrature import expect

        if self.theta.size == 0:
            return np.zeros(0)

        def integrand(eta: Array, chunk: slice) -> Array:
            return self.theta_slopes(eta, slice_rows(rows, chunk))

        each = expect(integrand, h[:, 0], rho[:, 0], self.landmarks(rows))
        return np.asarray(-to_numpy(namespace(h).sum(rows["weight"] * each, axis=-1)))

    # -- for the registry tests --------------------------------------------------------------------
    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Likelihood, np.ndarray]:
        """A likelihood with n random targets of it: every contract test runs on this."""
        raise NotImplementedError(f"{cls.__name__} does not implement example(); the contract tests need it.")

    def __repr__(self) -> str:
        return f"{self.name}()" if self.bound == "none" else f"{self.name}(bound={self.bound!r})"


_SHORT = 0.7  # a step of tau relative to its distance from the boundary up to which it goes straight


def is_short(*steps: Array) -> bool:
    """Whether relative steps stay well away from -1."""
    return all(bool(namespace(x).all(namespace(x).abs(x) < _SHORT)) for x in steps)
