"""Real data that travels with the package. Origins and licences: ``data/README.md`` and each loader's result."""

from .germany import Germany, load_germany
from .pima import Pima, load_pima
from .stochvol import ExchangeRate, load_stochvol

__all__ = ["ExchangeRate", "Germany", "Pima", "load_germany", "load_pima", "load_stochvol"]
