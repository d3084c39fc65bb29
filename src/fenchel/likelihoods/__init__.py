"""East wing: likelihoods as sites. ``base`` is the contract; one likelihood a file."""

from .base import Likelihood
from .bernoulli import BernoulliLogit
from .binomial import Binomial
from .gaussian import Gaussian
from .mixed import Mixed
from .multinomial import MultinomialLogit
from .ordinal import Ordinal
from .poisson import Poisson
from .scalar import ExponentialLikelihood
from .sites import Domain, Loss, Site
from .stochastic_volatility import StochasticVolatility

__all__ = [
    "BernoulliLogit",
    "Binomial",
    "Domain",
    "ExponentialLikelihood",
    "Gaussian",
    "Likelihood",
    "Loss",
    "Mixed",
    "MultinomialLogit",
    "Ordinal",
    "Poisson",
    "Site",
    "StochasticVolatility",
]
