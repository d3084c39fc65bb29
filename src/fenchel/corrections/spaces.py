"""The space of draws for each kind of prior.

    weights     v = R^-1 (z - m), cov A^-1, A = I + X' Lam X      eta - h = X v,  X = W R,  R R' = Sigma        L < N
    rows        the same with eta in place of z: R R' = S         eta - h = R v                                 N <= L
    sparse      z - m itself, cov (Q + W' Lam W)^-1               eta - h = W (z - m), constraints kept
    classes     weights or sparse for the latents of all classes together, if they are dependent under q
    any prior   eta - h itself, by the draws of the factor

In the space of rows a latent, an unobserved row or a new row is not a function of the state.

A is decomposed along its eigenvectors, those with the most information first, because quasi-random points are best in
their first coordinates.
"""

from __future__ import annotations

import numpy as np

from ..checks import problem
from ..linalg.arrays import Array, asarray, to_numpy
from ..linalg.dense import cholesky, log_det, solve_lower
from ..linalg.design import Design, Identity, Scaled
from ..linalg.matrix_designs import array_design
from ..posterior import Posterior
from ..priors.base import NewRows
from ..priors.predictors import Latents, new_rows
from .states import MIXTURE, Space, States, Unknowns, in_observations

_SPLIT = 1024  # size up to which eigenvectors are used, which cost more than four Choleskys


class WeightSpace(Space):
    """The space for priors with few weights and many rows."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        self.latent, self.parts = self.everyone.latents, self.factor.parts
        known = []
        for part in self.parts:
            L = np.tril(to_numpy(part.L))
            known.append(L @ L.T - np.eye(L.shape[0]))
        self._split(known)
        self.roots[0] = [to_numpy(p.U) if p.by_rows else U for p, U in zip(self.parts, self.roots[0], strict=True)]

    def _split(self, known: list[Array]) -> None:
        """A root of (I + c G)^-1 for each strength c of the sites and G = X' Lam X of each block."""
        self.roots: list[list[np.ndarray]] = [[] for _ in MIXTURE]
        self.log_dets = [0.0 for _ in MIXTURE]
        for G in known:
            for k, (U, own) in enumerate(inverse_roots(to_numpy(G))):
                self.roots[k].append(U)
                self.log_dets[k] += own
        self.log_dets[0] = float(self.factor.log_det)
        self.sizes = [U.shape[1] for U in self.roots[0]]

    def _drawn(self, normals: States, k: int, rng: np.random.Generator) -> States:
        return [U @ u for U, u in zip(self.roots[k], normals, strict=True)]

    def active(self) -> list[Design]:
        return [part.X for part in self.parts]

    def _eta(self) -> list[Design]:
        return list(self.everyone.features)

    def _latents(self) -> list[Design]:
        roots = [z.root for z in self.latent]
        return [Scaled(Identity(R.shape[0], R), R) if R.ndim == 1 else array_design(R) for R in roots]

    def on_states(self, rows: list[Design]) -> list[Design]:
        """Rows over the latents as rows over the states."""
        return [z.whiten(row) for z, row in zip(self.latent, rows, strict=True)]

    def on_states_by_cross(self, rows: list[Array]) -> list[Design]:
        """The same of rows given by their covariances with the latents."""
        return [array_design(z.whiten_cross(row)) for z, row in zip(self.latent, rows, strict=True)]

    def _explained(self, designs: list[Design]) -> list[Array]:
        return [
            to_numpy(W.row_squares(asarray(U, W.like))) if W.shape[0] else np.zeros(0)
            for W, U in zip(designs, self.roots[0], strict=True)
        ]

    def joint_latents(self, states: States, rng: np.random.Generator) -> States:
        return [to_numpy(z.color(asarray(v, z.mean))) for z, v in zip(self.latent, states, strict=True)]


class RowSpace(WeightSpace):
    """The space for few rows: the state is the whitened eta of the rows with curvature, R R' = S."""

    def __init__(self, posterior: Posterior) -> None:
        Space.__init__(self, posterior)
        self.seen = self.factor.predictors
        self.latent, known = [], []
        made: dict[int, Latents] = {}  # blocks with the same S share its root
        for part in self.factor.parts:
            if id(part.block) not in made:
                S = to_numpy(part.block.S)
                made[id(part.block)] = Latents(np.zeros(S.shape[0]), S)
            eta = made[id(part.block)]
            R = eta.root
            self.latent.append(eta)
            known.append(R.T @ (to_numpy(part.lam)[:, None] * R))
        self._split(known)

    def active(self) -> list[Design]:
        return [array_design(eta.root) for eta in self.latent]

    def _eta(self) -> list[Design]:
        if self.posterior.active.size == self.everyone.n_observations:
            return self.active()
        return self._known_by([z.between(W, seen) for z, W, seen in self._blocks()])

    def _latents(self) -> list[Design]:
        if all(seen.identity for _, _, seen in self._blocks()):
            return self.active()
        return self._known_by([z.cross(seen).T for z, _, seen in self._blocks()])

    def _new_rows(self, new: NewRows) -> list[Design]:
        rows, _ = self.seen.new_rows(new)
        if new.design is not None:
            return self._known_by(
                [z.between(row, seen) for (z, _, seen), row in zip(self._blocks(), rows, strict=True)]
            )
        return self._known_by([seen.times(row.T).T for (_, _, seen), row in zip(self._blocks(), rows, strict=True)])

    def _blocks(self) -> list[tuple[Latents, Design, Design]]:
        """For each block the latents, the rows of all observations, and the rows with curvature."""
        return list(zip(self.everyone.latents, self.everyone.designs, self.seen.designs, strict=True))

    def _known_by(self, crosses: list[Array]) -> list[Design]:
        """Designs for unknowns given by their prior covariances with eta (M, n), for each block."""
        return [
            array_design(eta.whiten_cross(to_numpy(cross))) for eta, cross in zip(self.latent, crosses, strict=True)
        ]

    def joint_latents(self, states: States, rng: np.random.Generator) -> States:
        """Joint draws of z: draws of the prior, corrected by the difference between the state and that of the draw."""
        out = []
        for (z, _, seen), eta, X, v in zip(self._blocks(), self.latent, self._latents(), states, strict=True):
            noise = asarray(rng.standard_normal((z.root.shape[-1], v.shape[1])), z.mean)
            prior = z.color(noise)
            own = eta.whiten_cross(to_numpy(seen.times(prior)).T).T
            out.append(to_numpy(prior) + X.times(v - own))
        return out


class SparseSpace(Space):
    """The space for a sparse precision: the state is z - m."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        weak = [self.factor.predictors.at(c * self.factor.lam) for c, _ in MIXTURE[1:]]
        self.factors = [self.factor, *weak]
        self.log_dets = [float(factor.log_det) for factor in self.factors]
        self.sizes = [part.n for part in self.factor.parts]

    def _drawn(self, normals: States, k: int, rng: np.random.Generator) -> States:
        return [part.sample(u) for part, u in zip(self.factors[k].parts, normals, strict=True)]

    def active(self) -> list[Design]:
        return self.factor.predictors.designs

    def _eta(self) -> list[Design]:
        return list(self.everyone.designs)

    def _latents(self) -> list[Design]:
        return [Identity(n) for n in self.sizes]

    def on_states(self, rows: list[Design]) -> list[Design]:
        """Rows over the latents as rows over the states, which are the latents."""
        return rows

    def on_states_by_cross(self, rows: list[Array]) -> list[Design]:
        """The same of rows given by their covariances with the latents."""
        precision = self.factor.pattern.matrix(self.factor.pattern.q)
        return [array_design((precision @ row.T).T) for row in rows]

    def eta(self) -> Unknowns:
        return Unknowns(self._eta(), to_numpy(self.posterior.mean), to_numpy(self.posterior.variance))

    def latents(self) -> Unknowns:
        post = self.posterior
        return Unknowns(self._latents(), to_numpy(post.latent_mean), to_numpy(post.latent_variance))

    def _explained(self, designs: list[Design]) -> list[Array]:
        return self.factor.variance_blocks(designs)

    def joint_latents(self, states: States, rng: np.random.Generator) -> States:
        return states


class ClassesSpace(Space):
    """The space for classes that are dependent under q: that of the latents of all classes, one after the other."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        joint = self.factor.joint
        sites = (joint.lam, joint.lam)  # those of the contrasts, which are not used
        self.joint = _SPACES[joint.predictors.draws_of](
            Posterior(joint.predictors, posterior.active, joint, sites, sites)
        )
        self.log_dets, self.sizes = self.joint.log_dets, self.joint.sizes

    def _drawn(self, normals: States, k: int, rng: np.random.Generator) -> States:
        return self.joint._drawn(normals, k, rng)

    def active(self) -> list[Design]:
        return self._eta()

    def _eta(self) -> list[Design]:
        return self.on_states(self.everyone.designs)

    def _latents(self) -> list[Design]:
        place = np.arange(sum(self.sizes)).reshape(self.factor.copies, -1)  # class by class
        return [self.joint._latents()[0].take(place.T.ravel())]

    def on_states(self, rows: list[Design]) -> list[Design]:
        return self.joint.on_states([self.factor.predictor_rows(rows)])

    def on_states_by_cross(self, rows: list[Array]) -> list[Design]:
        return self.joint.on_states_by_cross([self.factor.predictor_cross(rows)])

    def _explained(self, designs: list[Design]) -> list[Array]:
        return self.joint._explained(designs)

    def joint_latents(self, states: States, rng: np.random.Generator) -> States:
        return [to_numpy(z) for z in self.factor.split(self.joint.joint_latents(states, rng)[0])]


class EtaSpace(Space):
    """The space for any prior, by the draws of its factor: the state is eta - h itself."""

    quasi = False

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        self.factor = posterior.joint_factor()
        weak = [self.factor.predictors.at(c * self.factor.lam) for c, _ in MIXTURE[1:]]
        self.factors = [self.factor, *weak]
        self.log_dets = [float(factor.log_det) for factor in self.factors]
        self.sizes = [int(np.prod(self.everyone.mt.shape))]

    def _drawn(self, normals: States, k: int, rng: np.random.Generator) -> States:
        drawn = to_numpy(self.factors[k].sample(normals[0].shape[1], rng))
        return [drawn.reshape(drawn.shape[0], -1).T]

    def active(self) -> list[Design]:
        C, rows = self.everyone.n_predictors, self.posterior.active
        return [Identity(self.sizes[0]).take((rows[:, None] * C + np.arange(C)).ravel())]

    def _eta(self) -> list[Design]:
        return [Identity(self.sizes[0])]

    def _latents(self) -> list[Design]:
        if self.factor.own_latents:
            got = f"{type(self.everyone).__name__} has latents that draws of eta do not tell"
            raise problem("importance", got, "DenseCovariance, Features or SparsePrecision", "Read eta instead.")
        return self._eta()

    def _new_rows(self, new: NewRows) -> list[Design]:
        if new.design is None or self.everyone.n_predictors > 1 or self.factor.own_latents:
            got = f"{type(self.everyone).__name__} does not say what new rows have to do with draws of eta"
            raise problem("importance", got, "DenseCovariance, Features or SparsePrecision")
        return new_rows(new, self.sizes[0], 1, 1, self.everyone.mt)[0]

    def _explained(self, designs: list[Design]) -> list[Array]:
        if designs[0].identity:
            return [to_numpy(self.posterior.moments[1] - self.posterior.extra_variance).ravel()]
        rows = to_numpy(designs[0].toarray())
        return [
            np.array([row @ to_numpy(self.factor.apply(asarray(row[:, None], self.factor.lam))[:, 0]) for row in rows])
        ]

    def joint_latents(self, states: States, rng: np.random.Generator) -> States:
        self._latents()
        return states

    def joint_eta(self, states: States, rng: np.random.Generator) -> np.ndarray:
        return in_observations(states[0], self.everyone.mt.shape)


_SPACES: dict[str, type[Space]] = {
    "weights": WeightSpace,
    "rows": RowSpace,
    "latents": SparseSpace,
    "eta": EtaSpace,
}  # by ``Predictors.draws_of``


def space_of(posterior: Posterior) -> Space:
    """The space of draws for a posterior, chosen by its prior."""
    if posterior.factor is None:
        got = f"a {type(posterior).__name__} is a Gaussian of another form"
        raise problem("importance", got, "a fit by infer: its prior times one Gaussian site for each observation")
    kind = ClassesSpace if posterior.curvatures is not None else _SPACES[posterior.predictors.draws_of]
    return kind(posterior)


def inverse_roots(G: np.ndarray) -> list[tuple[np.ndarray, float]]:
    """U with U U' = A^-1, and log|A|, where A = I + c G, for each strength c.

    U is computed by eigenvectors, the largest eigenvalue first, or by Cholesky for large matrices.
    """
    n = G.shape[0]
    if n > _SPLIT:
        out = []
        for c, _ in MIXTURE:
            L = cholesky(np.eye(n) + c * G)
            out.append((np.asarray(solve_lower(L, np.eye(n), transposed=True)), log_det(L)))
        return out
    values, vectors = np.linalg.eigh((G + G.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    each = [np.maximum(1.0 + c * values, 1e-15 * (1.0 + values[0])) for c, _ in MIXTURE]
    return [(vectors / np.sqrt(a), float(np.log(a).sum())) for a in each]
