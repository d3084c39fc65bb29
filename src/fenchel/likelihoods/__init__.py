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
from .hurdle import HurdleNegativeBinomial, HurdlePoisson
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
from .survival_intervals import IntervalExponential, IntervalWeibull
from .truncated import TruncatedNegativeBinomial, TruncatedPoisson
from .tweedie import Tweedie
from .zero_inflated import ZeroInflatedPoisson
from .zero_inflated_negative_binomial import ZeroInflatedNegativeBinomial

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
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "IntervalExponential",
    "IntervalWeibull",
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
    "TruncatedNegativeBinomial",
    "TruncatedPoisson",
    "Tweedie",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
    "named",
]

_SUPPORTS = ("real", "count", "positive", "unit", "levels")
_LISTED = [cls for cls in map(globals().get, __all__) if isinstance(cls, type) and issubclass(cls, Likelihood)]


def _order(cls: type[Likelihood]) -> tuple[int, bool, int]:
    """By what their y is, the simplest first; a likelihood of the variance of y after those of its mean."""
    return _SUPPORTS.index(cls.support), cls is StochasticVolatility, len(cls.parameters)


WORDS: dict[str, type[Likelihood]] = {cls.word: cls for cls in sorted(_LISTED, key=_order) if cls.word is not None}


def named(word: str) -> type[Likelihood]:
    """The likelihood that goes by a word, such as "poisson".

    Examples
    --------
    >>> from fenchel.likelihoods import named
    >>> named("negative-binomial").__name__
    'NegativeBinomial'
    """
    choice("named", "word", word, tuple(WORDS))
    return WORDS[word]
