"""The Gaussian posterior q(z) = N(m, V) of a fit: marginals, predictions and samples.

m = mu - Sigma W' alpha (eq:mstar),    V = (Sigma^-1 + W' Lam W)^-1 (eq:Vstar)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from .checks import count, problem
from .linalg.arrays import Array, Seed, asarray, namespace, to_numpy
from .linalg.dense import diagonal_matrix
from .linalg.machine import physical_memory as _physical_memory
from .marginals import AnswersAtNewRows, NormalAnswers, NormalMarginals
from .priors.base import Factor, NewRows, Predictors, PredictsNewRows, Prior, PriorAdjoint
from .priors.predictors import predicted


class Posterior(NormalAnswers, AnswersAtNewRows[NormalMarginals]):
    """Gaussian posterior of the latents z and of their predictors eta = W z + offset.

    Its own quantiles, probabilities and densities are the marginals of eta at the observations, with shape (N,), or
    (N, C) for C predictors in each observation. ``latents()`` has the marginals of z, ``at(...)`` those of eta at new
    rows. Arrays belong to the array library and device of the prior.

    Attributes
    ----------
    mean, variance, sd : arrays (N,) or (N, C)
        Of eta at the observations.
    latent_mean, latent_variance : arrays (L,) or (L, C)
        Of z.
    predictors : Predictors
        The prior bound to all N observations.
    active : int array
        The observations in ``factor``: those whose log-likelihood has curvature.
    factor : Factor
        Factorisation over the active observations; ``joint_factor()`` has one over all of them.
    alpha, lam : arrays (N, C)
        The sites: log q(z) = log p(z) - alpha' W z - (W z - h)' Lam (W z - h) / 2 + constant.
    curvatures : array (N, C, C) or None
        Lam, if it is not diagonal because the predictors of a row are correlated under q.
    moments, active_moments : two arrays (N, C) each
        Mean and variance of eta at all observations, and at the active ones.
    extra_variance : array (N, C)
        Prior variance of eta that the latents do not explain; the fit does not change it.

    Examples
    --------
    >>> import numpy as np, fenchel
    >>> posterior = fenchel.infer(fenchel.Poisson(), fenchel.DenseCovariance(np.eye(2)), [0, 3]).posterior
    >>> posterior.mean.round(2), posterior.interval(0.9).shape, posterior.sample(5, rng=0).shape
    (array([-0.68,  0.69]), (2, 2), (5, 2))
    """

    curvatures: Array | None = None
    _find_weights: Callable[[], list[Array] | None] | None = None

    def __init__(
        self,
        predictors: Predictors,
        active: np.ndarray,
        factor: Factor,
        sites: tuple[Array, Array],
        moments: tuple[Array, Array],
        weights: Callable[[], list[Array] | None] | None = None,
        curvatures: Array | None = None,
    ) -> None:
        self.predictors, self.active, self.factor = predictors, active, factor
        self._find_weights = weights
        self.alpha, self.lam = sites
        self.active_moments = moments
        self.curvatures = curvatures

    @classmethod
    def of_prior(cls, prior: Prior, n: int = 1) -> Self:
        """The prior at n rows as a posterior without observations; the prior has one predictor."""
        predictors = prior.bind(n, 1, False)
        zero = 0.0 * predictors.mt
        return cls(predictors, np.arange(n), predictors.at(zero), (zero, zero), (predictors.mt, predictors.variance))

    def shaped(self, x: Array) -> Array:
        """Remove the last axis of an array (..., C) if C = 1."""
        return x[..., 0] if self.predictors.n_predictors == 1 else x

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """Mean h and variance rho (N, C) of all observations; inactive ones are predicted from the active ones."""
        h, rho = self.active_moments
        n = self.predictors.n_observations
        if self.active.size == n:
            return h, rho
        rest = np.setdiff1d(np.arange(n), self.active)
        shift = (
            self.predictors.apply(self.alpha) if self.weights is None else self.predictors.from_weights(self.weights)
        )
        full = self.predictors.mt - shift
        out = np.empty(tuple(full.shape))
        out[self.active] = to_numpy(rho)
        out[rest] = (
            to_numpy(self.predictors.variance_of(rest, self.factor, self.lam)) + to_numpy(self.extra_variance)[rest]
        )
        return full, asarray(out, full)

    @cached_property
    def extra_variance(self) -> Array:
        """c (N, C): prior variance of eta that the latents do not explain; the fit does not change it."""
        return self.predictors.extra_variance + 0.0 * self.predictors.mt

    @cached_property
    def weights(self) -> list[Array] | None:
        """W' alpha, if the prior has features and so knows it more accurately than alpha itself."""
        return None if self._find_weights is None else self._find_weights()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "weights": self.weights, "_find_weights": None}  # a callable cannot be pickled

    @property
    def mean(self) -> Array:  # type: ignore[override]
        """E[eta]: (N,) or (N, C)."""
        return self.shaped(self.moments[0])

    @property
    def variance(self) -> Array:  # type: ignore[override]
        """Var[eta]: (N,) or (N, C)."""
        return self.shaped(self.moments[1])

    @cached_property
    def latent_mean(self) -> Array:
        """E[z]: array (L,), or (L, C) for independent predictors."""
        return self.predictors.latent_mean() - self.predictors.latent_shift(self.alpha, self.weights)

    @cached_property
    def latent_variance(self) -> Array:
        """Var[z]: array (L,), or (L, C) for independent predictors."""
        if self.factor.own_latents:
            return self.factor.latent_variance()
        return self.predictors.as_latents(self.moments[1] - self.extra_variance)

    def latents(self) -> NormalMarginals:
        """Marginals of the latents z."""
        return NormalMarginals(self.latent_mean, self.latent_variance)

    def latent_covariance(self) -> Array:
        """Cov[z]: array (L, L), or (C, L, L) for predictors that are independent under q.

        Under ``bound="exact"`` of a softmax they are correlated: (C L, C L), predictor by predictor.
        """
        blocks = self.factor.latent_covariance()
        return blocks[0] if len(blocks) == 1 else namespace(blocks[0]).stack(blocks, axis=0)

    def moments_at(self, new: NewRows) -> tuple[Array, Array]:
        """Mean and variance (M, C) of eta at new rows, C = 1 included."""
        if isinstance(self.predictors, PredictsNewRows):
            m, v = self.predictors.predict(self.factor, self.alpha, new, self.weights)
        else:
            m, v = predicted(self.joint_factor(), self.alpha, new)
        return m, m if v is None else v  # v is None with mean_only, and is then not used

    def marginals_at(self, new: NewRows) -> NormalMarginals:
        mean, variance = (self.shaped(each) for each in self.moments_at(new))
        joint = self.curvatures is not None
        return NormalMarginals(mean, variance, (lambda: self.row_covariances(new)) if joint else None)

    def predict_mean(self, new: NewRows | None = None, **rows: Any) -> Array:
        """Posterior mean (M,) or (M, C) of eta at new rows, without the cost of the variance; rows as in ``at``."""
        new = NewRows(**rows) if new is None else new
        return self.shaped(self.moments_at(replace(new, variance=None, extra_variance=0.0, mean_only=True))[0])

    def predict_covariance(self, cross: Array, covariance: Array) -> Array:
        """Posterior covariance (M, M) of eta at new rows, for a ``DenseCovariance`` prior with one predictor.

        Parameters
        ----------
        cross : array (M, L)
            Prior covariance of the new eta with the latents: ``K(x_new, x)`` for a Gaussian process.
        covariance : array (M, M)
            Prior covariance of the new eta: ``K(x_new, x_new)``.

        Returns
        -------
        array (M, M)
        """
        if self.predictors.n_predictors > 1:
            got = f"{self.predictors.n_predictors} predictors an observation"
            raise problem("posterior.predict_covariance", got, "a DenseCovariance prior and one predictor")
        return covariance - self.factor.joint_reduction(cross)

    @property
    def joint(self) -> bool:
        """Whether the predictors of an observation are correlated under q."""
        return self.curvatures is not None or self.predictors.correlated

    @property
    def spread(self) -> Array:
        """Variance of eta; if the C predictors of a row are correlated, their covariance (N, C, C)."""
        if not self.joint:
            return self.variance
        V = self.joint_factor().observation_covariance()
        return V + self.extra_variance[:, :, None] * asarray(np.eye(V.shape[1]), V)[None, ...]

    def row_covariances(self, new: NewRows) -> Array:
        """Covariance (M, C, C) of the C predictors of each new row.

        It is diagonal if they are independent under q: for a softmax under every bound but "exact".
        """
        _, v = self.moments_at(new)
        xp = namespace(v)
        out = v[:, :, None] * asarray(np.eye(v.shape[1]), v)[None, ...]
        if self.curvatures is None:
            return out
        classes: Any = self.factor
        off = classes.covariances_at(classes.predictors.new_rows(new)[0], by_cross=new.cross is not None)
        return out + off * (1.0 - xp.eye(v.shape[1]))

    def covariance(self) -> Array:
        """Cov[eta] of all observations, unobserved ones included; a size that exceeds the memory is refused.

        Returns
        -------
        array (N, N), or (C, N, N) for independent, (N * C, N * C) for correlated predictors
        """
        n, C = self.predictors.n_observations, self.predictors.n_predictors
        bytes_needed = 8.0 * 3 * n * n * C * (C if self.joint else 1)
        limit = _physical_memory()
        if bytes_needed > limit:
            raise problem(
                "posterior.covariance",
                f"the covariance of {n} x {C} predictors needs {bytes_needed / 2**30:.1f} GiB "
                f"and this machine has {limit / 2**30:.1f} GiB",
                "a size that fits",
                "Use posterior.variance for the marginals, or posterior.sample for joint draws.",
            )
        blocks = self.joint_factor().covariance()
        if self.predictors.has_extra_variance:
            flat = (
                [namespace(blocks[0]).reshape(self.extra_variance, (-1,))]
                if len(blocks) == 1
                else [self.extra_variance[:, c] for c in range(C)]
            )
            blocks = [V + diagonal_matrix(c) for V, c in zip(blocks, flat, strict=True)]
        return blocks[0] if len(blocks) == 1 else namespace(blocks[0]).stack(blocks, axis=0)

    def joint_factor(self) -> Factor:
        """Factorisation over all observations, the inactive ones included."""
        all_active = self.active.size == self.predictors.n_observations
        return self.factor if all_active else self.predictors.at(self.lam)

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta at the observations.

        Parameters
        ----------
        size : int, default 1
            Number of draws.
        rng : numpy Generator or int, optional

        Returns
        -------
        array (size, N) or (size, N, C)
        """
        rng, size = np.random.default_rng(rng), count("posterior.sample", "size", size)
        draws = self.joint_factor().sample(size, rng)
        if self.predictors.has_extra_variance:
            noise = asarray(rng.standard_normal(tuple(draws.shape)), draws)
            draws = draws + namespace(draws).sqrt(self.extra_variance)[None, ...] * noise
        return self.shaped(self.moments[0][None, ...] + draws)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of the latents z, which satisfy the linear constraints of the prior if it has some.

        Parameters
        ----------
        size : int, default 1
            Number of draws.
        rng : numpy Generator or int, optional

        Returns
        -------
        array (size, L), or (size, L, C) for independent predictors
        """
        rng, size = np.random.default_rng(rng), count("posterior.sample_latents", "size", size)
        if self.factor.own_latents:
            return self.latent_mean[None, ...] + self.factor.sample_latents(size, rng)
        return self.latent_mean[None, ...] + self.predictors.as_latents(self.joint_factor().sample(size, rng))

    def cavity(self) -> tuple[Array, Array]:
        """Mean (N, C) and variance of each eta_n without its own observation, without refitting.

        v = rho / (1 - lam rho), mean = h + alpha v; for correlated predictors v = (V_n^-1 - Lam_n)^-1, of shape
        (N, C, C). Only the latents depend on the observation, so the extra variance is left out of rho here and added
        to v at the end.
        """
        (h, rho), c = self.moments, self.extra_variance
        if self.joint:
            V = self.joint_factor().observation_covariance()
            xp = namespace(V)
            eye = asarray(np.eye(V.shape[1]), V)
            Lam = self.lam[:, :, None] * eye[None, ...] if self.curvatures is None else self.curvatures
            v = V @ xp.linalg.inv(eye[None, ...] - Lam @ V)
            own = eye[None, ...] * c[:, :, None]
            return h + (v @ self.alpha[..., None])[..., 0], (v + xp.permute_dims(v, (0, 2, 1))) / 2 + own
        remainder = np.ones(tuple(h.shape))
        remainder[self.active] = to_numpy(self.factor.cavity)
        v = (rho - c) / asarray(remainder, rho)
        return h + self.alpha * v, v + c

    def adjoint(self) -> PriorAdjoint:
        """Derivatives of the elbo with respect to the prior: its mean, covariance or precision, and design.

        ``adjoint().covariance`` and the others are computed when they are read.
        """
        return PriorAdjoint(
            self.predictors, self.factor, self.active, (self.alpha, self.lam), find_weights=lambda: self.weights
        )

    def gradient_covariance(self) -> list[Array]:
        """d elbo / d Sigma, the gradient with respect to the prior covariance, for each block (L, L)."""
        return self.adjoint().covariance

    def gradient_precision(self) -> list[Any]:
        """d elbo / d Q, the gradient with respect to a sparse prior precision on its pattern, for each block."""
        return self.adjoint().precision

    def gradient_mean(self) -> list[Array]:
        """d elbo / d mu, the gradient with respect to the prior mean, for each block (L,)."""
        return self.adjoint().mean
