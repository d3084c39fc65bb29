"""Preconditioners of Newton's system over N x L features: from the factor at hand, or by Woodbury in L x L."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..linalg import dense
from ..linalg.arrays import Array, is_numpy, namespace
from ..linalg.matrix_designs import array_design
from .newton_systems import CheapCurvature, NewtonSystem

if TYPE_CHECKING:
    from .weightspace import WeightsFactor


def on_device(x: Array) -> dict[str, Any]:
    """The device argument of array creation; numpy wants none."""
    return {} if is_numpy(x) else {"device": x.device}


class OwnFactor:
    """(diag(1/lam) + X X')^-1 = Lam - Lam X A^-1 X' Lam from the factor A = I + X' Lam X that is there already.

    It has ``diagonal`` = 1/lam - J^-1 - extra in place of the Hadamard term. Relative to 1/lam that is read off, and
    the other is at most max(slope^2 rho)/2, because the rows of (Vt o Vt) Lam sum to diag(Vt Lam Vt) <= rho.
    """

    def __init__(self, factor: WeightsFactor, system: NewtonSystem) -> None:
        xp, lam = namespace(system.g), factor.lam
        self.factor, self.signs, self.lam = factor, system.signs, lam
        away = lam / system.spread + lam * system.extra - 1.0
        hadamard = 0.5 * float(xp.max(system.slope**2 * factor.variance))
        self.left_out = float(xp.max(xp.abs(away))) + hadamard
        self.diagonal = -away / lam
        self.rest = system.extra + self.diagonal

    def solve(self, r: Array) -> Array:
        return self.lam * (r - self.signs * self.factor.apply(self.signs * self.lam * r))


class Woodbury(CheapCurvature):
    """Newton's cheap curvature, J of a softmax included: H is L x L for each block, or (C L) x (C L) for all."""

    def __init__(self, factor: WeightsFactor, system: NewtonSystem) -> None:
        super().__init__(factor, system)
        self.blocks, self.features = factor.blocks, factor.predictors.features
        self.left_out = self._left_out(factor, system)
        xp, total, signed = namespace(system.g), self.total, self.signs * self.d
        weight = self.signs * signed
        if total is None or len(self.features) == 1:
            parts = self.blocks.split(system.to_predictors(weight))
            grams = [X.gram(w) for X, w in zip(self.features, parts, strict=True)]
            if total is not None:
                Z = self.features[0].toarray() * xp.reshape(signed, (-1,))[:, None]
                Z = xp.sum(xp.reshape(Z, (self.blocks.n, -1, Z.shape[1])), axis=1)  # the rows of each observation
                grams = [grams[0] - array_design(Z).gram(1.0 / total)]
        else:
            grams = [self._coupled_gram(signed, weight, total)]
        self.factors = [dense.cholesky(H + xp.eye(H.shape[0], dtype=xp.float64, **on_device(H))) for H in grams]

    @staticmethod
    def _left_out(factor: WeightsFactor, system: NewtonSystem) -> float:
        """The Hadamard term relative to J^-1: at most max_n D_n rho_n / (2 lam_n) for J <= D = diag.

        D is spread; or, for potentials that share a normalisation, P times the diagonal of J.
        """
        xp, lam, share = namespace(system.g), factor.lam, system.spread
        choices = [share]
        if system.slack is not None:
            total = (system.slack + xp.sum(share, axis=1))[:, None]
            choices.append(share.shape[1] * share * (1.0 - share / total))
        result = []
        for D in choices:
            D = system.to_predictors(system.slope**2 * D)
            ratio = D * factor.variance / xp.where(lam > 0.0, lam, xp.ones_like(lam))
            none = xp.zeros_like(lam)
            result.append(xp.where(lam > 0.0, ratio, xp.where(D > 0.0, none + xp.inf, none)))
        return 0.5 * min(float(xp.max(x)) for x in result)

    def _coupled_gram(self, signed: Array, weight: Array, total: Array) -> Array:
        """X' Jt X across the blocks of a softmax; it is symmetric, so half of it is computed."""
        xp, n = namespace(signed), len(self.features)
        grid: list[list[Any]] = [[None] * n for _ in range(n)]
        for b, X in enumerate(self.features):
            for c in range(b, n):
                w = signed[:, b] * signed[:, c] / total
                if b == c:
                    grid[b][b] = X.gram(weight[:, b] - w)
                else:
                    grid[b][c] = -X.between(w, self.features[c])
                    grid[c][b] = grid[b][c].T
        return xp.concat([xp.concat(row, axis=1) for row in grid], axis=0)

    def inside(self, x: Array) -> Array:
        inner = [X.adjoint(part) for X, part in zip(self.features, self.blocks.split(x), strict=True)]
        if len(self.factors) < len(inner):
            u, L = dense.solve_cholesky(self.factors[0], namespace(x).concat(inner)), inner[0].shape[0]
            solved = [u[b * L : (b + 1) * L] for b in range(len(inner))]
        else:
            solved = [dense.solve_cholesky(F, part) for F, part in zip(self.factors, inner, strict=True)]
        return self.blocks.join([X.times(u) for X, u in zip(self.features, solved, strict=True)])
