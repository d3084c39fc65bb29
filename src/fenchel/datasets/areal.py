"""Counts along a line and on a map: British coal-mining disasters, and sudden infant deaths in North Carolina."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .files import numbers, table


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
