"""Real data that travels with the package. Origins and licences: ``data/README.md`` and each loader's result."""

from .feature_tables import (
    Glass,
    HouseVotes,
    Pima,
    VerbalAggression,
    Zoo,
    load_glass,
    load_house_votes,
    load_pima,
    load_verbal_aggression,
    load_zoo,
)
from .maps_and_series import (
    CoalDisasters,
    ExchangeRate,
    Germany,
    InfantDeaths,
    load_coal,
    load_germany,
    load_sids,
    load_stochvol,
)

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
