"""Columns of a fixed part about another origin, and what those before a column leave of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

SAME = 1e-16  # of a column's variance: what others leave of one that they are
NEARLY = 0.1  # and of one that they nearly are
LARGEST = 20_000  # rows that are repeated with other numbers


def moved(frame: pd.DataFrame, origin: dict[str, float]) -> pd.DataFrame:
    """The frame with some columns about another origin."""
    return frame.assign(**{name: frame[name] - mean for name, mean in origin.items()}) if origin else frame


def between(near: np.ndarray, X: np.ndarray) -> np.ndarray | None:
    """C with near C = X, as far as there is one; None where columns depend on one another."""
    if np.linalg.matrix_rank(near) < X.shape[1]:
        return None
    return np.asarray(np.linalg.lstsq(near, X, rcond=None)[0])


def varied(frame: pd.DataFrame, means: dict[str, float]) -> pd.DataFrame:
    """The rows several times, with other numbers in the columns that are multiplied: their products stand apart.

    Of a large table the rows as they are.
    """
    copies = 1 + 2 ** min(len(means), 3)
    if copies * len(frame) > LARGEST:
        return frame
    rng, more = np.random.default_rng(0), frame.iloc[np.tile(np.arange(len(frame)), copies)].reset_index(drop=True)
    spread = {name: float(np.ptp(frame[name])) or 1.0 for name in means}
    return more.assign(**{name: mean + spread[name] * rng.normal(size=len(more)) for name, mean in means.items()})


def left_over(X: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray | None:
    """B, unit upper triangular, with X B the columns and of those that the ones before nearly are what these leave."""
    p, size = X.shape[1], np.abs(X).max(axis=0, initial=1e-300)
    if p < 2:
        return None
    root = 1.0 if weights is None else np.sqrt(weights)[:, None]
    B, unit, centred = np.eye(p), root * X / size, root * (X - np.average(X, axis=0, weights=weights)) / size
    for j in range(1, p):
        about = centred[:, j]
        by = np.linalg.lstsq(unit[:, :j], unit[:, j], rcond=None)[0]
        rest = unit[:, j] - unit[:, :j] @ by
        share = float(rest @ rest) / max(float(about @ about), 1e-300)
        if SAME < share < NEARLY:  # below, it is one of them, which is said elsewhere
            B[:j, j] = -by * size[j] / size[:j]
    return B if np.any(np.triu(B, 1)) else None
