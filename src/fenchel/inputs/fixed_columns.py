"""Columns of fixed effects, centred and scaled: z = (x - centre) / scale, so that x beta + b = z gamma + c with

    beta = gamma / scale,    b = c - sum_j centre_j beta_j

c is the value of eta at the mean of all columns, and gamma_j the effect of one standard deviation of column j. A prior
of c and gamma therefore does not depend on the units and the origin of the columns. The columns of the design have
length sqrt(N) and are nearly orthogonal to the intercept, so that a wide prior loses no digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..checks import finite, problem
from ..linalg.arrays import ArrayLike
from ..linalg.standardized import ColumnMoments, column_moments
from ..marginals import Answers
from ..solvers.solution import Solution

_EPS = float(np.finfo(np.float64).eps)
_DEPENDENT_SHARE = 1e-9  # a column is dependent if less than this share of it remains after projection on the others
_FEW = 3  # number of names that a message lists
_SIZES = {True: (1e-152, 1e152), False: (1e-60, 1e60)}  # scaled, or not: sizes whose squares are in range
_SMALLEST = 1e-290  # smallest standard deviation for which a coefficient is representable


@dataclass(frozen=True)
class Columns:
    """The centres and scales of p columns.

    Attributes
    ----------
    names : tuple of str
    centre, scale : arrays (p,)
        Weighted mean and standard deviation over the observed rows. Without centring, 0 and the root mean square.
        A column that does not vary has scale 1, and its coefficient keeps its prior.
    rest : array (p,)
        Rounding error of ``centre``: the mean is ``centre + rest``. It matters for columns far from 0 that hardly vary.
    constant : tuple of int
        The columns that do not vary over the observed rows.
    dependent : tuple of (int, tuple of int)
        Columns that are linear combinations of earlier ones (and the intercept), with the indices of these.
    """

    names: tuple[str, ...]
    centre: np.ndarray
    scale: np.ndarray
    rest: np.ndarray
    constant: tuple[int, ...] = ()
    dependent: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def of(
        cls, where: str, X: np.ndarray, names: Sequence[str], weights: ArrayLike | None = None, centred: bool = True
    ) -> Columns:
        """Centres and scales from the rows of X (N, p) whose weight is positive."""
        finite(where, "fixed", X)
        w = np.ones(X.shape[0]) if weights is None else np.asarray(weights, dtype=np.float64)
        seen, p = w > 0.0, X.shape[1]
        if not seen.any() or p == 0:
            return cls(tuple(map(str, names)), np.zeros(p), np.ones(p), np.zeros(p))
        X, w = X[seen], w[seen] / w.max()
        mean, sd, rest, same = column_moments(X, w)
        if not centred:
            mean, sd, rest = np.zeros(p), np.hypot(mean, sd), np.zeros(p)
            same = sd == 0.0
        tiny = ~same & (sd < _SMALLEST)
        if tiny.any():
            j = int(np.argmax(tiny))
            got = f"the column {names[j]!r} has standard deviation {sd[j]:.1e}"
            raise problem(where, got, "numbers far from the end of double precision", "Give it in a larger unit.")
        scale = np.where(same, 1.0, sd)
        centre, beyond = np.where(same & centred, X[0], mean), np.where(same, 0.0, rest)
        Z = np.sqrt(w)[:, None] * (X - centre - beyond) / scale
        noise = _EPS * np.abs(X).max(axis=0) / scale
        return cls(tuple(map(str, names)), centre, scale, beyond, *_unidentified(same, Z, noise))

    @classmethod
    def by_moments(
        cls, names: Sequence[str], mean: np.ndarray, spread: np.ndarray, size: np.ndarray, centred: bool = True
    ) -> Columns:
        """The same from the mean (p,), the covariance (p, p) and the largest entry (p,) of columns not in memory."""
        sd, p = np.sqrt(np.maximum(np.diag(spread), 0.0)), len(names)
        same = sd <= 4.0 * _EPS * np.abs(mean)
        if not centred:
            sd, same = np.hypot(mean, sd), (mean == 0.0) & (sd == 0.0)
            spread = spread + np.outer(mean, mean)
        scale = np.where(same, 1.0, sd)
        values, vectors = np.linalg.eigh(spread / np.outer(scale, scale))
        root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T  # root' root is the covariance
        noise = _EPS**0.5 * _DEPENDENT_SHARE + _EPS * size / scale
        centre = mean if centred else np.zeros(p)
        return cls(tuple(map(str, names)), centre, scale, np.zeros(p), *_unidentified(same, root, noise))

    def standardise(self, X: np.ndarray) -> np.ndarray:
        """The standardised columns (x - centre) / scale of new rows (M, p)."""
        return (X - self.centre - self.rest) / self.scale

    def tail(self, X: np.ndarray, intercept: bool) -> np.ndarray:
        """The design (M, intercept + p) of c and gamma at rows in the user's units."""
        return np.hstack([np.ones((X.shape[0], int(intercept))), self.standardise(X)])

    def to_user(self, intercept: bool) -> np.ndarray:
        """The matrix T with (b, beta) = T (c, gamma); without an intercept its first row and column are left out."""
        T = np.diag(np.r_[1.0, 1.0 / self.scale])
        T[0, 1:] = -self.centre / self.scale - self.rest / self.scale
        return T if intercept else T[1:, 1:]

    def fixed_effects(self, solution: Solution | Answers, intercept: bool) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of (b, beta), or of beta alone, from a fit whose last latents are (c, gamma).

        Other posteriors, such as ``Solution.corrected()``, give it through variances of sums of latents.
        """
        T = self.to_user(intercept)
        if not isinstance(solution, Solution):
            return _by_sums(solution, T)
        posterior = solution.posterior
        L, p = posterior.latent_mean.shape[0], T.shape[0]
        right = np.zeros((L, p))
        right[L - p :] = T.T
        [part] = posterior.factor.parts  # type: ignore[attr-defined]
        covariance = right.T @ part.solve(right)
        return T @ posterior.latent_mean[L - p :], (covariance + covariance.T) / 2

    def complaints(self) -> list[str]:
        """Sentences about coefficients that the data do not identify: constant columns, and linear combinations."""
        out, constant, dependent = [], self.constant, [j for j, _ in self.dependent]
        if len(constant) == 1:
            same = f"{self.centre[constant[0]]:.10g} in every observed row"
            out.append(f"{self._listed(constant)} is {same}, so its coefficient keeps its prior: leave it out")
        elif constant:
            verb = "do not vary over the observed rows"
            out.append(f"{self._listed(constant)} {verb}, so each coefficient keeps its prior: leave them out")
        if len(dependent) == 1:
            others = self.dependent[0][1]
            beside = ", ".join(repr(self.names[k]) for k in others[:6]) + (", ..." if len(others) > 6 else "")
            out.append(
                f"{self._listed(dependent)} is a linear combination of {beside} and the level, so only their sum is "
                "known and each coefficient is as wide as its prior: leave one of them out"
            )
        elif dependent:
            out.append(
                f"{self._listed(dependent)} are linear combinations of others and the level, so only sums are known "
                f"and each coefficient is as wide as its prior ({len(self.names)} columns in all): leave them out"
            )
        return out

    def _listed(self, which: Sequence[int]) -> str:
        return name_list("column", [self.names[j] for j in which])


def name_list(noun: str, names: Sequence[str]) -> str:
    """A list of names in words, such as: the columns 'a', 'b', 'c' and 4 more."""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    shown = ", ".join(repr(name) for name in names[:_FEW])
    return f"the {noun}{'s' if len(names) > 1 else ''} {shown}{more}"


def _by_sums(answers: Answers, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of T times the last latents: Cov(a, b) = (Var(a + b) - Var(a) - Var(b)) / 2."""
    p, L = T.shape[0], int(np.shape(answers.latents().mean)[0])
    unit = T / np.sqrt(np.maximum((T * T).sum(axis=1, keepdims=True), 1e-300))
    i, j = np.triu_indices(p, 1)
    both = np.vstack([unit, unit[i] + unit[j]])
    sums = answers.at(design=sp.csr_array(np.hstack([np.zeros((both.shape[0], L - p)), both])))
    mean, variance = np.asarray(sums.mean)[:p], np.asarray(sums.variance)
    C = np.diag(variance[:p])
    C[i, j] = C[j, i] = (variance[p:] - variance[i] - variance[j]) / 2
    size = np.sqrt((T * T).sum(axis=1))
    return size * mean, size[:, None] * C * size


def _unidentified(
    same: np.ndarray, Z: np.ndarray, noise: np.ndarray
) -> tuple[tuple[int, ...], tuple[tuple[int, tuple[int, ...]], ...]]:
    """Find the columns that the data do not identify: constant ones, and those that depend on earlier ones.

    ``same`` marks constant columns. Each other column of Z (standardised) is projected on those before it, with
    orthogonalisation done twice; ``noise`` is the rounding error of each column.
    """
    basis: np.ndarray = np.zeros(Z.shape, order="F")
    kept: list[int] = []
    out: list[tuple[int, tuple[int, ...]]] = []
    for j in np.flatnonzero(~same).tolist():
        z, B = Z[:, j] / np.linalg.norm(Z[:, j]), basis[:, : len(kept)]
        rest = z - B @ (B.T @ z)
        rest -= B @ (B.T @ rest)
        remaining = float(np.linalg.norm(rest))
        if remaining > max(_DEPENDENT_SHARE, 30.0 * float(noise[[*kept, j]].max())):
            basis[:, len(kept)] = rest / remaining
            kept.append(j)
            continue
        share = np.linalg.lstsq(Z[:, kept], Z[:, j], rcond=None)[0]
        out.append((j, tuple(k for k, s in zip(kept, share, strict=True) if abs(s) > 1e-6)))
    return tuple(np.flatnonzero(same).tolist()), tuple(out)


def centres_and_units(
    where: str, moments: ColumnMoments, names: Sequence[str], centre: bool, scale: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The shift (D,) of each column, its rounding error, its unit, and whether the column is constant.

    The shift is the weighted mean and the unit the standard deviation; without centring they are 0 and the root mean
    square. The unit of a constant column is its absolute value, or 1 for zeros. Without scaling every unit is 1.
    """
    mean, sd, rest, constant = moments
    size = np.where(constant, np.abs(mean), sd) if centre else np.hypot(mean, sd)
    size = np.where(size > 0.0, size, 1.0)
    low, high = _SIZES[scale]
    bad = ~((size >= low) & (size <= high))
    if bad.any():
        d = int(np.argmax(bad))
        word = "standard deviation" if centre and not constant[d] else "size"
        advice = "Give it in another unit" + ("." if scale else ", or leave standardize=True.")
        raise problem(where, f"column {names[d]!r} of X has {word} {size[d]:.3g}", f"{low:g} to {high:g}", advice)
    unit = size if scale else np.ones_like(size)
    if centre:
        return mean, rest, unit, constant
    return np.zeros_like(mean), np.zeros_like(mean), unit, np.zeros_like(constant)
