"""Predictions for new groups of the population, and for times beyond those of a series.

A series of p states obeys  z_t = sum_j phi_j z_{t-j} + e_t,  e_t ~ N(0, v),  forwards and backwards in time:

    z_{T+h} = sum_j A_hj z_{T+1-j} + sum_{i<=h} psi_{h-i} e_i,     psi_0 = 1,   psi_k = sum_j phi_j psi_{k-j}

    RW1  phi = 1       RW2  phi = (2, -1)       seasonal  phi = (-1, ..., -1)       AR  its own
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

FARTHEST = 5000  # steps beyond the last one: further is a slip, such as a year for a month


@dataclass(frozen=True)
class Unseen:
    """Effects of new rows beyond the latents of a fit: weights times u, u ~ N(0, covariance), one u for each ``of``.

    Attributes
    ----------
    weights : array (N, d)
    covariance : array (d, d), or (d,) if independent
    of : int array (N,)
        Index of the u of each row; -1 for a row without one.
    groups : bool
        Whether these are new groups, and not new times of a series.
    """

    weights: np.ndarray
    covariance: np.ndarray
    of: np.ndarray
    groups: bool = False

    @property
    def variance(self) -> np.ndarray:
        """Of each row (N,)."""
        W = np.where(self.of[:, None] >= 0, self.weights, 0.0)
        if self.covariance.ndim == 1:
            return np.asarray((W * W) @ self.covariance)
        return np.asarray(np.einsum("nd,nd->n", W @ self.covariance, W))

    def root(self) -> np.ndarray:
        """R with R R' = covariance (d, d)."""
        if self.covariance.ndim == 1:
            return np.diag(np.sqrt(self.covariance))
        return root_of(self.covariance)

    def draws(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """(N, size), rows of one ``of`` sharing their u."""
        out, there, n = np.zeros((len(self.of), size)), self.of >= 0, int(self.of.max(initial=-1)) + 1
        noise = rng.standard_normal((n, self.weights.shape[1], size))
        if self.covariance.ndim == 1:
            z = np.sqrt(self.covariance)[None, :, None] * noise
        else:
            z = np.einsum("de,nes->nds", self.root(), noise)
        out[there] = np.einsum("md,mds->ms", self.weights[there], z[self.of[there]])
        return out


@dataclass(frozen=True)
class UnseenPoints(Unseen):
    """New points of a process: ``weights`` are their sds given the fit, and draws of several points are joint.

    ``together`` gives the index of each row among d points and their covariance (d, d), when these are needed.
    """

    together: Callable[[], tuple[np.ndarray, np.ndarray]] | None = None

    def draws(self, size: int, rng: np.random.Generator) -> np.ndarray:
        assert self.together is not None
        out, (which, covariance) = np.zeros((len(self.of), size)), self.together()
        root = root_of(covariance)
        out[self.of >= 0] = (root @ rng.standard_normal((root.shape[1], size)))[which]
        return out


def root_of(covariance: np.ndarray) -> np.ndarray:
    """R with R R' = covariance (d, d), which is singular for a series held by constraints."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def numbered(keys: Sequence[Hashable], there: np.ndarray) -> np.ndarray:
    """0, 1, ... for each different key of the rows that are there, -1 for the others."""
    place: dict[Hashable, int] = {}
    return np.array([place.setdefault(key, len(place)) if is_there else -1 for key, is_there in zip(keys, there)])


# -- equal steps --------------------------------------------------------------------------------------------
def extension(phi: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A (n, p) and psi (n,) of the next n steps."""
    p = phi.size
    states = np.vstack([np.eye(p)[::-1], np.zeros((n, p))])  # z_{T-p+1}, ..., z_T, then those to come
    psi = np.r_[np.zeros(p - 1), 1.0, np.zeros(max(n - 1, 0))]
    for h in range(n):
        states[p + h] = phi @ states[h : p + h][::-1]
        if h:
            psi[p - 1 + h] = phi @ psi[h - 1 : p - 1 + h][::-1]
    return states[p:], psi[p - 1 :][:n]


def beyond(steps: np.ndarray, n: int, phi: np.ndarray, weight: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Rows at steps 0, ..., n-1 and beyond them on both sides, each with its weight: over n states, and over noise."""
    ahead, back = int(max(steps.max(initial=0) - n + 1, 0)), int(max(-steps.min(initial=0), 0))
    A, psi = extension(phi, max(ahead, back, 1))
    states, p = sp.eye_array(n, format="csr"), phi.size
    before, after = sp.csr_array(A[:back][::-1]) @ states[:p], sp.csr_array(A[:ahead]) @ states[::-1][:p]
    every = sp.vstack([before, states, after], format="csr")
    design = sp.csr_array(sp.diags_array(weight) @ every[steps + back])
    design.sort_indices()
    noise = np.hstack([_past_noise(psi, steps - n + 1, ahead), _past_noise(psi, -steps, back)])
    return design, weight[:, None] * noise


def _past_noise(psi: np.ndarray, h: np.ndarray, n: int) -> np.ndarray:
    """The weights (N, n) of e_1, ..., e_n at step h of each row; 0 from e_h on, and where h is no step ahead."""
    lag = h[:, None] - 1 - np.arange(n)
    return np.where(lag >= 0, psi[np.maximum(lag, 0)], 0.0)


# -- any times ----------------------------------------------------------------------------------------------
def in_gaps(
    knots: np.ndarray, t: np.ndarray, left: np.ndarray, covariance: Callable[[np.ndarray, Any, Any], np.ndarray]
) -> list[Unseen]:
    """What times t have beside the states at increasing knots, ``left`` being the variance of each on its own.

    ``covariance`` is that of times in one gap, given the knots before and after it (None at an end).
    """
    gap, new = np.searchsorted(knots, t, side="right"), left > 0.0
    out, alone = [], np.zeros(t.size, dtype=bool)
    for g in np.unique(gap[new]):
        mine = new & (gap == g)
        times = np.unique(t[mine])
        if times.size == 1:
            alone |= mine
            continue
        C = covariance(times, knots[g - 1] if g else None, knots[g] if g < knots.size else None)
        weights = np.zeros((t.size, times.size))
        weights[mine, np.searchsorted(times, t[mine])] = 1.0
        out.append(Unseen(weights, C, np.where(mine, 0, -1)))
    if alone.any():
        out.append(Unseen(np.sqrt(left)[:, None], np.ones(1), numbered(t.tolist(), alone)))
    return out


def inner_covariance(
    structure: Callable[[np.ndarray], Any], times: np.ndarray, before: Any, after: Any, states: int = 1
) -> np.ndarray:
    """Of the values at times between two that are known, from the precision of all; ``states`` a time, values first."""
    ends = [np.zeros(0) if end is None else np.array([end]) for end in (before, after)]
    Q = structure(np.concatenate([ends[0], times, ends[1]])).toarray()
    first = states * ends[0].size
    inner = np.linalg.inv(Q[first : first + states * times.size, first : first + states * times.size])
    return np.asarray(inner[::states, ::states])
