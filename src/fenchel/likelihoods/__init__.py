"""East wing: likelihoods as sites. ``base`` is the contract; one likelihood a file."""

from .base import Likelihood
from .bernoulli import BernoulliLogit
from .beta import Beta
from .binomial import Binomial
from .gamma import Gamma
from .gaussian import Gaussian
from .laplace_noise import LaplaceNoise
from .logistic_noise import LogisticNoise
from .mixed import Mixed
from .multinomial import MultinomialLogit
from .negative_binomial import NegativeBinomial
from .ordinal import Ordinal
from .ordinal_probit import OrdinalProbit
from .poisson import Poisson
from .probit import BernoulliProbit
from .scalar import ExponentialLikelihood
from .sites import Domain, Loss, Site
from .stochastic_volatility import StochasticVolatility
from .student_t import StudentT
from .super_gaussian import NoiseLikelihood
from .survival import Exponential, Weibull
from .zero_inflated import ZeroInflatedPoisson

__all__ = [
    "BernoulliLogit",
    "BernoulliProbit",
    "Beta",
    "Binomial",
    "Domain",
    "Exponential",
    "ExponentialLikelihood",
    "Gamma",
    "Gaussian",
    "LaplaceNoise",
    "Likelihood",
    "LogisticNoise",
    "Loss",
    "Mixed",
    "MultinomialLogit",
    "NegativeBinomial",
    "NoiseLikelihood",
    "Ordinal",
    "OrdinalProbit",
    "Poisson",
    "Site",
    "StochasticVolatility",
    "StudentT",
    "Weibull",
    "ZeroInflatedPoisson",
]
