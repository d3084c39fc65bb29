"""Variances at any rows and of the latents: exact ones of the blocked Gaussian, and what probes add, with its error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..linalg.blocks import transposed
from .fitting import State
from .system import Probed

_FLOOR = 0.05  # of a variance as a share of the blocked one
_CHUNK = 1 << 15  # rows at a time


@dataclass(frozen=True)
class Estimated:
    """Estimates with their standard errors by the probes, 0 where a number is exact up to a solve."""

    value: np.ndarray
    se: np.ndarray


def latent_variances(state: State) -> Estimated:
    """Of the latents (L,), in the order of the layout."""
    system, probed = state.system, state.probed
    own = [np.diagonal(b, axis1=-2, axis2=-1).ravel() for b in system.latent_blocks]
    base = np.concatenate(own)
    return _estimated(probed, base, system.lift(probed.delta) * system.lift(probed.u))


def _estimated(probed: Probed, base: np.ndarray, each: np.ndarray) -> Estimated:
    return Estimated(np.maximum(base + probed.mean(each), _FLOOR * base), probed.se(each))


def solved_variances(state: State, A: sp.csr_array, tol: float) -> Estimated:
    """a' P^-1 a of a few rows, by a solve each."""
    right = np.asarray(A[:, state.task.layout.order].toarray().T)
    found = state.system.solve(right, tol)[0]
    return Estimated(np.einsum("lm,lm->m", right, found), np.zeros(A.shape[0]))


def row_variances(state: State, A: sp.csr_array) -> Estimated:
    """a' P^-1 a of any rows, by the probes."""
    parts = [_chunk(state, sp.csr_array(A[i : i + _CHUNK])) for i in range(0, A.shape[0], _CHUNK)]
    return Estimated(*(np.concatenate([getattr(p, key) for p in parts]) for key in ("value", "se")))


def _chunk(state: State, A: sp.csr_array) -> Estimated:
    system, layout = state.system, state.task.layout
    A1, Am, Ab = layout.split(A)
    left = sp.csr_array((system.by_columns(Am.data, Am.indices), Am.indices, Am.indptr), shape=Am.shape)
    whole = sp.csr_array(sp.hstack([A1, Am, Ab], format="csr"))
    base = np.einsum("np,np->n", edge := np.asarray(whole @ system.shared), edge)
    if system.n1:
        own = np.matmul(transposed(system.L1inv), system.L1inv)
        n, d, _ = own.shape
        blocks = sp.bsr_array((own, np.arange(n), np.arange(n + 1)), shape=(n * d, n * d))
        base += np.asarray(((A1 @ blocks.tocsr()).multiply(A1)).sum(axis=1)).ravel()
        weights = sp.csr_array((system.weights, system.E.indices, system.E.indptr), shape=system.E.shape)
        left = sp.csr_array(left - A1 @ weights)
    base += np.asarray(left.multiply(left).sum(axis=1)).ravel()
    each = (whole @ system.lift(state.probed.delta)) * (whole @ system.lift(state.probed.u))
    return _estimated(state.probed, base, each)
