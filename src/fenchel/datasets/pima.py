"""Diabetes among 532 women of Pima heritage: seven measurements and a yes or no."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .files import numbers, table

_FEATURES = ("npreg", "glu", "bp", "skin", "bmi", "ped", "age")


@dataclass(frozen=True)
class Pima:
    """A binary classification problem.

    Attributes
    ----------
    X : array (532, 7)
        Pregnancies, plasma glucose, diastolic blood pressure (mm Hg), triceps skin fold (mm), body mass index, diabetes
        pedigree function, age (years).
    y : array (532,)
        1 with diabetes, else 0.
    feature_names : list of str
    train : bool array (532,)
        The authors' 200 training rows; the other 332 are their test set.
    """

    X: np.ndarray
    y: np.ndarray
    feature_names: list[str]
    train: np.ndarray
    description: str = "Diabetes among 532 women of Pima heritage, complete records, split as in Ripley (1996)"
    attribution: str = "R package MASS 7.3-58.2 (Pima.tr, Pima.te), by way of Debian's r-cran-mass"
    licence: str = "GPL-2 or GPL-3"

    @property
    def test(self) -> np.ndarray:
        """The authors' test rows: bool (532,)."""
        return ~self.train


def load_pima() -> Pima:
    """The Pima diabetes data without missing values.

    Examples
    --------
    >>> from fenchel.datasets import load_pima
    >>> pima = load_pima()
    >>> pima.X[pima.train].shape, pima.X[pima.test].shape
    ((200, 7), (332, 7))
    """
    columns = table("pima_ripley532.csv")
    return Pima(
        X=np.column_stack([numbers(columns[name]) for name in _FEATURES]),
        y=numbers(columns["y"]),
        feature_names=list(_FEATURES),
        train=np.array(columns["split"]) == "train",
    )
