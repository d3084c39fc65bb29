"""scikit-learn's kernels, evaluated and differentiated without a tensor.

    evaluate(kernel, X) = K,      contract(kernel, X, G)_p = sum_ij G_ij dK_ij/dtheta_p

theta is the kernel's own: the logs of its free hyperparameters. Sums and products pass G down the tree (a product's
other factor is multiplied into it), so that the peak is a few N x N matrices whatever the number of parameters:

    stationary, r^2 = sum_d (x_d - x'_d)^2 / l_d^2:   dK_ij/dlog l_d = w_ij (x_id - x_jd)^2 / l_d^2
    sum_ij H_ij (x_id - x_jd)^2 = 2 (sum_i (H 1)_i x_id^2 - sum_i x_id (H X)_id),    H = G o w symmetric

A kernel of one or two hyperparameters, or one that is not known here, is asked for its own ``eval_gradient``, which
builds the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from .checks import problem

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

Matrix = np.ndarray


def evaluate(kernel: Kernel, X: Matrix, Y: Matrix | None = None) -> Matrix:
    """K(X, Y), or K(X, X) exactly symmetric: (N, M) float64.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from fenchel.kernels import evaluate
    >>> evaluate(ConstantKernel(2.0) * RBF(1.0), np.array([[0.0], [1.0]])).round(4)
    array([[2.    , 1.2131],
           [1.2131, 2.    ]])
    """
    K = _node(kernel).value(kernel, X, Y)
    return np.ascontiguousarray(K, dtype=np.float64)


def diagonal(kernel: Kernel, X: Matrix) -> Matrix:
    """diag K(X, X) (N,)."""
    return np.asarray(kernel.diag(X), dtype=np.float64)


def contract(kernel: Kernel, X: Matrix, G: Matrix, K: Matrix | None = None) -> Matrix:
    """sum_ij G_ij dK_ij/dtheta for every free hyperparameter (n_theta,); G symmetric (N, N), not changed.

    ``K``: the kernel's own value at X where it is known already; many kernels then need no further exponential.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from fenchel.kernels import contract
    >>> kernel, X = ConstantKernel(2.0) * RBF(1.0), np.array([[0.0], [1.0]])
    >>> G = np.ones((2, 2))
    >>> contract(kernel, X, G).round(4), np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1]).round(4)
    (array([6.4261, 2.4261]), array([6.4261, 2.4261]))
    """
    return np.asarray(_node(kernel).slope(kernel, X, G, K), dtype=np.float64)


def refuse_compound(kernel: Kernel) -> None:
    """scikit-learn's list of kernels, one for each of its one-against-the-rest classifiers, is no kernel itself."""
    if type(kernel).__name__ == "CompoundKernel":
        raise problem(
            "kernels",
            "a CompoundKernel was given: several kernels, one for each of several classifiers",
            "one kernel",
            "All classes share it. For a kernel each, put this estimator into a OneVsRestClassifier.",
        )


def is_covariance(kernel: Kernel, n_features: int) -> bool:
    """Whether the kernel is positive semidefinite at any inputs, by what is known of it; False says only "not known".

    A periodic kernel of distances is a covariance on the line alone; pairwise and foreign kernels may be anything.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ExpSineSquared
    >>> from fenchel.kernels import is_covariance
    >>> is_covariance(2.0 * RBF(1.0), 3), is_covariance(ExpSineSquared(), 1), is_covariance(ExpSineSquared(), 2)
    (True, True, False)
    """
    name = type(kernel).__name__ if type(kernel) in _table() else ""
    if name in ("Sum", "Product"):
        return is_covariance(kernel.k1, n_features) and is_covariance(kernel.k2, n_features)
    if name == "Exponentiation":  # whole powers are products
        return kernel.exponent > 0 and float(kernel.exponent).is_integer() and is_covariance(kernel.kernel, n_features)
    if name == "ConstantKernel":
        return bool(kernel.constant_value >= 0.0)
    if name == "WhiteKernel":
        return bool(kernel.noise_level >= 0.0)
    return name in ("RBF", "ScaledRBF", "Matern", "ScaledMatern", "RationalQuadratic", "DotProduct") or (
        name == "ExpSineSquared" and n_features == 1
    )


class _Node(NamedTuple):
    """How one kind of kernel is evaluated and contracted."""

    value: Callable[[Kernel, Matrix, Matrix | None], Matrix]
    slope: Callable[[Kernel, Matrix, Matrix, Matrix | None], Any]


def _node(kernel: Kernel) -> _Node:
    table = _table()
    found = table.get(type(kernel))
    if found is not None and not (found.slope is _matern_slope and kernel.nu not in MATERN):
        return found
    if not callable(kernel) or not hasattr(kernel, "theta"):
        raise problem(
            "kernels",
            f"a {type(kernel).__name__} was given",
            "a kernel of sklearn.gaussian_process.kernels, or one with its interface",
            "For example ConstantKernel(1.0) * RBF(1.0).",
        )
    return _FOREIGN


def _foreign_slope(kernel: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> Matrix:
    return np.asarray(np.einsum("ij,ijp->p", G, kernel(X, eval_gradient=True)[1]))


def _own_value(kernel: Kernel, X: Matrix, Y: Matrix | None) -> Matrix:
    return np.asarray(kernel(X, Y))


_FOREIGN = _Node(_own_value, _foreign_slope)


# -- the tree ------------------------------------------------------------------------------------------
def _sum_value(k: Kernel, X: Matrix, Y: Matrix | None) -> Matrix:
    K = evaluate(k.k1, X, Y)
    K += evaluate(k.k2, X, Y)
    return K


def _sum_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> Matrix:
    return np.concatenate([contract(k.k1, X, G), contract(k.k2, X, G)])


def _factor(kernel: Kernel) -> float | None:
    """The number a constant kernel is, so that no matrix of equal entries is ever made."""
    return float(kernel.constant_value) if type(kernel).__name__ == "ConstantKernel" else None


def _product_value(k: Kernel, X: Matrix, Y: Matrix | None) -> Matrix:
    for one, other in ((k.k1, k.k2), (k.k2, k.k1)):
        c = _factor(one)
        if c is not None:
            K = evaluate(other, X, Y)
            K *= c
            return K
    K = evaluate(k.k1, X, Y)
    K *= evaluate(k.k2, X, Y)
    return K


def _product_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> Matrix:
    parts: list[Matrix] = []
    for one, other in ((k.k1, k.k2), (k.k2, k.k1)):
        c, own = _factor(other), _factor(one)
        if own is not None:  # d/dlog c of c K2 is c K2
            free = _free(one, "constant_value")
            parts.append(np.array([_inner(G, evaluate(k, X) if K is None else K)]) if free else np.zeros(0))
        elif c is not None:  # both G and K are off by c, in opposite directions: their product, which counts, is not
            parts.append(c * contract(one, X, G) if K is None else _scaled(one, X, G, K, c))
        elif one.n_dims:
            weighted = evaluate(other, X)
            weighted *= G
            parts.append(contract(one, X, weighted))
    return np.concatenate(parts)


def _scaled(kernel: Kernel, X: Matrix, G: Matrix, K: Matrix, c: float) -> Matrix:
    """contract(kernel, X, c G) from K = c kernel(X)."""
    if type(kernel).__name__ in ("RBF", "ScaledRBF"):  # which reads K only through G o K
        return contract(kernel, X, G, K)
    return c * contract(kernel, X, G)


def _power_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> Matrix:
    weighted = evaluate(k.kernel, X) ** (k.exponent - 1)
    weighted *= k.exponent * G
    return contract(k.kernel, X, weighted)


def _inner(A: Matrix, B: Matrix) -> float:
    return float(np.einsum("ij,ij->", A, B))


# -- leaves --------------------------------------------------------------------------------------------
def _free(kernel: Kernel, name: str) -> bool:
    return not getattr(kernel, f"hyperparameter_{name}").fixed


def _constant_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> list[float]:
    return [float(k.constant_value) * float(G.sum())] if _free(k, "constant_value") else []


def _white_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> list[float]:
    return [float(k.noise_level) * float(np.trace(G))] if _free(k, "noise_level") else []


def _squared(X: Matrix, Y: Matrix | None, length: Any) -> Matrix:
    X = np.asarray(X, dtype=np.float64) / length
    return np.asarray(cdist(X, X if Y is None else np.asarray(Y, dtype=np.float64) / length, metric="sqeuclidean"))


def _lengths_slope(k: Kernel, X: Matrix, H: Matrix) -> Matrix:
    """sum_ij H_ij (x_id - x_jd)^2 / l_d^2 for each length scale, or summed when there is one. H is used up."""
    np.fill_diagonal(H, 0.0)  # it counts for nothing, and for much rounding when lengths are short
    scaled = np.asarray(X, dtype=np.float64) / _length(k)
    scaled = scaled - scaled.mean(axis=0)
    each = 2.0 * (H.sum(axis=1) @ scaled**2 - np.einsum("id,id->d", scaled, H @ scaled))
    return each if k.anisotropic else np.array([each.sum()])


def _length(k: Kernel) -> Any:
    return k.length_scale * np.asarray(getattr(k, "units", 1.0))


def _rbf_value(k: Kernel, X: Matrix, Y: Matrix | None) -> Matrix:
    K = _squared(X, Y, _length(k))
    K *= -0.5
    return np.asarray(np.exp(K, out=K))


def _rbf_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> Matrix:
    if not _free(k, "length_scale"):
        return np.zeros(0)
    return _lengths_slope(k, X, G * (_rbf_value(k, X, None) if K is None else K))


KERNELS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5, "rbf": np.inf}  # words of formulas, by smoothness
# value and w (dK/dlog l_d = w * (x_d - x'_d)^2 / l_d^2) as functions of r
MATERN: dict[float, tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]] = {
    0.5: (lambda r: np.exp(-r), lambda r: np.exp(-r) / np.where(r > 0.0, r, np.inf)),
    1.5: (
        lambda r: (1.0 + np.sqrt(3.0) * r) * np.exp(-np.sqrt(3.0) * r),
        lambda r: 3.0 * np.exp(-np.sqrt(3.0) * r),
    ),
    2.5: (
        lambda r: (1.0 + np.sqrt(5.0) * r + 5.0 / 3.0 * r * r) * np.exp(-np.sqrt(5.0) * r),
        lambda r: 5.0 / 3.0 * (1.0 + np.sqrt(5.0) * r) * np.exp(-np.sqrt(5.0) * r),
    ),
    np.inf: (lambda r: np.exp(-0.5 * r * r), lambda r: np.exp(-0.5 * r * r)),
}


def _matern_value(k: Kernel, X: Matrix, Y: Matrix | None) -> Matrix:
    r = _squared(X, Y, _length(k))
    return MATERN[k.nu][0](np.sqrt(r, out=r))


def _matern_slope(k: Kernel, X: Matrix, G: Matrix, K: Matrix | None) -> Matrix:
    if not _free(k, "length_scale"):
        return np.zeros(0)
    r = _squared(X, None, _length(k))
    H = MATERN[k.nu][1](np.sqrt(r, out=r))
    H *= G
    return _lengths_slope(k, X, H)


def _table() -> dict[type, _Node]:
    global _KNOWN
    if _KNOWN is None:
        from sklearn.gaussian_process import kernels as sk

        from .scaled_kernels import ScaledMatern, ScaledRBF

        _KNOWN = {
            sk.Sum: _Node(_sum_value, _sum_slope),
            sk.Product: _Node(_product_value, _product_slope),
            sk.Exponentiation: _Node(_own_value, _power_slope),
            sk.ConstantKernel: _Node(_own_value, _constant_slope),
            sk.WhiteKernel: _Node(_own_value, _white_slope),
            sk.DotProduct: _FOREIGN,
            sk.RBF: _Node(_rbf_value, _rbf_slope),
            ScaledRBF: _Node(_rbf_value, _rbf_slope),
            sk.Matern: _Node(_matern_value, _matern_slope),
            ScaledMatern: _Node(_matern_value, _matern_slope),
            sk.RationalQuadratic: _FOREIGN,
            sk.ExpSineSquared: _FOREIGN,
        }
    return _KNOWN


_KNOWN: dict[type, _Node] | None = None
