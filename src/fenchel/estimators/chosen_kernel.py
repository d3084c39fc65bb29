"""The kernel of a Gaussian process: the user's, or one chosen by the evidence of some rows (``KernelTrials``).

Compared are RBF and Matern kernels with nu = 5/2, 3/2 and 1/2 and one length scale, and the best of them with a length
scale for each column. These searches are loose; the chosen kernel is then learned on all rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from inspect import isclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import CompoundKernel, ConstantKernel, NormalizedKernelMixin, Product, Sum

from ..checks import callers_line, problem
from ..files import searched
from ..hyperparameters import Evidence
from ..hyperparameters.gaussian_rows import quick_climb
from ..hyperparameters.kernel_choice import KernelShape, KernelTrials
from ..hyperparameters.search import Search, SearchOptions
from ..inputs.observations import Target
from ..kernels import diagonal, evaluate, is_compound, kernels_of, refuse_compound
from ..likelihoods.base import Likelihood
from ..scaled_kernels import ScaledRBF
from .lengths import few_rows, kernel_part, kernel_starts, known_of_rows, scaled_by

if TYPE_CHECKING:
    from .kernel_latent import KernelLatent

_LEAST_ROWS = 50  # different rows from which a kernel is chosen
_MOST_ROWS = 500  # rows in the sample if there are more
_MOST_LENGTHS = 30  # columns up to which each may have its own length scale
_ROWS_A_LENGTH = 10
_TOL, _SLOPE = 1e-6, 0.2  # relative gap of a fit; slope in nats per log unit at which a search ends
_STEPS = 6, 12, 24, 48  # numbers of steps of successive searches, each from the end of the last
_RISE = 0.5  # nats that a search must gain for another one to follow
_SEEN, _UNRELATED = 500, 1e-3  # rows that are checked; correlation below which rows are unrelated
_FAR = 3.0  # nats below the best kernel from which a search is given up
_VANISHED = float(np.log(1e4))  # log units by which weights above 1 make the noise suspiciously small
_INVISIBLE = 1e-2  # variance of the function relative to that of y below which its slopes are lost in the noise


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel with the start of its hyperparameters, and the other kernels that were tried.

    kernel : its theta is the start from distances of rows, about which a prior of theta is centred
    theta : the start, with the parameters of the likelihood if these are learned; None: that of ``kernel``
    trials : None if the kernel was not chosen by the evidence
    """

    kernel: Any
    theta: np.ndarray | None = None
    trials: KernelTrials | None = None

    def for_each(self, n_functions: int) -> ChosenKernel:
        """A copy of the kernel for each function; likelihoods of several functions have no parameters."""
        if n_functions == 1 or is_compound(self.kernel):
            return self
        theta = None if self.theta is None else np.tile(self.theta, n_functions)
        return replace(self, kernel=CompoundKernel([clone(self.kernel) for _ in range(n_functions)]), theta=theta)

    def divided(self, variance: float) -> ChosenKernel:
        """The same kernel in other units of eta."""
        if variance == 1.0:
            return self
        k1, log = self.kernel.k1, np.log(variance)
        made = scaled_by(k1.constant_value / variance, self.kernel.k2)
        theta = None if self.theta is None else np.concatenate([self.theta[:1] - log, self.theta[1:]])
        return replace(self, kernel=made, theta=theta)

    @property
    def shrinks(self) -> bool:
        """Whether there is a length scale for each column, with a prior about its start."""
        return self.trials is not None and self.trials.best().lengths > 1


def chosen_kernel(target: Target, weights: Any, latent: KernelLatent, own: bool) -> ChosenKernel:
    """The kernel with the largest evidence; ``own``: the parameters of the likelihood are learned, too.

    Of more than 500 different rows a sample with a fixed seed is used. With fewer than 50 the kernel is an RBF.
    """
    starts = kernel_starts(target, weights, latent)
    rows, w = few_rows(known_of_rows(target, latent), weights, _MOST_ROWS, seed=0)
    if rows.size < _LEAST_ROWS:
        return ChosenKernel(starts[0])
    choice = _Choice(target, replace(latent, X=latent.X[rows]), starts, rows, w, own)
    trials = searched("kernel_choice", choice.trials, _numbers, choice.restored)
    shape = trials.best()
    return ChosenKernel(choice.kernel(shape), trials.theta[shape], trials)


@dataclass
class _Choice:
    """The comparison of kernels on the rows of ``latent``; ``starts`` are those of ``kernel_starts``."""

    target: Target
    latent: KernelLatent
    starts: list[Any]
    rows: np.ndarray
    weights: np.ndarray
    own: bool

    def kernel(self, shape: KernelShape) -> Any:
        """The kernel of a shape at its start."""
        start = self._start(shape)
        part = start.k2
        made = kernel_part(shape, part.length_scale, part.length_scale_bounds, _units(start))
        return scaled_by(start.k1.constant_value, made)

    def _start(self, shape: KernelShape) -> Any:
        """The start in the units of a shape; several length scales start in those of their columns."""
        if shape.lengths > 1:
            return max(self.starts, key=_is_scaled)
        return next(start for start in self.starts if _is_scaled(start) == shape.scaled)

    def _no_trials(self) -> KernelTrials:
        """The trials before any kernel has been tried."""
        n, d = len(self.latent.X), len(self.latent.numeric)
        lengths = d if 1 < d <= _MOST_LENGTHS and n >= _ROWS_A_LENGTH * d else 1
        return KernelTrials(
            first=KernelShape("rbf", scaled=_is_scaled(self.starts[0])), lengths=lengths, units=len(self.starts) > 1
        )

    def trials(self) -> KernelTrials:
        """The trials of all kernels that are worth trying."""
        out = self._no_trials()
        shape = out.next_one()
        while shape is not None:
            out = out.and_also(shape, *self._learned(shape, out))
            shape = out.next_one()
        return out

    def _learned(self, shape: KernelShape, trials: KernelTrials) -> tuple[float, np.ndarray]:
        """The evidence of a shape and its theta; the search is given up if the evidence is far below the best."""
        latent = replace(self.latent, kernel=self.kernel(shape), shrinks=shape.lengths > 1)
        likelihood, family = self.target.likelihood.take(self.rows), latent.family()
        given: dict[str, Any] = {"weights": self.weights, "tol": _TOL, "own": self.own}
        evidence = Evidence(likelihood, family, self.target.y[self.rows], **given)
        theta = self._carried(shape, trials) if trials.evidence else evidence.start
        quick = quick_climb(evidence, np.clip(theta, *evidence.bounds.T), _SLOPE)
        if quick is not None:
            return quick.value - evidence.log_prior(quick.theta)[0], quick.theta
        top = max(trials.evidence.values(), default=-np.inf)
        value, hopeless = -np.inf, top - _FAR if shape.lengths == 1 else top + trials.price(shape) / 2.0
        for steps in _STEPS:
            search = Search(evidence, steps, _SLOPE, None, SearchOptions(max_runs=1))
            try:
                result = search.run(np.clip(theta, *evidence.bounds.T))
            except ValueError:  # beyond double precision
                break
            rise, value, theta = result.solution.elbo - value, result.solution.elbo, result.theta
            if value < hopeless or rise < _RISE or search.n_steps < steps:
                break
        return value, theta

    def _carried(self, shape: KernelShape, trials: KernelTrials) -> np.ndarray:
        """The theta of the best kernel so far, in the units of the shape; one length scale is repeated."""
        theta, before = trials.start(shape), max(trials.evidence, key=lambda one: trials.evidence[one])
        if before.scaled != shape.scaled and shape.lengths == 1:
            theta = theta.copy()
            theta[1] = self._start(shape).theta[1]
        if shape.lengths == 1:
            return theta
        units = _units(self._start(shape)) if before.scaled else None  # the lengths of a shape are in those of X
        lengths = theta[1] + (np.zeros(shape.lengths) if units is None else np.log(units))
        return np.concatenate([theta[:1], lengths, theta[2:]])

    def restored(self, numbers: dict[str, Any]) -> KernelTrials:
        """The trials from the numbers in a file."""
        out = self._no_trials()
        for word, lengths, scaled, value, theta in zip(*(numbers[name] for name in _KEPT), strict=True):
            shape = KernelShape(str(word), int(lengths), bool(scaled))
            out = out.and_also(shape, float(value), np.asarray(theta, dtype=np.float64))
        return out


def _is_scaled(kernel: Any) -> bool:
    return type(kernel.k2) is ScaledRBF


def _units(kernel: Any) -> np.ndarray | None:
    return kernel.k2.units if _is_scaled(kernel) else None


_KEPT = "words", "lengths", "scaled", "evidence", "theta"


def _numbers(trials: KernelTrials) -> dict[str, Any]:
    shapes = [list(each) for each in zip(*trials.evidence, strict=True)]
    values = [float(value) for value in trials.evidence.values()], list(trials.theta.values())
    return dict(zip(_KEPT, (*shapes, *values), strict=True))


def own_kernel(where: str, kernel: Any, X: np.ndarray, n_functions: int = 1) -> Any:
    """Check the user's kernel (or one for each function) against the columns of X, and return a copy."""
    if not X.shape[1]:
        got = f"kernel = {kernel!r} is one of numbers, and every column of X holds levels"
        raise problem(where, got, "kernel=None, or kernels OnColumns")
    several: Any = kernel.kernels if is_compound(kernel) else kernel
    if type(several) in (list, tuple):
        if n_functions == 1 or len(several) != n_functions:
            one = "one kernel: there is one function, and two classes share it"
            got = f"kernel is a list of {len(several)}"
            raise problem(where, got, one if n_functions == 1 else f"one kernel, or {n_functions}, one for each class")
        return CompoundKernel([own_kernel(where, each, X) for each in several])
    if isclass(kernel) or not hasattr(kernel, "clone_with_theta"):
        example = "a kernel of sklearn.gaussian_process.kernels, such as 1.0 * RBF(1.0)"
        raise problem(where, f"kernel = {kernel!r}", example, "None starts from the distances in X.")
    refuse_compound(kernel)
    out = clone(kernel)
    try:
        out(X[:1], X[:1])  # faster than of one set of rows
    except ValueError as error:
        got = f"kernel = {kernel!r} does not fit {X.shape[1]} columns ({error})"
        raise problem(where, got, "one length for all columns, or one for each") from None
    return out


def visible_start(target: Target, latent: KernelLatent, own: bool) -> np.ndarray | None:
    """The start of theta for a kernel of the user's whose variance is tiny beside that of y; None if it is not.

    Noise explains everything there: no hyperparameter has a slope, and a search would end at once. The start has the
    variance of y, as far as the bounds allow, and all else as the user gave it.
    """
    kernel = latent.kernel
    if is_compound(kernel) or latent.levels is not None:
        return None
    rows, low, direction = latent.X[:_SEEN], _INVISIBLE * target.scale**2, _scaling(kernel)
    variance = float(np.mean(diagonal(kernel, rows)))
    if not 0.0 < variance < low:
        return None
    theta = kernel.theta + np.log(target.scale**2 / variance) * direction
    theta = np.clip(theta, *np.asarray(kernel.bounds, dtype=np.float64).reshape(-1, 2).T)
    fixed = isinstance(kernel, NormalizedKernelMixin) or direction.any()
    if fixed and np.mean(diagonal(kernel.clone_with_theta(theta), rows)) < low:
        warnings.warn(
            f"{target.where}: the kernel allows the function less than a hundredth of the variance of y, so noise "
            "explains nearly everything. Give normalize_y=True, or a ConstantKernel with wider bounds.",
            UserWarning,
            stacklevel=callers_line(),
        )
    if not direction.any():
        return None
    return np.concatenate([theta, target.likelihood.theta]) if own else np.asarray(theta)


def _scaling(kernel: Any) -> np.ndarray:
    """The direction of theta along which the kernel is multiplied by e for each unit; zeros if there is none."""
    if isinstance(kernel, Sum):
        return np.concatenate([_scaling(kernel.k1), _scaling(kernel.k2)])
    if isinstance(kernel, Product):
        first, second = _scaling(kernel.k1), _scaling(kernel.k2)
        return np.concatenate([first, 0.0 * second if first.any() else second])
    return np.full(kernel.n_dims, float(isinstance(kernel, ConstantKernel)))


def warn_repeated(where: str, start: Likelihood, fitted: Likelihood, weights: Any) -> None:
    """Warn of noise that vanished because rows count as several with the same y."""
    noise = np.array([entry.size for entry in fitted.entries()], dtype=float)
    if weights is None or np.max(weights) <= 1.0 or not fitted.noise or not noise.any():
        return
    if ((start.theta - fitted.theta) @ noise) / noise.sum() > _VANISHED:
        warnings.warn(
            f"{where}: almost no noise is left, since a sample_weight above 1 says that several rows have the same y. "
            "If weights are precisions, divide them by their mean, or give alpha= the noise variances.",
            UserWarning,
            stacklevel=4,
        )


def warn_unrelated(where: str, kernel: Any, X: np.ndarray, given: bool = True) -> None:
    """Warn of a length scale far below every distance: the kernel matrix is diagonal, and rows are unrelated.

    ``given``: whether the kernel is the user's.
    """
    others = X[(X[0] != X).any(axis=1)][:_SEEN]
    if others.shape[0]:
        for one in kernels_of(kernel):
            apart = np.sqrt(diagonal(one, X[:1]) * diagonal(one, others))
            if np.any(np.abs(evaluate(one, X[:1], others)[0]) >= _UNRELATED * apart):
                return
    if given:
        advice = "Where rows are far apart or columns of different units, scale X (StandardScaler), or leave "
        advice += "kernel=None, which starts from its distances."
    else:
        advice = "The evidence found nothing in y that rows near to each other share: check X, or give a kernel."
    distinct = np.unique(X[:: max(1, X.shape[0] // _SEEN)], axis=0)
    if distinct.shape[0] < 2:
        return

    def largest(one: Any) -> float:
        K = evaluate(one, distinct)
        own = np.sqrt(np.diagonal(K))
        related = np.abs(K) / np.maximum(np.outer(own, own), np.finfo(float).tiny)
        np.fill_diagonal(related, 0.0)
        return float(related.max())

    if max(largest(one) for one in kernels_of(kernel)) < _UNRELATED:
        warnings.warn(
            f"{where}: under {kernel} no row is related to any other (correlations below "
            f"{_UNRELATED:g}), so that predictions elsewhere are the prior's. {advice}",
            UserWarning,
            stacklevel=callers_line(),
        )
