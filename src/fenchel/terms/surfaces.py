"""Penalised surfaces: a tensor product has a basis U_i(x) V_j(z) of eigenfunctions of both penalties, and the precision

    a_i / sd_x^2 + b_j / sd_z^2,    diagonal

What neither penalises, (1, x) times (1, z), are fixed effects. Without main effects the margins are held to sum to zero
over the rows of the fit, and x times z is left.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np

from ..checks import choice, count, problem
from .bases import BASES, Basis, ByValues, Centred
from .smooths import LEAST, Curve

_FUNCTIONS = 5  # along a column


class Tensor(Curve):
    """A smooth surface, a tensor product with a penalty along each column: ``te(x, z)``.

    Parameters
    ----------
    x, z : names of columns of numbers
    bs : "cr", "ps" or "cc", or one for each
    k : int, or one for each, optional
        Basis functions along a column, 5 by default, or as many as it has different values.
    by, shared, name : as in ``Smooth``

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, Tensor
    >>> rng = np.random.default_rng(0)
    >>> term = Tensor("x", "z", k=4).read(DataTable("here", {"x": rng.random(40), "z": rng.random(40)}), 1.0)
    >>> term.n_latents, [h.name for h in term.hyperparameters]
    (12, ['sd along x', 'sd along z'])
    """

    word, r_names = "te", ("t2",)
    main: ClassVar[bool] = True  # whether curves of x alone and of z alone are part of it

    bases: list[Basis]
    vectors: list[np.ndarray]
    keep: np.ndarray  # which products are penalised

    def __init__(
        self,
        *x: Hashable,
        bs: str | Sequence[str] = "cr",
        k: int | Sequence[int] | None = None,
        by: Hashable = None,
        shared: bool = False,
        name: Hashable = None,
    ) -> None:
        if len(x) != 2:
            advice = "s(x) is a curve of one column, gp(x, z, w) a surface over several."
            raise problem("Tensor", f"{len(x)} columns", "two", advice)
        self.bs = (bs, bs) if isinstance(bs, str) else tuple(bs)
        for word in self.bs:
            choice("Tensor", "bs", word, ("cr", "ps", "cc"), "A thin plate of two columns is s(x, z)." * (word == "tp"))
        sizes = (k, k) if k is None or isinstance(k, int) else tuple(k)
        if len(self.bs) != 2 or len(sizes) != 2:
            raise problem("Tensor", f"bs = {bs!r}, k = {k!r}", "one of each, or one a column")
        self.k = tuple(
            None if n is None else count("Tensor", "k", n, LEAST[word]) for n, word in zip(sizes, self.bs, strict=True)
        )
        joined = f"{self.word}({x[0]}, {x[1]})" + ("" if by is None else f" by {by}")
        super().__init__(x, by, shared, joined if name is None else name)

    def prepare(self, where: str, u: np.ndarray, weights: np.ndarray | None) -> None:
        self.bases, self.vectors, values = [], [], []
        for j, (bs, k) in enumerate(zip(self.bs, self.k, strict=True)):
            along = u[:, j : j + 1]
            size = self.basis_size(where, f"{self.inputs[j]} in {self.name}", along, bs, k, max(_FUNCTIONS, LEAST[bs]))
            basis = BASES[bs](along, size)
            basis = ByValues(basis, size) if bs == "ps" else basis
            self.bases.append(basis if self.main else Centred(basis, along, weights))
            a, V = self.bases[j].eigen()
            values.append(a)
            self.vectors.append(V)
        both = np.stack([axis.ravel() for axis in np.meshgrid(*values, indexing="ij")])
        self.keep = np.asarray(both.any(axis=0))
        self.rates = both[:, self.keep]
        straight = [j for j, bs in enumerate(self.bs) if BASES[bs].straight]
        self.lines = [*((j,) for j in straight if self.main), *([(0, 1)] if len(straight) == 2 else [])]

    def penalised(self, u: np.ndarray) -> np.ndarray:
        A, B = (basis(u[:, [j]]) @ self.vectors[j] for j, basis in enumerate(self.bases))
        return np.asarray((A[:, :, None] * B[:, None, :]).reshape(len(u), -1)[:, self.keep])

    def words(self) -> list[str]:
        return [f"along {name}" for name in self.inputs]


class TensorInteraction(Tensor):
    """What a surface has beside a curve of each column: ``ti(x, z)`` in ``s(x) + s(z) + ti(x, z)``."""

    word, main = "ti", False
