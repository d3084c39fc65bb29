"""Likelihoods, one a file; ``base`` is the contract. ``named`` finds one by its word, ``register`` gives it one."""

from .base import Likelihood
from .bernoulli import BernoulliLogit
from .beta import Beta
from .beta_binomial import BetaBinomial
from .binomial import Binomial
from .bounds import Bound, ConvexBound, DirectBound
from .gamma import Gamma
from .gaussian import Gaussian
from .hurdle import Hurdle
from .interval import Interval
from .laplace_noise import LaplaceNoise
from .logistic_noise import LogisticNoise
from .mixed import Mixed
from .multinomial import MultinomialLogit
from .negative_binomial import NegativeBinomial
from .negative_binomial_1 import NegativeBinomial1
from .ordinal import Ordinal
from .ordinal_probit import OrdinalProbit
from .parameters import Parameter
from .poisson import Poisson
from .probit import BernoulliProbit
from .registry import WORDS, named, register
from .scalar import ExponentialLikelihood
from .sites import Domain, Loss, Site
from .stochastic_volatility import StochasticVolatility
from .student_t import StudentT
from .super_gaussian import NoiseLikelihood
from .survival import Exponential, Weibull
from .truncated import Truncated
from .tweedie import Tweedie
from .zero_inflated import ZeroInflated

__all__ = [
    "WORDS",
    "BernoulliLogit",
    "BernoulliProbit",
    "Beta",
    "BetaBinomial",
    "Binomial",
    "Bound",
    "ConvexBound",
    "DirectBound",
    "Domain",
    "Exponential",
    "ExponentialLikelihood",
    "Gamma",
    "Gaussian",
    "Hurdle",
    "Interval",
    "LaplaceNoise",
    "Likelihood",
    "LogisticNoise",
    "Loss",
    "Mixed",
    "MultinomialLogit",
    "NegativeBinomial",
    "NegativeBinomial1",
    "NoiseLikelihood",
    "Ordinal",
    "OrdinalProbit",
    "Parameter",
    "Poisson",
    "Site",
    "StochasticVolatility",
    "StudentT",
    "Truncated",
    "Tweedie",
    "Weibull",
    "ZeroInflated",
    "named",
    "register",
]

for _pattern in (  # one of each that has a word
    *(BernoulliLogit(), BernoulliProbit(), Binomial(1), BetaBinomial(1), Beta(), Ordinal([0.0]), OrdinalProbit([0.0])),
    *(Gaussian(), LaplaceNoise(), LogisticNoise(), StudentT(), Gamma(), Tweedie(), Exponential(), Weibull()),
    *(counts() for counts in (Poisson, NegativeBinomial, NegativeBinomial1)),
    *(
        made(counts())
        for counts in (Poisson, NegativeBinomial, NegativeBinomial1)
        for made in (Truncated, Hurdle, ZeroInflated)
    ),
    StochasticVolatility(),
):
    register(_pattern)
