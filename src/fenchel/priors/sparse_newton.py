"""The cheap part of Newton's curvature under a sparse precision, S + 1/2 diag(rho^2), inverted by one factorisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..linalg.arrays import Array, to_numpy
from ..linalg.cg import conjugate_gradients
from ..linalg.factorisation import Factorisation, analyse
from ..linalg.sparse import symmetric_csc
from .newton import NewtonSystem
from .sparsity import Pattern

if TYPE_CHECKING:
    from .sparse import SparseFactor


_ALIKE = 1.5  # the most by which weights may differ for a factor of one to precondition the other: 8 rounds to 1e-8
_SOLVED = 1e-8  # relative residual of that
_STEEP = 150.0  # multiplications of a factorisation for each entry of L, of which a solve takes two


class SparseCurvature:
    """J^-1 + extra + 1/2 diag(rho^2) + S on the potentials: solved by one more factorisation of the same pattern.

    Where factorising costs much more than solving and the weights differ little from lam, whose factor there is, that
    one preconditions conjugate gradients: the condition number is at most the range of their ratios.

    With Jt = (J^-1 + extra + diagonal)^-1 it is Jt - Jt W (Q + W' Jt W)^-1 W' Jt. A softmax couples its classes through
    Jt: then the blocks W' diag(Jt_bc) W stand side by side in one matrix of C L latents, its pattern analysed once.
    """

    def __init__(self, factor: SparseFactor, system: NewtonSystem) -> None:
        self.blocks, self.W, self.system, self.signs = factor.blocks, factor.W, system, system.signs
        self.diagonal = 0.5 * system.slope**2 * system.to_potentials(factor.variance) ** 2
        self.rest = system.extra + self.diagonal
        self.d = to_numpy(system.spread / (1.0 + system.spread * self.rest))
        self.total = None if system.slack is None else system.slack + self.d.sum(axis=1)
        P, self.other = factor.pattern, None
        if self.total is None and (given := self._given(factor)) is not None:
            self.other, self.d, self.factors = 1.0 / self.d - 1.0 / given, given, factor.parts
        elif self.total is None:
            weight = self.blocks.split(system.to_predictors(self.signs**2 * self.d))
            self.factors = [P.factor(to_numpy(w)) for w in weight]
        elif len(self.blocks.groups) > 1:
            self.factors = [self._coupled(P)]
        else:
            m, flat = self.blocks.n_predictors, np.reshape(self.signs * self.d, -1)
            pool = sp.kron(sp.eye_array(self.blocks.n), np.ones((1, m)), format="csr")
            Z = pool @ self.W.multiply(flat[:, None]).tocsr()
            Q = P.matrix(P.q + P.rows.products @ self.d.reshape(-1))
            self.factors = [self._held(P, sp.csc_array(Q - Z.T @ sp.diags_array(1.0 / self.total) @ Z))]

    def _given(self, factor: SparseFactor) -> np.ndarray | None:
        """The d whose weights are lam, where its factor serves."""
        system = self.system
        if factor.pattern.steepness < _STEEP or system.layout != tuple(range(factor.lam.shape[1])):
            return None
        with np.errstate(all="ignore"):
            given = to_numpy(factor.lam / self.signs**2)
            ratio = given / self.d
            alike = np.min(ratio, initial=1.0) * _ALIKE >= np.max(ratio, initial=1.0) > 0.0
        return given if alike and np.isfinite(given).all() and (given > 0.0).all() else None

    def _coupled(self, P: Pattern) -> Factorisation:
        signed, C = self.signs * self.d, len(self.blocks.groups)

        def block(b: int, c: int) -> Any:
            data = -(P.rows.products @ (signed[:, b] * signed[:, c] / self.total))
            if b == c:
                data = data + P.q + P.rows.products @ (self.signs[:, b] ** 2 * self.d[:, b])
            return P.matrix(data)

        joint = sp.block_array([[block(b, c) for c in range(C)] for b in range(C)], format="csc")
        return self._held(P, joint, C)

    @staticmethod
    def _held(P: Pattern, joint: Any, copies: int = 1) -> Factorisation:
        """Factorise under the constraints, reusing the analysis of the last matrix with this pattern."""
        joint = symmetric_csc(joint)
        if P.joint is None or not P.joint.same_pattern(joint):
            P.joint = analyse(joint, P.constraint and P.constraint.repeated(copies))
        return P.joint.factor(joint.data)

    def _J(self, x: Array) -> Array:
        out = self.d * x
        return out if self.total is None else out - self.d * (np.sum(out, axis=1) / self.total)[:, None]

    def solve(self, r: Array) -> Array:
        other = self.other
        if other is None:
            return self._applied(r)
        return conjugate_gradients(self._applied, lambda z: other * z, r, _SOLVED, max_iter=40)[0]

    def _applied(self, r: Array) -> Array:
        """(D^-1 + a S a')^-1 r of the weights that were factorised."""
        Jr = self._J(r)
        inner = [self.W.T @ x for x in self.blocks.split(self.system.to_predictors(self.signs * Jr))]
        if len(self.factors) < len(inner):
            solved = np.split(self.factors[0].solve(np.concatenate(inner)), len(inner))
        else:
            solved = [F.solve(x) for F, x in zip(self.factors, inner, strict=True)]
        back = self.blocks.join([self.W @ u for u in solved])
        return Jr - self._J(self.signs * self.system.to_potentials(back))
