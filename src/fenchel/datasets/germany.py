"""Deaths from cancer of the oral cavity in the 544 districts of Germany, 1986-90."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from .files import document, numbers, table

_STATES = (  # in the order of their official numbers, 01 to 16
    "Schleswig-Holstein",
    "Hamburg",
    "Lower Saxony",
    "Bremen",
    "North Rhine-Westphalia",
    "Hesse",
    "Rhineland-Palatinate",
    "Baden-Württemberg",
    "Bavaria",
    "Saarland",
    "Berlin",
    "Brandenburg",
    "Mecklenburg-Vorpommern",
    "Saxony",
    "Saxony-Anhalt",
    "Thuringia",
)


@dataclass(frozen=True)
class Germany:
    """Counts on a map.

    Attributes
    ----------
    Y : array (544,)
        Deaths from cancer of the oral cavity, 1986-90.
    E : array (544,)
        Deaths expected from the size and the age of the population; its sum is that of Y.
    adjacency : scipy.sparse.csr_array (544, 544)
        1 where two districts share a border, else 0; symmetric.
    polygons : list of lists of arrays (vertices, 2)
        The outlines of each district, one array a ring, in map units. Enclaves are not cut out of the district around
        them: draw in decreasing area.
    x, y : arrays (544,)
        A point of each district, in map units.
    key : list of str
        Official district keys; the first two digits are the state.
    state : list of str
    """

    Y: np.ndarray
    E: np.ndarray
    adjacency: sparse.csr_array
    polygons: list[list[np.ndarray]] = field(repr=False)
    x: np.ndarray
    y: np.ndarray
    key: list[str] = field(repr=False)
    state: list[str] = field(repr=False)
    description: str = "Deaths from cancer of the oral cavity in the 544 districts of Germany, 1986-90"
    attribution: str = "R package spam 2.9-1 (Oral, germany), by way of Debian's r-cran-spam"
    licence: str = "LGPL-2 or BSD-3-Clause"


def load_germany() -> Germany:
    """Oral cavity cancer deaths in Germany with the graph and the outlines of its districts.

    Examples
    --------
    >>> from fenchel.datasets import load_germany
    >>> germany = load_germany()
    >>> germany.Y.shape, germany.adjacency.shape
    ((544,), (544, 544))
    >>> int(germany.Y.sum()), round(float(germany.E.sum()))
    (15466, 15466)
    """
    oral = table("germany_oral.csv")
    Y = numbers(oral["Y"])
    edges = table("germany_adjacency.csv")
    i, j = (numbers(edges[end]).astype(np.int64) - 1 for end in "ij")
    both = (np.concatenate([i, j]), np.concatenate([j, i]))
    adjacency = sparse.csr_array((np.ones(2 * i.size), both), shape=(Y.size, Y.size))
    keys = [f"{int(key):05d}" for key in oral["ags"]]
    return Germany(
        Y=Y,
        E=numbers(oral["E"]),
        adjacency=adjacency,
        polygons=_outlines(),
        x=numbers(oral["x"]),
        y=numbers(oral["y"]),
        key=keys,
        state=[_STATES[int(key[:2]) - 1] for key in keys],
    )


def _outlines() -> list[list[np.ndarray]]:
    """The rings of each district, in the order of the table."""
    districts = sorted(document("germany.geojson")["features"], key=lambda feature: int(feature["id"]))
    return [
        [np.array(ring, dtype=np.float64) for part in feature["geometry"]["coordinates"] for ring in part]
        for feature in districts
    ]
