"""Limits that log|P| certainly keeps, from sums of squares of what couples its blocks.

    log|P| = log|P_11| + log|C| + log|S|,    log|M| >= log|C| >= log|M| + n (p log a + (1 - p) log t)

where the first is Fischer's inequality and the last ``linalg.lanczos.log_det_bounds`` of
K = L^-1 C L^-T: its diagonal blocks are I, it lies above a, and
the squares of its other entries are added up by one pass over pairs of entries of E. Where that pass is too long the
same is said of the first term and the middle together, whose couplings are entries of A' Lam A.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..linalg.blocks import cholesky, columns_times, transposed
from ..linalg.lanczos import log_det_bounds
from .system import System

_LONGEST = 5e8  # pairs of entries of E that are visited


def log_det_limits(system: System) -> tuple[float, float]:
    """Numbers that are certainly below and above log|P|, up to rounding."""
    _, left, root = system.border
    # S as computed is above the true one by left' C^-1 left, and C above Q
    slack = left.T @ _prior_middle(system, left)
    S = np.linalg.inv(root.T @ root) if system.p else root
    border_low = float(np.linalg.slogdet(S - slack)[1]) if system.p else 0.0
    sign = float(np.linalg.slogdet(S - slack)[0]) if system.p else 1.0
    if sign <= 0.0:
        border_low = float(np.linalg.slogdet(system.Q[-1])[1])
    low = system.log_det_first + _middle_low(system) + border_low
    return low, system.log_det_blocked


def _prior_middle(system: System, x: np.ndarray) -> np.ndarray:
    """Q_mm^-1 x."""
    whole = np.zeros((system.n1 + system.nm + system.p, x.shape[1]))
    whole[system.n1 : system.n1 + system.nm] = x
    return system.prior_solve(whole)[system.n1 : system.n1 + system.nm]


def _middle_low(system: System) -> float:
    """Below log|C|."""
    if not system.nm:
        return 0.0
    degree = np.diff(system.E.indptr).astype(np.float64)
    if float(degree @ degree) > _LONGEST:
        return _together(system)
    from ..linalg._products import coupling_squares

    scaled = system.by_columns(system.E.data, system.E.indices)
    E = sp.csr_array((scaled, system.E.indices, system.E.indptr), shape=system.E.shape)
    back = E.tocsc()
    off = _whitened(system, system.off) if system.off is not None else sp.csr_array((system.nm, system.nm))
    block = np.concatenate([at + part.d * (np.arange(part.n) // part.d) for part, at, _ in system.parts()])
    squares = coupling_squares(
        E.indptr, E.indices, E.data, back.indptr, back.indices, back.data, off.indptr, off.indices, off.data, block
    )
    n = system.nm
    return system.log_det_blocks + log_det_bounds(n, n + float(squares), system.lowest)[0]


def _whitened(system: System, C: sp.csr_array) -> sp.csr_array:
    """L^-1 C L^-T."""
    inverse = sp.block_diag(
        [sp.bsr_array((b, np.arange(b.shape[0]), np.arange(b.shape[0] + 1))) for b in system.Linv], format="csr"
    )
    return sp.csr_array(inverse @ C @ inverse.T)


def _together(system: System) -> float:
    """Below log|C| by the blocks of P_11 and P_mm and what couples them."""
    factors = [cholesky(g) for g in system.G]
    middle = factors[len(factors) - len(system.Linv) :]
    lowest = 1.0
    for (_, linv, _), q in zip(factors, system.Q[:-1], strict=True):
        lowest = min(lowest, float(np.linalg.eigvalsh(linv @ q @ transposed(linv)).min()))
    n = sum(g.shape[0] * g.shape[1] for g in system.G)
    squares, columns = float(n), system.E.indices
    for (part, at, _), (_, linv, _) in zip(system.parts(), middle, strict=True):
        mine = (columns >= at) & (columns < at + part.n)
        squares += 2.0 * float((columns_times(system.E.data[mine], columns[mine] - at, transposed(linv)) ** 2).sum())
    if system.off is not None:
        inverse = sp.block_diag(
            [sp.bsr_array((f[1], np.arange(f[1].shape[0]), np.arange(f[1].shape[0] + 1))) for f in middle], format="csr"
        )
        squares += float(((inverse @ system.off @ inverse.T).tocsr().data ** 2).sum())
    whole = sum(f[2] for f in factors) + log_det_bounds(n, squares, 0.99 * lowest)[0]
    return whole - system.log_det_first
