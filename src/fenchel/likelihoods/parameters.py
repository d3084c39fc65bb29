"""A likelihood's own parameters: what each is called, the scale on which it is learned, where it may lie and starts.

A likelihood lists its ``parameters``; theta, its names, its bounds and a table in words follow from the list.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..checks import number
from ..linalg.arrays import Array, to_numpy
from ..transforms import LOG, OfRows, Transform

_WITHIN = 10.0  # a parameter of which nothing is known stays within e^10 of where it stands


Density = Callable[[float], tuple[float, float]]  # log p(theta) and its slope


@dataclass(frozen=True)
class Parameter:
    """One parameter of a likelihood.

    Attributes
    ----------
    name : what it is called in words
    attribute : the constructor's argument, and the attribute that holds it
    transform : to the scale on which it is learned
    bounds : where it may lie when it is learned: two numbers in the user's units; or a function of the likelihood and
        y (N,), NaN where unobserved, that gives bounds of theta, (k, 2); None is within e^10 of where it stands
    prior : a density of theta, as in ``fenchel.hyperparameters.priors``, or one for each entry; None is flat
    start : a function of the class, y and the weights (0 where unobserved) that gives where learning starts, in the
        user's units; None is the constructor's default
    """

    name: str
    attribute: str
    transform: Transform = LOG
    bounds: tuple[float, float] | Callable[[Any, np.ndarray], Any] | None = None
    prior: Density | tuple[Density | None, ...] | None = None
    start: Callable[[Any, np.ndarray, np.ndarray], Any] | None = None

    def bounds_of(self, likelihood: Any, y: np.ndarray) -> np.ndarray:
        """Of theta (k, 2)."""
        if callable(self.bounds):
            return np.asarray(self.bounds(likelihood, y), dtype=np.float64).reshape(-1, 2)
        if self.bounds is None:
            theta = self.transform.forward(getattr(likelihood, self.attribute))
            return np.asarray(theta[:, None] + np.array([[-_WITHIN, _WITHIN]]))
        return np.array([[self.transform.forward(x)[0] for x in self.bounds]])


def shown(value: Any, of: Callable[[float], str] = number) -> str:
    """A parameter in a repr: a number, or dots for one number a row."""
    return of(value) if np.ndim(value) == 0 else "..."


class Parametrised:
    """What follows from ``parameters``."""

    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def learned(self) -> tuple[Parameter, ...]:
        """The parameters that theta holds: not those that were given row by row."""
        return tuple(p for p in self.parameters if p.transform.takes(getattr(self, p.attribute)))

    @property
    def of_rows(self) -> tuple[Parameter, ...]:
        """The parameters that have a linear predictor of their own."""
        return tuple(p for p in self.parameters if isinstance(p.transform, OfRows))

    def taken(self, index: Any) -> dict[str, Any]:
        """What the parameters that differ from row to row are for some of the rows."""
        out: dict[str, Any] = {}
        for p in self.parameters:
            value = getattr(self, p.attribute)
            if (np.ndim(value) == 1 and not p.transform.takes(value)) or isinstance(p.transform, OfRows):
                out[p.attribute] = np.asarray(value)[index]
        if self.of_rows:
            out["parameters"] = tuple(
                replace(p, transform=p.transform.take(index)) if isinstance(p.transform, OfRows) else p
                for p in self.parameters
            )
        return out

    @property
    def theta(self) -> np.ndarray:
        """The likelihood's own parameters on an unconstrained scale; empty when it has none."""
        each = [p.transform.forward(getattr(self, p.attribute)) for p in self.learned]
        return np.concatenate([np.zeros(0), *each])

    @property
    def theta_names(self) -> list[str]:
        """What each entry of theta is."""
        n, names = self.theta.size, []
        for p in self.learned:
            names += p.transform.names(p.name, p.transform.forward(getattr(self, p.attribute)).size)
        return names if len(names) == n else [f"likelihood {i}" for i in range(n)]

    def changed(self, **attributes: Any) -> Self:
        """The same likelihood with other attributes."""
        out = copy.copy(self)
        out.__dict__.update(attributes)
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles make their own ``objective``."""
        return {key: value for key, value in self.__dict__.items() if key != "objective"}

    def with_theta(self, theta: np.ndarray) -> Self:
        """The same likelihood with other parameters."""
        values, i = {}, 0
        for p in self.learned:
            n = p.transform.forward(getattr(self, p.attribute)).size
            values[p.attribute] = p.transform.inverse(theta[i : i + n])
            i += n
        return self.changed(**values) if values else self

    def theta_bounds(self, y: np.ndarray) -> np.ndarray:
        """Where theta may lie when it is learned from y (N,), NaN where unobserved: (n_theta, 2)."""
        return np.concatenate([np.zeros((0, 2)), *(p.bounds_of(self, y) for p in self.learned)])

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """log p(theta) and its gradient, of the parameters that have a prior."""
        value, slopes, i = 0.0, np.zeros_like(theta), 0
        for p in self.learned:
            n = p.transform.forward(getattr(self, p.attribute)).size
            for k, prior in enumerate(p.prior if isinstance(p.prior, tuple) else (p.prior,) * n, i):
                if prior is not None:
                    each, slopes[k] = prior(float(theta[k]))
                    value += each
            i += n
        return value, slopes

    def own_priors(self) -> list[tuple[str, str, Density | None]]:
        """The priors of what is learned: (owner, parameter, density of theta)."""
        out: list[tuple[str, str, Density | None]] = []
        for p in self.learned:
            if isinstance(p.transform, OfRows) and isinstance(p.prior, tuple):
                pairs = zip(p.transform.columns, p.prior, strict=True)
                out += [(p.transform.owner, name if d is None else f"{name}, for one sd of it", d) for name, d in pairs]
            elif not isinstance(p.prior, tuple):
                out.append((self.name, p.name, p.prior))
        return out

    def gathered(self, *slopes: Array) -> np.ndarray:
        """The gradient of the evidence in theta: minus what the rows say, weight_n df_n/dtheta (N,) a parameter."""
        each = [p.transform.gather(to_numpy(s)) for p, s in zip(self.learned, slopes, strict=True)]
        return -np.concatenate([np.zeros(0), *each])

    def readable(self) -> list[tuple[str, str, float]]:
        """The parameters in words: (owner, parameter, value)."""
        out: list[tuple[str, str, float]] = []
        for p in self.parameters:
            value = getattr(self, p.attribute)
            if isinstance(p.transform, OfRows):
                at = p.transform.back @ p.transform.forward(value)
                out += [
                    (p.transform.owner, column, float(b)) for column, b in zip(p.transform.columns, at, strict=True)
                ]
            elif np.ndim(value):
                out += [(p.attribute, str(k), float(b)) for k, b in enumerate(value)]
            else:
                out.append((self.name, p.attribute, float(value)))
        return out
