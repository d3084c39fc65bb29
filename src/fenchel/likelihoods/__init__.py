"""Likelihoods, one in each file. ``base`` is the contract, ``named`` finds one by its name, ``register`` adds one."""

from .base import Likelihood
from .beta import Beta, BetaBinomial
from .binomial import BernoulliLogit, Binomial
from .bounds import Bound, ConvexBound, DirectBound, Domain, Loss, Site
from .exponential_family import ExponentialLikelihood, Gamma, StochasticVolatility
from .extra_zeros import Hurdle, ZeroInflated
from .heavy_tails import LaplaceNoise, StudentT
from .interval import Interval
from .mixed import Mixed
from .modified import Truncated
from .negative_binomial import NegativeBinomial, NegativeBinomial1
from .noise import Gaussian, LogisticNoise, NoiseLikelihood
from .ordinal import Ordinal
from .parameters import Parameter
from .poisson import Poisson
from .probit import BernoulliProbit, OrdinalProbit
from .registry import WORDS, named, register
from .softmax import MultinomialLogit
from .survival import Exponential, Weibull
from .tweedie import Tweedie

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
