"""Ordered levels 0, ..., K-1 between increasing cutpoints: what the cumulative logit and probit share."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from ..checks import finite, labels, numeric, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from ..transforms import STEPS
from .base import Likelihood, Rows
from .bounds import Bound
from .parameters import Parameter


def by_steps(cut: np.ndarray, cutpoints: np.ndarray) -> np.ndarray:
    """Slopes in ``theta`` from those in the cutpoints, the two open ends included (K + 1,)."""
    return STEPS.pull(cutpoints, cut[1:-1])  # a cutpoint moves with every step before it


def _frequencies(own: Cumulative, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The link of the cumulative frequencies; no level is without weight."""
    share = np.bincount(y.astype(int), weights=w) + 0.5
    return own.link(np.cumsum(share)[:-1] / share.sum())


def _reach(own: Cumulative, y: np.ndarray) -> np.ndarray:
    """Cutpoints grow with the latent function, whose standard deviation may reach a hundred."""
    return np.array([[-1e3, 1e3], *(np.log([1e-8, 1e3]) for _ in own.cutpoints[1:])])


class Cumulative(Likelihood):
    """Level k lies between cutpoints k-1 and k; the first has no lower end, the last no upper one."""

    support, ordered, moves_eta = "levels", True, True
    parameters = (Parameter("cutpoint", "cutpoints", STEPS, bounds=_reach, start=_frequencies),)

    def __init__(self, cutpoints: ArrayLike, bound: str | type[Bound]) -> None:
        self._choose(bound)
        b = finite(self.name, "cutpoints", np.atleast_1d(numeric(self.name, "cutpoints", cutpoints)))
        if b.ndim != 1 or b.size == 0 or (np.diff(b) <= 0).any():
            raise problem(
                self.name,
                f"cutpoints {b.tolist()} do not increase",
                "K-1 increasing numbers for K levels",
                "Sort them, and merge levels that share a cutpoint.",
            )
        self.cutpoints, self.n_levels = b, int(b.size) + 1

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        labels(self.name, "y", y, self.n_levels)
        level = np.where(np.isnan(y), 0, y).astype(int)
        edges = np.concatenate([[-np.inf], self.cutpoints, [np.inf]])
        return {"level": level.astype(np.float64), "lo": edges[level], "hi": edges[level + 1]}

    def landmarks(self, rows: Rows) -> list[Array]:
        xp, lo, hi = namespace(rows["lo"]), rows["lo"], rows["hi"]
        return [xp.where(xp.isinf(lo), hi, lo), xp.where(xp.isinf(hi), lo, hi)]

    def log_density(self, eta: Array, rows: Rows) -> Array:
        return -self.derivatives(eta, rows)[0]

    @staticmethod
    @abstractmethod
    def link(share: np.ndarray) -> np.ndarray:
        """Where the latent scale has this much below it."""

    def _level(self, y: np.ndarray, w: np.ndarray) -> float:
        """The cutpoints carry it."""
        return 0.0

    @abstractmethod
    def _pulls(self, h: Array, rho: Array, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """-df/dhi and df/dlo of each observation (N,), 0 at an open end."""

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        upper, lower = self._pulls(h, rho, rows)
        w, level = to_numpy(rows["weight"]), to_numpy(rows["level"]).astype(int)
        cut = np.zeros(self.n_levels + 1)  # d(-f)/db, the two open ends included
        np.add.at(cut, level + 1, w * upper)
        np.add.at(cut, level, -w * lower)
        return by_steps(cut, self.cutpoints)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        """The mean level."""
        p = self.predictive_probabilities(h, rho)
        return namespace(p).sum(p * asarray(np.arange(self.n_levels), p)[None, :], axis=1)

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        p = self.predictive_probabilities(h, rho)
        xp, level = namespace(p), asarray(np.arange(self.n_levels), p)[None, :]
        return xp.sum(p * (level - xp.sum(p * level, axis=1, keepdims=True)) ** 2, axis=1)
