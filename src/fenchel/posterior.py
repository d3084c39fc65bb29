"""q(z) = N(m, V) after the fit: marginals, prediction, samples.

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
    """The Gaussian approximation of the latents and of their predictors eta = W z + offset.

    Quantiles, probabilities and densities are those of eta at the observations; ``latents()`` and ``at(...)`` have the
    same of z and of new rows. Arrays are in the library, and on the device, of the prior. With one predictor an
    observation eta has shape (N,), with C of them (N, C).

    Attributes
    ----------
    For whoever corrects or criticises q. Observations whose log-likelihood has no curvature are not in the factor:

    predictors : Predictors
        The prior bound to all N observations.
    factor : Factor
        Its factorisation over the ``active`` observations; ``joint_factor()`` is over all of them.
    active : int array
        The observations in the factor.
    alpha, lam : arrays (N, C)
        The sites: log q(z) = log p(z) - alpha' W z - (W z - h)' Lam (W z - h) / 2 + constant.
    curvatures : array (N, C, C) or None
        Lam, where it is no diagonal and the predictors of a row are correlated under q.
    moments, active_moments : two arrays (N, C) each
        Mean and variance of eta at all, and at the active observations.
    extra_variance : array (N, C)
        Variance of eta that the latents do not explain, and q leaves as it is.
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
        """A prior of one predictor as q itself at n rows: nothing is observed."""
        everyone = prior.bind(n, 1, False)
        none = 0.0 * everyone.mt
        return cls(everyone, np.arange(n), everyone.at(none), (none, none), (everyone.mt, everyone.variance))

    def shaped(self, x: Array) -> Array:
        """(..., C) without its last axis where C = 1."""
        return x[..., 0] if self.predictors.n_predictors == 1 else x

    @cached_property
    def moments(self) -> tuple[Array, Array]:
        """h and rho of all observations (N, C); those without curvature are predicted from the others."""
        h, rho = self.active_moments
        n = self.predictors.n_observations
        if self.active.size == n:
            return h, rho  # nothing was set aside, or the only row was
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
        """c (N, C): what the latents do not explain, and q leaves as it is."""
        return self.predictors.extra_variance + 0.0 * self.predictors.mt

    @cached_property
    def weights(self) -> list[Array] | None:
        """The weights of alpha, where they are known more exactly than alpha itself."""
        return None if self._find_weights is None else self._find_weights()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "weights": self.weights, "_find_weights": None}  # a callable does not travel

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
        """E[z]: (L,), or (L, C) for independent predictors."""
        return self.predictors.latent_mean() - self.predictors.latent_shift(self.alpha, self.weights)

    @cached_property
    def latent_variance(self) -> Array:
        """Var[z]: (L,), or (L, C)."""
        if self.factor.own_latents:
            return self.factor.latent_variance()
        return self.predictors.as_latents(self.moments[1] - self.extra_variance)

    def latents(self) -> NormalMarginals:
        """The marginals of z."""
        return NormalMarginals(self.latent_mean, self.latent_variance)

    def latent_covariance(self) -> Array:
        """Cov[z]: (L, L), or (C, L, L) for predictors that are independent under q.

        Under ``bound="exact"`` of a softmax they are not: (C L, C L), predictor by predictor.
        """
        blocks = self.factor.latent_covariance()
        return blocks[0] if len(blocks) == 1 else namespace(blocks[0]).stack(blocks, axis=0)

    def moments_at(self, new: NewRows) -> tuple[Array, Array]:
        """Mean and variance (M, C) of eta at new rows, C = 1 included."""
        if isinstance(self.predictors, PredictsNewRows):
            m, v = self.predictors.predict(self.factor, self.alpha, new, self.weights)
        else:
            m, v = predicted(self.joint_factor(), self.alpha, new)
        return m, m if v is None else v  # a mean asked for alone: nobody reads the other

    def marginals_at(self, new: NewRows) -> NormalMarginals:
        mean, variance = (self.shaped(each) for each in self.moments_at(new))
        joint = self.curvatures is not None
        return NormalMarginals(mean, variance, (lambda: self.row_covariances(new)) if joint else None)

    def predict_mean(self, new: NewRows | None = None, **rows: Any) -> Array:
        """The mean of ``predict`` alone (M,) or (M, C): one product, where the variance takes M triangular ones."""
        new = NewRows(**rows) if new is None else new
        return self.shaped(self.moments_at(replace(new, variance=None, extra_variance=0.0, mean_only=True))[0])

    def predict_covariance(self, cross: Array, covariance: Array) -> Array:
        """Cov[eta] (M, M) at new rows of a prior that is given by its covariances, one predictor an observation.

        Parameters
        ----------
        cross : array (M, L)
            Covariance of the new eta with the latents: ``K(x_new, x)`` for a Gaussian process.
        covariance : array (M, M)
            A priori, of the new eta: ``K(x_new, x_new)``.
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
        """The variance of eta, or where the C predictors of a row are correlated their covariance (N, C, C)."""
        if not self.joint:
            return self.variance
        V = self.joint_factor().observation_covariance()
        return V + self.extra_variance[:, :, None] * asarray(np.eye(V.shape[1]), V)[None, ...]

    def row_covariances(self, new: NewRows) -> Array:
        """The covariance (M, C, C) of the C predictors of each new row.

        Diagonal where they are independent under q: under every bound of a softmax but "exact".
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
        """Cov[eta] of the observations: (N, N), or (C, N, N) for independent and (N*C, N*C) for correlated predictors.

        Refuses a size that cannot fit in memory. Rows that were unobserved are included.
        """
        n, C = self.predictors.n_observations, self.predictors.n_predictors
        bytes_needed = 8.0 * 3 * n * n * C * (C if self.joint else 1)
        limit = _physical_memory()
        if bytes_needed > limit:
            raise problem(
                "posterior.covariance",
                f"the covariance of {n} x {C} predictors needs {bytes_needed / 2**30:.1f} GiB "
                f"and {limit / 2**30:.1f} GiB are there",
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
        """A factorisation over all observations, the unobserved included."""
        everyone = self.active.size == self.predictors.n_observations
        return self.factor if everyone else self.predictors.at(self.lam)

    def sample(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of eta: (size, N) or (size, N, C). ``rng``: a numpy Generator or a seed."""
        rng, size = np.random.default_rng(rng), count("posterior.sample", "size", size)
        draws = self.joint_factor().sample(size, rng)
        if self.predictors.has_extra_variance:
            noise = asarray(rng.standard_normal(tuple(draws.shape)), draws)
            draws = draws + namespace(draws).sqrt(self.extra_variance)[None, ...] * noise
        return self.shaped(self.moments[0][None, ...] + draws)

    def sample_latents(self, size: int = 1, rng: Seed = None) -> Array:
        """Joint draws of z: (size, L), or (size, L, C) for independent predictors. ``rng``: a Generator or a seed.

        Of every prior, sparse and constrained ones too, whose draws keep to the constraints.
        """
        rng, size = np.random.default_rng(rng), count("posterior.sample_latents", "size", size)
        if self.factor.own_latents:
            return self.latent_mean[None, ...] + self.factor.sample_latents(size, rng)
        return self.latent_mean[None, ...] + self.predictors.as_latents(self.joint_factor().sample(size, rng))

    def cavity(self) -> tuple[Array, Array]:
        """Mean (N, C) and variance of each eta_n without its own observation. Nothing is refitted.

        v = rho / (1 - lam rho),  mean = h + alpha v; with predictors that are correlated a priori the same in matrices,
        v = (V_n^-1 - Lam_n)^-1 of shape (N, C, C). It is the latents that forget the observation: an extra variance c
        is not in rho there, and is added to v afterwards.
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
        """How the evidence changes with the prior: its mean, covariance or precision, design and extra variance.

        ``adjoint().covariance`` and so on; each is computed when it is read.
        """
        return PriorAdjoint(
            self.predictors, self.factor, self.active, (self.alpha, self.lam), find_weights=lambda: self.weights
        )

    def gradient_covariance(self) -> list[Array]:
        """dP/dSigma, the evidence gradient in the prior covariance, of each block (L, L)."""
        return self.adjoint().covariance

    def gradient_precision(self) -> list[Any]:
        """dP/dQ, the evidence gradient in a sparse prior precision, on its pattern, of each block."""
        return self.adjoint().precision

    def gradient_mean(self) -> list[Array]:
        """dP/dmu of each block (L,): -W' alpha."""
        return self.adjoint().mean
