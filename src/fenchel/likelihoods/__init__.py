"""East wing: likelihoods as sites. ``base`` is the contract; one likelihood a file."""

from .base import Domain, Likelihood, Site
from .bernoulli import BernoulliLogit
from .binomial import Binomial
from .gaussian import Gaussian
from .mixed import Mixed
from .multinomial import MultinomialLogit
from .ordinal import Ordinal
from .poisson import Poisson
from .scalar import ExponentialLikelihood
from .stochastic_volatility import StochasticVolatility

__all__ = [
    "BernoulliLogit",
    "Binomial",
    "Domain",
    "ExponentialLikelihood",
    "Gaussian",
    "Likelihood",
    "Mixed",
    "MultinomialLogit",
    "Ordinal",
    "Poisson",
    "Site",
    "StochasticVolatility",
]
