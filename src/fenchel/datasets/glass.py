"""Forensic glass: 214 fragments, nine measurements and which of six kinds of glass each came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .files import numbers, table

_FEATURES = ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
_CLASSES = (
    "building windows, float processed",
    "building windows, not float processed",
    "vehicle windows, float processed",
    "containers",
    "tableware",
    "headlamps",
)


@dataclass(frozen=True)
class Glass:
    """A classification problem of six classes.

    Attributes
    ----------
    X : array (214, 9)
        Refractive index, then the weight per cent of eight elements in their oxides. Rows 38 and 39 are equal.
    y : array (214,)
        The class, 0 to 5, as a whole number in float64.
    feature_names, class_names : list of str
    """

    X: np.ndarray
    y: np.ndarray
    feature_names: list[str]
    class_names: list[str]
    description: str = "Forensic glass: refractive index and oxides of 214 fragments of six kinds"
    attribution: str = "UCI Machine Learning Repository (Glass Identification), by way of R package mlbench 2.1-3"
    licence: str = "CC BY 4.0"


def load_glass() -> Glass:
    """The forensic glass data of the UCI repository.

    Examples
    --------
    >>> from fenchel.datasets import load_glass
    >>> glass = load_glass()
    >>> glass.X.shape, glass.class_names[5]
    ((214, 9), 'headlamps')
    """
    columns = table("glass_uci.csv")
    return Glass(
        X=np.column_stack([numbers(columns[name]) for name in _FEATURES]),
        y=numbers(columns["class"]) - 1.0,
        feature_names=list(_FEATURES),
        class_names=list(_CLASSES),
    )
