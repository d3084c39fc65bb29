"""Real data that travels with the package. Origins and licences: ``data/README.md`` and each loader's result."""

from .areal import CoalDisasters, InfantDeaths, load_coal, load_sids
from .germany import Germany, load_germany
from .glass import Glass, load_glass
from .matrices import (
    HouseVotes,
    VerbalAggression,
    Zoo,
    load_house_votes,
    load_verbal_aggression,
    load_zoo,
)
from .pima import Pima, load_pima
from .stochvol import ExchangeRate, load_stochvol

__all__ = [
    "CoalDisasters",
    "ExchangeRate",
    "Germany",
    "Glass",
    "HouseVotes",
    "InfantDeaths",
    "Pima",
    "VerbalAggression",
    "Zoo",
    "load_coal",
    "load_germany",
    "load_glass",
    "load_house_votes",
    "load_pima",
    "load_sids",
    "load_stochvol",
    "load_verbal_aggression",
    "load_zoo",
]
