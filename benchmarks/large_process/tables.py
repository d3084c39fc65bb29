"""Tables of the UCI repository for processes of many rows, and the one judge of what is predicted.

kin40k, protein, elevators, bike: columns, ``y``, ``test`` = 1 for the held-out tenth. adult, credit: a binary ``y``;
every tenth row of a permutation by seed 0 is held out. Columns, and a real y, are standardised by the training rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

LABELS = ("adult", "credit")


class Table(NamedTuple):
    """Training and held-out rows, standardised; ``labels``: y is 0 or 1."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    labels: bool


def read(folder: Path, name: str, rows: int | None = None) -> Table:
    """A table, or ``rows`` training rows of it drawn by seed 0, and all held-out ones."""
    frame = pd.read_csv(folder / f"{name}.csv.gz").astype(float)
    rng = np.random.default_rng(0)
    if "test" in frame:
        held = frame.pop("test").to_numpy() == 1.0
    else:
        held = np.zeros(len(frame), dtype=bool)
        held[rng.permutation(len(frame))[::10]] = True
    y, X = frame.pop("y").to_numpy(), frame.to_numpy()
    learn = np.flatnonzero(~held)
    learn = rng.permutation(learn)[:rows] if rows else learn
    scale = X[learn].std(axis=0)
    X = (X - X[learn].mean(axis=0)) / np.where(scale > 0.0, scale, 1.0)
    if name not in LABELS:
        y = (y - y[learn].mean()) / y[learn].std()
    return Table(X[learn], y[learn], X[held], y[held], name in LABELS)


def judged(table: Table, predicted: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """RMSE and mean negative log density of held-out y from (mean, sd); error and mean log loss from (p,)."""
    y, values = table.y_new, [np.asarray(value, dtype=np.float64).ravel() for value in predicted]
    if table.labels:
        p = np.clip(values[0], 1e-12, 1.0 - 1e-12)
        return float(np.mean((p > 0.5) != y)), -float(np.mean(np.log(np.where(y > 0.0, p, 1.0 - p))))
    mean, sd = values
    density = 0.5 * np.log(2.0 * np.pi * sd**2) + 0.5 * ((y - mean) / sd) ** 2
    return float(np.sqrt(np.mean((mean - y) ** 2))), float(np.mean(density))
