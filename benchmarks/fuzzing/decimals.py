"""Linear algebra of small matrices in 60 digits: numpy arrays of ``decimal.Decimal``."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, getcontext
from decimal import Decimal as D
from typing import Any

import mpmath
import numpy as np

DIGITS = 60
mpmath.mp.dps = DIGITS
PI = D(mpmath.nstr(mpmath.pi, DIGITS))
ZERO, ONE, TWO = D(0), D(1), D(2)


def set_digits() -> None:
    """Of this thread's decimals, and the widest range of exponents."""
    context = getcontext()
    context.prec, context.Emax, context.Emin = DIGITS, MAX_EMAX, MIN_EMIN


def exact(x: Any) -> Any:
    """Floats as the decimals they are."""
    return np.vectorize(lambda v: D(float(v)), otypes=[object])(np.asarray(x, dtype=float))


def cholesky(A: Any) -> Any:
    """Lower root of a positive definite matrix of decimals; ArithmeticError otherwise."""
    A, n = A.copy(), A.shape[0]
    L = np.full((n, n), ZERO, dtype=object)
    for k in range(n):
        if not A[k, k] > 0:
            raise ArithmeticError("not positive definite")
        root = A[k, k].sqrt()
        column = A[k:, k] / root
        L[k:, k] = column
        A[k + 1 :, k + 1 :] -= column[1:, None] * column[None, 1:]
    return L


def is_semidefinite(A: Any, floor: D = ZERO) -> bool:
    """Whether a matrix of decimals is positive semidefinite, by elimination with diagonal pivots."""
    A = A.copy()
    while A.shape[0]:
        k = int(np.argmax(np.diag(A)))
        if A[k, k] <= floor:
            return bool(A[k, k] >= -floor) and bool(np.all(np.abs(A) <= max(floor, D("1e-45") * abs(A[k, k]))))
        keep = [i for i in range(A.shape[0]) if i != k]
        A = A[np.ix_(keep, keep)] - A[keep, k][:, None] * A[k, keep][None, :] / A[k, k]
    return True


def identity(n: int) -> Any:
    return exact(np.eye(n))


def eliminate(A: Any, b: Any) -> Any:
    """A^-1 b by elimination with pivoting, entries of any exact kind."""
    A, b = A.copy(), b.copy()
    n = A.shape[0]
    for k in range(n):
        j = k + int(np.argmax(np.abs(A[k:, k])))
        if j != k:
            A[[k, j]], b[[k, j]] = A[[j, k]], b[[j, k]]
        ratio = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k + 1 :] -= ratio[:, None] * A[k, k + 1 :][None, :]
        b[k + 1 :] -= ratio[:, None] * b[k][None, :]
    for k in reversed(range(n)):
        b[k] = b[k] / A[k, k]
        b[:k] -= A[:k, k][:, None] * b[k][None, :]
    return b


def forward(L: Any, b: Any) -> Any:
    """L^-1 b."""
    b = b.copy()
    for k in range(L.shape[0]):
        b[k] = b[k] / L[k, k]
        b[k + 1 :] -= L[k + 1 :, k][:, None] * b[k][None, :]
    return b
