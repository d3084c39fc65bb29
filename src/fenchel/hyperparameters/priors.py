"""Priors on hyperparameters: log p(theta) and its slope, one entry of theta at a time.

    HalfNormal   an sd is half-normal, P(sd > u) = a; theta = log sd: the default of terms
    PCDeviation  an sd is exponential, P(sd > u) = a; theta = log sd, or a multiple of it
    PCRange      P(range < r) = a in d dimensions; theta = log range            (Fuglstad et al. 2019)
    Normal       theta itself is normal

Penalised-complexity priors (Simpson et al. 2017) draw towards the simpler model: no effect, or a very smooth one.
Densities are of theta, on the scale on which it is learned. ``Scale`` says how theta is shown to a user, and with it a
prior prints itself in the user's units (``in_words``, ``described``). ``PC`` is what a user states; the parameter makes
a density of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy.special import ndtri

from ..checks import choice, problem, scalar
from ..files import Stated

Density = Callable[[float], tuple[float, float]]  # log p(theta) and its slope
_GRID = 2001  # points at which a density is summed
_MIDDLE = 1.959964  # sds either way of a normal: 95 %


@dataclass(frozen=True)
class Scale:
    """How one entry of theta is shown: theta = shift + factor t, where t is the log or logit of what users read.

    Attributes
    ----------
    name : str
        Of the value: "sd", "phi".
    label : str
        Of t, which a stated ``Normal`` is about: "log sd", "logit phi".
    value : callable
        theta -> the value.
    shift, factor : float
    """

    name: str
    label: str
    value: Callable[[float], float]
    shift: float = 0.0
    factor: float = 1.0


class ScalarPrior(Stated, ABC):
    """A density of one number."""

    @abstractmethod
    def __call__(self, theta: float) -> tuple[float, float]:
        """log p(theta) and its derivative."""

    def stated_on(self, scale: Scale) -> ScalarPrior:
        """The density of theta that a user means by it: of theta itself, but for a normal, which is of t."""
        return self

    def in_words(self, scale: Scale) -> str:
        """As a person would write it, in the units of ``scale``."""
        return f"{self!r} of {scale.label}"


def distribution(prior: Density | None, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Points within the bounds, and the distribution function of theta there; None is flat."""
    at = np.linspace(*bounds, _GRID)
    log_p = np.zeros(_GRID) if prior is None else np.array([prior(float(t))[0] for t in at])
    p = np.exp(log_p - log_p.max())
    total = np.concatenate([[0.0], np.cumsum((p[1:] + p[:-1]) / 2)])
    return at, total / total[-1]


def described(prior: Density | None, scale: Scale, bounds: tuple[float, float]) -> tuple[str, float, float]:
    """A prior in words, and the middle 95 % of it in the user's units; of a flat one within the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.priors import Normal, Scale, described
    >>> described(Normal(1.0, 0.5), Scale("size", "log size", np.exp), (-9.0, 9.0))[0]
    'log size ~ N(1, 0.5^2)'
    """
    if isinstance(prior, Normal):
        theta = np.array([prior.mean - _MIDDLE * prior.sd, prior.mean + _MIDDLE * prior.sd])
    else:
        at, total = distribution(prior, bounds)
        theta = np.interp([0.025, 0.975], total, at)
    with np.errstate(over="ignore"):
        low, high = sorted(float(scale.value(float(t))) for t in theta)
    if prior is None:
        return f"flat in {scale.label}", low, high
    return prior.in_words(scale) if isinstance(prior, ScalarPrior) else f"{prior!r} of {scale.label}", low, high


@dataclass(frozen=True)
class PC(Stated):
    """A penalised-complexity prior, stated by a value of the parameter and a tail probability.

    Give one of ``sd``, ``range``, ``phi`` and ``rho``.

    Parameters
    ----------
    sd : float, default 1.0
        P(standard deviation > ``sd``) = ``alpha``; the sd has an exponential distribution.
    alpha : float, default 0.01
        The probability.
    range : float, optional
        P(range < ``range``) = ``alpha``, for fields and processes.
    phi, rho : float, optional
        P(phi < ``phi``) = ``alpha``, for the share phi of ``bym2``, rho of ``leroux`` (whose simplest models have no
        structure) and the correlation phi of ``ar1``.
    base : {0, 1}, default 0
        For ``ar1``, its simplest model: 0 is no correlation (alpha then refers to the absolute value of phi), 1 is no
        change in time.

    Examples
    --------
    >>> import fenchel
    >>> fenchel.PC(phi=0.5, alpha=2 / 3).stated
    ('phi', 0.5)
    """

    sd: float | None = None
    alpha: float = 0.01
    _: KW_ONLY
    range: float | None = None
    phi: float | None = None
    rho: float | None = None
    base: int = 0

    def __post_init__(self) -> None:
        words = [word for word in ("sd", "range", "phi", "rho") if getattr(self, word) is not None]
        if len(words) > 1:
            raise problem("PC", f"{' and '.join(words)} are given", "one of sd, range, phi and rho")
        if not words:
            object.__setattr__(self, "sd", 1.0)
        word, value = self.stated
        scalar("PC", word, value, 0.0, np.inf if word in ("sd", "range") else 1.0)
        scalar("PC", "alpha", self.alpha, 0.0, 1.0)
        choice("PC", "base", self.base, (0, 1))

    @property
    def stated(self) -> tuple[str, float]:
        """The name of the parameter that was given, and its value."""
        return next((w, float(x)) for w in ("range", "phi", "rho", "sd") if (x := getattr(self, w)) is not None)


def _level(where: str, u: float, probability: float) -> None:
    scalar(where, "u", u, 0.0)
    scalar(where, "probability", probability, 0.0, 1.0)


@dataclass(frozen=True)
class PCDeviation(ScalarPrior):
    """Exponential prior of a standard deviation, P(sd > u) = probability, for theta = power * log sd.

    Parameters
    ----------
    u : float
    probability : float, default 0.01
    power : float, default 1.0
        1 if theta is a log sd, as for every term; 2 if it is a log variance, as for kernels of scikit-learn and the
        variance of a likelihood.

    Examples
    --------
    >>> from fenchel.hyperparameters.priors import PCDeviation
    >>> round(PCDeviation(1.0, 0.01)(0.0)[0], 6)
    -3.077991
    """

    u: float
    probability: float = 0.01
    power: float = 1.0

    def __post_init__(self) -> None:
        _level("PCDeviation", self.u, self.probability)
        scalar("PCDeviation", "power", self.power, 0.0)

    def in_words(self, scale: Scale) -> str:
        u = scale.value(self.power * float(np.log(self.u)))
        return f"exponential, P({scale.name} > {u:.4g}) = {self.probability:g}"

    def __call__(self, theta: float) -> tuple[float, float]:
        rate = -np.log(self.probability) / self.u
        log_sd = theta / self.power
        pull = rate * np.exp(log_sd)
        return float(np.log(rate / self.power) + log_sd - pull), float((1.0 - pull) / self.power)


@dataclass(frozen=True)
class HalfNormal(ScalarPrior):
    """Half-normal prior of a standard deviation, P(sd > u) = probability, for theta = log sd.

    The log density falls with the square of the sd: it has little effect on an sd well below u, and excludes one far
    above u even with few groups.

    Examples
    --------
    >>> from fenchel.hyperparameters.priors import HalfNormal
    >>> round(HalfNormal(5.0, 0.05).sd, 4)
    2.5511
    """

    u: float
    probability: float = 0.05

    def __post_init__(self) -> None:
        _level("HalfNormal", self.u, self.probability)

    @property
    def sd(self) -> float:
        """Standard deviation of the normal distribution whose upper half it is."""
        return self.u / float(ndtri(1.0 - self.probability / 2.0))

    def in_words(self, scale: Scale) -> str:
        return f"half-normal, P({scale.name} > {scale.value(float(np.log(self.u))):.4g}) = {self.probability:g}"

    def __call__(self, theta: float) -> tuple[float, float]:
        square = float(np.exp(2.0 * (theta - np.log(self.sd))))
        value = 0.5 * np.log(2.0 / np.pi) - np.log(self.sd) + theta - square / 2.0
        return float(value), 1.0 - square


@dataclass(frozen=True)
class PCRange(ScalarPrior):
    """Penalised-complexity prior of a range, P(range < r) = probability in ``dimension`` dimensions; theta = log range.

    Examples
    --------
    >>> from fenchel.hyperparameters.priors import PCRange
    >>> round(PCRange(1.0, 0.5)(0.0)[0], 4)
    -1.0597
    """

    r: float
    probability: float = 0.05
    dimension: int = 2

    def __post_init__(self) -> None:
        _level("PCRange", self.r, self.probability)

    def in_words(self, scale: Scale) -> str:
        return f"P({scale.name} < {scale.value(float(np.log(self.r))):.4g}) = {self.probability:g}"

    def __call__(self, theta: float) -> tuple[float, float]:
        half = self.dimension / 2
        rate = -np.log(self.probability) * self.r**half
        pull = rate * np.exp(-half * theta)
        return float(np.log(half * rate) - half * theta - pull), float(half * (pull - 1.0))


@dataclass(frozen=True)
class Normal(ScalarPrior):
    """Normal prior of theta, or in ``priors=`` of a model of a coefficient or the log or logit of a parameter.

    Examples
    --------
    >>> import fenchel
    >>> fenchel.Normal(0.0, 2.0)
    Normal(mean=0.0, sd=2.0)
    """

    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        scalar("Normal", "mean", self.mean)
        scalar("Normal", "sd", self.sd, 0.0)

    def stated_on(self, scale: Scale) -> Normal:
        return Normal(scale.shift + scale.factor * self.mean, abs(scale.factor) * self.sd)

    def in_words(self, scale: Scale) -> str:
        mean, sd = (self.mean - scale.shift) / scale.factor, self.sd / abs(scale.factor)
        return f"{scale.label} ~ N({round(mean, 10) + 0.0:.4g}, {sd:.4g}^2)"

    def __call__(self, theta: float) -> tuple[float, float]:
        z = (theta - self.mean) / self.sd
        return float(-0.5 * z * z - np.log(self.sd) - 0.5 * np.log(2 * np.pi)), float(-z / self.sd)


@dataclass(frozen=True)
class Independent(Stated):
    """log p(theta) of independent entries: {index: prior}; the other entries are flat.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.hyperparameters.priors import Independent, Normal
    >>> Independent({1: Normal(0.0, 1.0)})(np.array([5.0, 2.0]))[1]
    array([ 0., -2.])
    """

    priors: Mapping[int, ScalarPrior]

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        total, slope = 0.0, np.zeros(len(theta))
        for index, prior in self.priors.items():
            if not -len(theta) <= index < len(theta):
                raise problem("Independent", f"entry {index} of theta has a prior", f"an index below {len(theta)}")
            value, slope[index] = prior(float(theta[index]))
            total += value
        return total, slope


independent = Independent  # the name it had as a function
