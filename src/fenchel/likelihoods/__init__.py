"""Likelihoods, one a file; ``base`` is the contract. ``named`` finds one by the word an estimator has for it."""

from ..checks import choice
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
]

_SUPPORTS = ("real", "count", "positive", "unit", "levels")
_PATTERNS: tuple[Likelihood, ...] = (  # one of each that has a word
    *(BernoulliLogit(), BernoulliProbit(), Binomial(1), BetaBinomial(1), Beta(), Ordinal([0.0]), OrdinalProbit([0.0])),
    *(Gaussian(), LaplaceNoise(), LogisticNoise(), StudentT(), Gamma(), Tweedie(), Exponential(), Weibull()),
    *(counts() for counts in (Poisson, NegativeBinomial, NegativeBinomial1)),
    *(
        made(counts())
        for counts in (Poisson, NegativeBinomial, NegativeBinomial1)
        for made in (Truncated, Hurdle, ZeroInflated)
    ),
    StochasticVolatility(),
)


def _order(own: Likelihood) -> tuple[int, bool, int]:
    """By what their y is, the simplest first; a likelihood of the variance of y after those of its mean."""
    return _SUPPORTS.index(own.support), isinstance(own, StochasticVolatility), len(own.parameters)


WORDS: dict[str, Likelihood] = {str(own.word): own for own in sorted(_PATTERNS, key=_order)}


def named(word: str) -> Likelihood:
    """The likelihood that goes by a word, such as "poisson".

    Examples
    --------
    >>> from fenchel.likelihoods import named
    >>> named("negative-binomial").name
    'NegativeBinomial'
    """
    choice("named", "word", word, tuple(WORDS))
    return WORDS[word]
