"""Real data that travels with the package. Origins and licences: ``data/README.md`` and each loader's result."""

from .areal import CoalDisasters, InfantDeaths, load_coal, load_sids
from .germany import Germany, load_germany
from .glass import Glass, load_glass
from .pima import Pima, load_pima
from .stochvol import ExchangeRate, load_stochvol

__all__ = [
    "CoalDisasters",
    "ExchangeRate",
    "Germany",
    "Glass",
    "InfantDeaths",
    "Pima",
    "load_coal",
    "load_germany",
    "load_glass",
    "load_pima",
    "load_sids",
    "load_stochvol",
]
