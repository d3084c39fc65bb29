"""A likelihood's own parameters: the name of each, the scale on which it is learned, its bounds and its starting value.

A likelihood lists its ``parameters``. The vector theta, its names, its bounds and the printed tables follow from it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from ..linalg.arrays import Array, ArrayLike, to_numpy
from ..transforms import LOG, OfRows, Steps, Transform

_WITHIN = 10.0  # a parameter of which nothing is known stays within e^10 of where it stands
_DERIVED = ("objective", "counts")  # attributes that are made of the others when they are asked for
_FEW_SHOWN = 8  # entries of a vector that a repr shows
_WIDE = 10.0  # prior sd of a coefficient, for what one sd of its column does, and of a first cutpoint


Density = Callable[[float], tuple[float, float]]  # log p(theta) and its slope


@dataclass(frozen=True)
class Parameter:
    """One parameter of a likelihood.

    Attributes
    ----------
    name : its name in messages and tables
    attribute : the constructor's argument, and the attribute that holds it
    transform : the transformation to the scale on which it is learned
    bounds : its limits while it is learned: two numbers in the user's units; bounds of theta, (k, 2), or a function of
        the likelihood, the observed y and their weights that gives them; None: within a factor e^10 of its value
    prior : a density of theta, as in ``fenchel.hyperparameters.priors``, or one for each entry; None is flat
    start : a function of a likelihood of the kind, y and the weights (0 where unobserved) that gives the starting
        value in the user's units; None is the constructor's default
    word : its name in ``priors=`` of a model; None: the name of the attribute
    shown, power : what tables show where it is not the attribute itself (an sd), with theta = power log of it
    weak : (median, sd) of the normal prior that each entry of theta has by default in a model of a formula; None for
        the median: the starting value
    formula : the argument of a model, "dispersion" or "zero", that gives it a formula, and the scale of that formula
    """

    name: str
    attribute: str
    transform: Transform = LOG
    bounds: tuple[float, float] | np.ndarray | Callable[[Any, np.ndarray, np.ndarray], Any] | None = None
    prior: Density | tuple[Density | None, ...] | None = None
    start: Callable[[Any, np.ndarray, np.ndarray], Any] | None = None
    word: str | None = None
    shown: str | None = None
    power: float | None = None
    weak: tuple[float | None, float] = (None, 3.0)
    formula: tuple[str, str] | None = None

    def of(self, likelihood: Any) -> Any:
        """Its value in a likelihood, in the user's units."""
        return getattr(likelihood, self.attribute)

    def bounds_of(self, likelihood: Any, y: np.ndarray, weights: Any = None) -> np.ndarray:
        """Of theta (k, 2), by y (N,), NaN where unobserved."""
        if callable(self.bounds):
            y, w = observed(y, weights)
            bounds = self.bounds(likelihood, y[w > 0.0], w[w > 0.0])
            return np.asarray(bounds, dtype=np.float64).reshape(-1, 2)
        if self.bounds is None:
            theta = self.transform.forward(self.of(likelihood))
            return np.asarray(theta[:, None] + np.array([[-_WITHIN, _WITHIN]]))
        if np.ndim(self.bounds) == 2:
            return np.asarray(self.bounds)
        return np.array([[self.transform.forward(x)[0] for x in self.bounds]])

    def known(self, likelihood: Any, y: np.ndarray, weights: Any) -> Parameter:
        """The same of these rows, with numbers in the place of its functions, so that a file can keep it."""
        bounds = self.bounds_of(likelihood, y, weights) if callable(self.bounds) else self.bounds
        return replace(self, start=None, bounds=bounds)

    def entries(self, likelihood: Any) -> list[ThetaEntry]:
        """One for each of its entries of theta."""
        t, word, shown = self.transform, self.word or self.attribute, self.shown or self.attribute
        theta = t.forward(self.of(likelihood))
        given = self.prior if isinstance(self.prior, tuple) else (self.prior,) * theta.size
        centre = theta if self.weak[0] is None else np.full(theta.size, self.weak[0])
        weak = [(float(m), self.weak[1]) for m in centre]
        if isinstance(t, OfRows):
            names, factors, level = list(t.columns), 1.0 / np.diag(t.back), t.level
            alone = theta.size == level  # without columns its level is the parameter itself
            weak = [(float(centre[0]), self.weak[1] if alone else _WIDE)] * level
            weak += [(0.0, _WIDE)] * (theta.size - level)
            labels = [f"{t.owner} at the mean of the columns" if j < level else name for j, name in enumerate(names)]
            values: list[Callable[[float], float]] = [partial(_times, 1.0 / f) for f in factors]
            wide, sized = [not alone] * theta.size, False
        elif isinstance(t, Steps):
            names = ["first", *(f"step {k}" for k in range(1, theta.size))]
            labels = t.names(self.name, theta.size)
            values, factors = [partial(_times, 1.0), *[_exp] * (theta.size - 1)], np.ones(theta.size)
            wide, sized = [True] + [False] * (theta.size - 1), False
            weak[0] = float(theta[0]), _WIDE
        else:
            power = 1.0 if self.power is None else self.power
            names, factors, wide, sized = [shown], np.array([power]), [False], word == "noise"
            labels = t.names(shown, 1)
            values = [partial(_root, t, power)]
        columns = zip(names, labels, values, factors, weak, wide, given, strict=True)
        return [ThetaEntry(word, n, s, v, float(f), w, by, sized, p) for n, s, v, f, w, by, p in columns]


@dataclass(frozen=True)
class ThetaEntry:
    """One entry of theta as users see it.

    Attributes
    ----------
    word, name : its name in ``priors=``, and its part: "noise" and "sd", or "zero" and a column
    label : the name of t, with theta = factor t: "log sd"
    value : the function from theta to what tables show
    weak : (median, sd) of the default normal prior of theta in a model
    wide : whether that sd is for ``fixed_sd=10`` and scales with it
    size : whether tables show an sd or a scale
    prior : the prior of theta, where one is stated
    """

    word: str
    name: str
    label: str
    value: Callable[[float], float]
    factor: float
    weak: tuple[float, float]
    wide: bool = False
    size: bool = False
    prior: Density | None = None


def _times(by: float, theta: float) -> float:
    return by * theta


def _exp(theta: float) -> float:
    return float(np.exp(theta))


def _root(transform: Transform, power: float, theta: float) -> float:
    return float(transform.inverse(np.array([theta])) ** (1.0 / power))


class Parametrised:
    """The methods that follow from ``parameters``."""

    parameters: tuple[Parameter, ...] = ()
    called: str | None = None  # by what is made of it
    restate: Any  # of ``files.Stated``, whom every likelihood has for a base
    priors: tuple[Density | None, ...] | None = None  # of each entry of theta; None: those of the parameters

    @property
    def name(self) -> str:
        return self.called or type(self).__name__

    @property
    def learned(self) -> tuple[Parameter, ...]:
        """The parameters that theta holds: not those that were given row by row."""
        return tuple(p for p in self.parameters if p.transform.takes(p.of(self)))

    @property
    def of_rows(self) -> tuple[Parameter, ...]:
        """The parameters that have a linear predictor of their own."""
        return tuple(p for p in self.parameters if p.transform.of_rows)

    def taken(self, index: Any) -> dict[str, Any]:
        """What the parameters that differ from row to row are for some of the rows."""
        out: dict[str, Any] = {}
        for p in self.parameters:
            value = p.of(self)
            if (np.ndim(value) == 1 and not p.transform.takes(value)) or p.transform.of_rows:
                out[p.attribute] = np.asarray(value)[index]
        if self.of_rows:
            out["parameters"] = tuple(replace(p, transform=p.transform.take(index)) for p in self.parameters)
        return out

    @property
    def theta(self) -> np.ndarray:
        """The likelihood's own parameters on an unconstrained scale; empty when it has none."""
        each = [p.transform.forward(p.of(self)) for p in self.learned]
        return np.concatenate([np.zeros(0), *each])

    @property
    def theta_names(self) -> list[str]:
        """What each entry of theta is."""
        n, names = self.theta.size, []
        for p in self.learned:
            names += p.transform.names(p.name, p.transform.forward(p.of(self)).size)
        return names if len(names) == n else [f"likelihood {i}" for i in range(n)]

    def changed(self, **attributes: Any) -> Self:
        """The same likelihood with other attributes."""
        out = copy.copy(self)
        out.__dict__.update(attributes)
        out.restate(**attributes)
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles make their own ``objective``, and what else was made of the attributes."""
        return {key: value for key, value in self.__dict__.items() if key not in _DERIVED}

    def with_theta(self, theta: np.ndarray) -> Self:
        """The same likelihood with other parameters."""
        values, i = {}, 0
        for p in self.learned:
            n = p.transform.forward(p.of(self)).size
            values[p.attribute] = p.transform.inverse(theta[i : i + n])
            i += n
        return self.changed(**values) if values else self

    def theta_bounds(self, y: np.ndarray, weights: Any = None) -> np.ndarray:
        """Where theta may lie when it is learned from y (N,), NaN where unobserved, with weights: (n_theta, 2)."""
        return np.concatenate([np.zeros((0, 2)), *(p.bounds_of(self, y, weights) for p in self.learned)])

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient, of the parameters that have a prior."""
        value, slopes = 0.0, np.zeros_like(theta)
        if self.priors is None and all(p.prior is None for p in self.learned):
            return value, slopes
        for k, prior in enumerate([e.prior for e in self.entries()] if self.priors is None else self.priors):
            if prior is not None:
                each, slopes[k] = prior(float(theta[k]))
                value += each
        return value, slopes

    def entries(self) -> list[ThetaEntry]:
        """theta as users know it, entry by entry, with its priors."""
        out = [entry for p in self.learned for entry in p.entries(self)]
        given = [entry.prior for entry in out] if self.priors is None else self.priors
        return [replace(entry, prior=prior) for entry, prior in zip(out, given, strict=True)]

    def with_priors(self, priors: Sequence[Density | None]) -> Self:
        """The same likelihood with these priors of its entries of theta."""
        return self.changed(priors=tuple(priors))

    def gathered(self, *slopes: Array) -> np.ndarray:
        """The gradient of the evidence in theta: minus what the rows say, weight_n df_n/dtheta (N,) a parameter."""
        each = [p.transform.gather(to_numpy(s)) for p, s in zip(self.learned, slopes, strict=True)]
        return -np.concatenate([np.zeros(0), *each])

    def readable(self) -> list[tuple[str, str, float]]:
        """The parameters in words: (owner, parameter, value)."""
        out: list[tuple[str, str, float]] = []
        for p in self.parameters:
            value = p.of(self)
            coefficients = p.transform.coefficients(value)
            if coefficients:
                out += coefficients
            elif np.ndim(value):
                out += [(p.attribute, str(k), float(b)) for k, b in enumerate(value)]
            else:
                out.append((self.name, p.attribute, float(value)))
        return out

    def __repr__(self) -> str:
        """The arguments of the constructor that are not its defaults; the first one without its name."""
        given = []
        for i, (key, argument) in enumerate(inspect.signature(type(self)).parameters.items()):
            value = getattr(self, key, argument.default)
            if np.ndim(value):
                value = np.asarray(value).tolist() if np.size(value) <= _FEW_SHOWN else ...
            if value is not argument.default and value != argument.default:
                text = "..." if value is ... else repr(value)
                given.append(text if i == 0 and key != "bound" else f"{key}={text}")
        return f"{type(self).__name__}({', '.join(given)})"


# -- Summaries of a weighted sample, from which learning starts ----------------------------------
FLOOR = 1e-10  # of a noise variance, relative to the variance of y
CEILING = 1e3  # of a noise variance, relative to the square of the largest y
_NORMAL_QUARTILES = 1.3489795003921634  # their distance under N(0, 1)


def observed(y: ArrayLike, weights: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """y with 0 and weights with 0 where y is NaN."""
    y = np.asarray(y, dtype=np.float64)
    return np.nan_to_num(y), np.where(np.isnan(y), 0.0, 1.0 if weights is None else weights)


def per_row(value: object, n: int) -> np.ndarray:
    """A number, a vector, or None for 1, as (n,)."""
    return np.broadcast_to(np.asarray(1.0 if value is None else value, dtype=np.float64), (n,))


def mean(y: np.ndarray, w: np.ndarray) -> float:
    """The weighted mean."""
    return float(np.average(y, weights=w))


def quantile(y: np.ndarray, w: np.ndarray, level: float) -> float:
    """The weighted quantile: the middle of where the cumulative weight passes ``level``."""
    order = np.argsort(y, kind="stable")
    total = np.cumsum(w[order])
    left, right = (np.searchsorted(total, level * total[-1], side=side) for side in ("left", "right"))
    return float((y[order[left]] + y[order[min(int(right), y.size - 1)]]) / 2)


def spread(y: np.ndarray, w: np.ndarray, robust: bool = False) -> float:
    """The standard deviation; by the quartiles if ``robust``; where y is constant its size, or 1 for zeros."""
    quartiles = quantile(y, w, 0.75) - quantile(y, w, 0.25) if robust else 0.0
    if quartiles > 0.0:
        return quartiles / _NORMAL_QUARTILES
    centre = mean(y, w)
    sd = float(np.sqrt(np.average((y - centre) ** 2, weights=w)))
    return sd if sd > 1e-12 * abs(centre) else abs(centre) or 1.0  # in the units of y even where it has no spread


def log_noise_variance(y: np.ndarray, w: np.ndarray, start: float, robust: bool = False) -> tuple[float, float]:
    """Bounds of log v, a noise variance, for targets y with weights; about ``start`` where y has no spread.

        FLOOR * spread(y) <= v <= CEILING * largest(y)^2

    Below the floor 1 + S/v keeps fewer than six digits of its 1, for S of the size of the data; nor can the noise be
    below the rounding of y itself. The ceiling is beyond what y can be. ``spread`` is the variance, or from the
    quartiles where the tails are heavy: one outlier of 1e10 must not hide noise of 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.likelihoods.parameters import log_noise_variance
    >>> np.exp(log_noise_variance(np.array([0.0, 2.0]), np.array([3.0, 3.0]), 1.0))
    array([1.e-10, 4.e+03])
    """
    seen = np.isfinite(y)
    y, w = y[seen], w[seen]
    largest = float(np.abs(y).max(initial=0.0))
    typical = quantile(np.abs(y), w, 0.5) if robust and y.size else largest
    rounding = (np.finfo(np.float64).eps * typical) ** 2
    with np.errstate(over="ignore"):
        spread = mean((y - mean(y, w)) ** 2, w) if y.size else 0.0
        if robust and y.size:
            middle = (quantile(y, w, 0.75) - quantile(y, w, 0.25)) / _NORMAL_QUARTILES
            spread = middle**2 if middle > 0.0 else spread
    if not rounding < spread < np.inf:  # constant, or beyond squares
        spread = start
    with np.errstate(divide="ignore"):
        highest = max(2.0 * np.log(largest), np.log(spread))  # the square itself may overflow
    return float(np.log(max(FLOOR * spread, rounding))), float(np.log(CEILING) + highest)
