"""Rows with different likelihoods, such as counts, labels and real numbers, under one prior.

    f_n = f of parts[which_n]

Every part is evaluated on all rows, and each row selects its part. Rows of other parts hold a copy of one of the part's
own rows. So no array is split, and arrays may be those of any library. Parts with fewer potentials or predictors than
the largest are padded with zeros: tau = alpha = lam = 0. Each part keeps its own bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ..checks import first_value, numeric, problem
from ..linalg.arrays import Array, ArrayLike, Seed, asarray, namespace, to_numpy
from .base import Likelihood, Rows, column
from .bounds import Bound, Bounds, Loss, combined
from .mixed_bounds import MixedLoss, MixedSite
from .parameters import Density, ThetaEntry


class Mixed(Likelihood):
    """A likelihood for rows of several kinds: each row has one of several likelihoods.

    Parameters
    ----------
    parts : sequence of Likelihood
        The likelihoods. Arrays of a part (exposure, trials) have one entry for each of *its* rows.
    which : array of int (N,)
        Index of the part of each row.

    Examples
    --------
    >>> from fenchel.likelihoods import BernoulliLogit, Mixed, Poisson
    >>> Mixed([Poisson(), BernoulliLogit("tilted")], which=[0, 0, 1]).prepare([3, 0, 1])["weight"]
    array([1., 1., 1.])
    """

    bound = "none"
    bounds: ClassVar[Bounds] = {"none": MixedSite}

    def __init__(self, parts: Sequence[Likelihood], which: Any) -> None:
        self.parts = tuple(parts)
        if not self.parts:
            raise problem("Mixed", "parts is empty", "at least one likelihood")
        which = numeric("Mixed", "which", which)
        bad = ~np.isin(which, np.arange(len(self.parts)))
        if which.ndim != 1 or bad.any():
            got = f"which has shape {which.shape}" if which.ndim != 1 else f"which{first_value(bad, which)}"
            raise problem(
                "Mixed", f"{got} is not the number of a part", f"integers 0, ..., {len(self.parts) - 1}, shape (N,)"
            )
        self.which = which
        widest = max(self.parts, key=lambda part: len(part.objective.layout))
        layout = widest.objective.layout
        for part in self.parts:
            own = part.objective
            if own.layout != layout[: len(own.layout)] or (own.convex and own.dual.domain.exactly):
                raise problem(
                    "Mixed",
                    f"{part!r} cannot be mixed with {widest!r}",
                    "likelihoods of one predictor a row, or softmaxes with reference='last'",
                    "Ordinal and MultinomialLogit cannot share rows of one prior.",
                )
        self.n_predictors = max(part.n_predictors for part in self.parts)
        self.log_concave = all(part.log_concave for part in self.parts)
        self.smooth = all(part.smooth for part in self.parts)
        self.moves_eta = any(part.moves_eta for part in self.parts)
        lone = next((part for part in self.parts if not part.objective.convex), None)
        if lone is not None and self.n_predictors > 1:
            raise problem(
                "Mixed",
                f"{lone!r} has no convex dual and cannot be mixed with {widest!r}",
                "bounds with a dual wherever a part has several predictors",
                "Use the tilted bound for that part.",
            )

    @cached_property
    def objective(self) -> Bound:
        return MixedSite(self) if all(part.objective.convex for part in self.parts) else MixedLoss(self)

    def neighbour(self) -> Mixed | None:
        parts = [part.objective.relaxed() for part in self.parts]
        return None if any(part is None for part in parts) else Mixed([p for p in parts if p is not None], self.which)

    def check(self, y: np.ndarray) -> dict[str, np.ndarray]:
        if self.which.shape != y.shape:
            raise problem(self.name, f"which has {self.which.size} rows and y has {y.size}", "one part number a target")
        rows = {"which": self.which, "weight": np.zeros(y.shape)}
        for i, part in enumerate(self.parts):
            mine = np.flatnonzero(self.which == i)
            if mine.size == 0:
                continue
            own = part.prepare(y[mine])
            rows["weight"][mine] = own.pop("weight")
            for key, value in own.items():
                full = np.repeat(value[:1], y.shape[0], axis=0)
                full[mine] = value
                rows[f"{i}:{key}"] = full
        return rows

    def _rows_of(self, i: int, rows: Rows) -> dict[str, Array]:
        prefix = f"{i}:"
        own = {key[len(prefix) :]: value for key, value in rows.items() if key.startswith(prefix)}
        return {**own, "weight": rows["weight"]}

    def _present(self, rows: Rows) -> list[tuple[int, Likelihood]]:
        return [(i, p) for i, p in enumerate(self.parts) if any(key.startswith(f"{i}:") for key in rows)]

    def _choose_rows(self, rows: Rows, width: int, answers: Mapping[int, Array]) -> Array:
        """Rowwise choice among the parts' answers, each padded with zeros to ``width`` columns (0: a vector)."""
        xp, which = namespace(rows["which"]), rows["which"]
        out: Array = xp.zeros_like(next(iter(answers.values())))
        out = pad(out, width) if width else out
        for i, answer in answers.items():
            mine = which == i
            if width:
                answer, mine = pad(answer, width), mine[:, None]
            out = xp.where(mine, answer, out)
        return out

    def _ask(self, rows: Rows, question: Callable[..., Any]) -> dict[int, Any]:
        """Every part's answer; a part may overflow on rows that are not its own."""
        with np.errstate(all="ignore"):
            return {i: question(part, self._rows_of(i, rows)) for i, part in self._present(rows)}

    def _select(self, rows: Rows, width: int, question: Callable[..., Array]) -> Array:
        return self._choose_rows(rows, width, self._ask(rows, question))

    def constant(self, rows: Rows) -> Array:
        return self._select(rows, 0, lambda part, r: part.constant(r))

    def log_density(self, eta: Array, rows: Rows) -> Array:
        if self.n_predictors > 1:
            raise NotImplementedError("Mixed.log_density covers parts with one predictor.")
        return self._select(rows, eta.shape[1], lambda part, r: part.log_density(eta, r))

    def landmarks(self, rows: Rows) -> list[Array]:
        every = {i: part.landmarks(self._rows_of(i, rows)) for i, part in self._present(rows)}
        xp, which, out = namespace(rows["which"]), rows["which"], []
        for j in range(max((len(marks) for marks in every.values()), default=0)):
            mark = xp.zeros_like(which)
            for i, marks in every.items():
                if marks:
                    mark = xp.where(which == i, marks[min(j, len(marks) - 1)], mark)
            out.append(mark)
        return out

    def derivatives(self, eta: Array, rows: Rows) -> tuple[Array, Array, Array]:
        answers = self._ask(rows, lambda part, r: part.derivatives(eta, r))
        width = eta.shape[1]
        one, two, three = (self._choose_rows(rows, width, {i: a[j] for i, a in answers.items()}) for j in range(3))
        return one, two, three

    def exact_loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        return self._losses(rows, self._ask(rows, lambda part, r: part.exact_loss(h, rho, r)))

    def _losses(self, rows: Rows, answers: Mapping[int, Loss]) -> Loss:
        def chosen(*values: Array) -> Array:
            return self._choose_rows(rows, 0, dict(zip(answers, values, strict=True)))

        return combined(chosen, *answers.values())

    def take(self, index: Any) -> Mixed:
        some = np.arange(self.which.size)[index]
        place = np.zeros(self.which.size, dtype=int)
        for i in range(len(self.parts)):
            place[self.which == i] = np.arange(int((self.which == i).sum()))
        parts = [part.take(place[some[self.which[some] == i]]) for i, part in enumerate(self.parts)]
        return Mixed(parts, self.which[some])

    # -- the parts' own parameters, one after the other ----------------------------------------------
    def _pieces(self, values: Any) -> list[tuple[Likelihood, Any]]:
        """Each part with its own of as many values as theta has entries."""
        sizes = [part.theta.size for part in self.parts]
        stops = np.cumsum(sizes)
        return [(p, values[stop - n : stop]) for p, n, stop in zip(self.parts, sizes, stops, strict=True)]

    @property
    def theta_names(self) -> list[str]:
        return [name for part in self.parts for name in part.theta_names]

    def readable(self) -> list[tuple[str, str, float]]:
        return [row for part in self.parts for row in part.readable()]

    @property
    def theta(self) -> np.ndarray:
        return np.concatenate([part.theta for part in self.parts])

    def with_theta(self, theta: np.ndarray) -> Mixed:
        return Mixed([part.with_theta(own) for part, own in self._pieces(theta)], self.which)

    def with_priors(self, priors: Sequence[Density | None]) -> Mixed:
        return Mixed([part.with_priors(own) for part, own in self._pieces(list(priors))], self.which)

    def log_prior(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        each = [part.log_prior(own) for part, own in self._pieces(theta)]
        return sum(value for value, _ in each), np.concatenate([slope for _, slope in each])

    def theta_bounds(self, y: np.ndarray, weights: Any = None) -> np.ndarray:
        own = [part.theta_bounds(np.where(self.which == i, y, np.nan), weights) for i, part in enumerate(self.parts)]
        return np.concatenate([bounds.reshape(-1, 2) for bounds in own])

    def entries(self) -> list[ThetaEntry]:
        words = [word for part in self.parts for word in {entry.word for entry in part.entries()}]
        return [
            replace(entry, word=f"{entry.word} of part {i}") if words.count(entry.word) > 1 else entry
            for i, part in enumerate(self.parts)
            for entry in part.entries()
        ]

    def theta_gradient(self, h: Array, rho: Array, rows: Rows) -> np.ndarray:
        out = [np.zeros(0)]
        for i, part in enumerate(self.parts):
            if part.theta.size == 0:
                continue
            own = self._rows_of(i, rows)
            own["weight"] = own["weight"] * asarray(to_numpy(rows["which"]) == i, h)
            C = part.n_predictors
            out.append(part.theta_gradient(h[:, :C], rho[:, :C], own))
        return np.concatenate(out)

    # -- prediction: each part sees its own rows only, so that exposures line up -----------------------
    def _by_part(self, shape: tuple[int, ...], ask: Callable[[Any, np.ndarray], Array]) -> np.ndarray:
        """What each part answers for its rows, together."""
        out = np.full(shape, np.nan)
        for i, part in enumerate(self.parts):
            rows = np.flatnonzero(self.which == i)
            if rows.size:
                out[rows] = to_numpy(ask(part, rows))
        return out

    def _predicted(self, h: Array, rho: Array, ask: Callable[..., Array], width: int = 0, scalar: bool = True) -> Array:
        """A predictive summary (N,), or (N, width): ``ask(part, rows, h, rho)`` of each part."""
        h, rho = to_numpy(column(h)), to_numpy(column(rho))
        if h.shape[0] != self.which.size:
            raise problem(
                self.name,
                f"h has {h.shape[0]} rows and which has {self.which.size}",
                "the rows of the fit",
                "Make a Mixed with the new rows' parts and exposures to predict elsewhere.",
            )
        several = next((part for part in self.parts if scalar and part.n_predictors > 1), None)
        if several is not None:
            raise problem(
                self.name,
                f"the mean of {several!r} is a vector of probabilities",
                "parts with one predictor",
                "Ask that part itself for its rows.",
            )

        def one(part: Likelihood, rows: np.ndarray) -> Array:
            C = part.n_predictors
            return ask(part, rows, h[rows, :C], rho[rows, :C])

        return self._by_part((self.which.size, width) if width else self.which.shape, one)

    def predictive_mean(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self._predicted(h, rho, lambda part, rows, h, rho: part.predictive_mean(h, rho, rng))

    def predictive_variance(self, h: Array, rho: Array, rng: Seed = None) -> Array:
        return self._predicted(h, rho, lambda part, rows, h, rho: part.predictive_variance(h, rho, rng))

    def predictive_log_density(self, y: ArrayLike, h: Array, rho: Array, rng: Seed = None) -> Array:
        y = numeric(self.name, "y", y, missing=True)
        return self._predicted(
            h, rho, lambda part, rows, h, rho: part.predictive_log_density(y[rows], h, rho, rng), scalar=False
        )

    def predictive_quantile(self, q: ArrayLike, h: Array, rho: Array) -> Array:
        levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
        return self._predicted(
            h, rho, lambda part, rows, h, rho: part.predictive_quantile(levels, h, rho), width=levels.size
        )

    def cdf(self, x: ArrayLike, eta: np.ndarray) -> np.ndarray:
        x = np.broadcast_to(x, eta.shape)
        return self._by_part(eta.shape, lambda part, rows: part.cdf(x[rows], eta[rows]))

    def draw(self, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self._by_part(eta.shape, lambda part, rows: part.draw(eta[rows], rng))

    @classmethod
    def example(cls, rng: np.random.Generator, n: int) -> tuple[Mixed, np.ndarray]:
        from .binomial import BernoulliLogit
        from .noise import Gaussian
        from .ordinal import Ordinal
        from .poisson import Poisson

        kinds: list[type[Likelihood]] = [Poisson, BernoulliLogit, Gaussian, Ordinal]
        which, y, parts = rng.integers(0, len(kinds), n), np.zeros(n), []
        for i, kind in enumerate(kinds):
            mine = np.flatnonzero(which == i)
            part, values = kind.example(rng, max(1, mine.size))
            y[mine] = values[: mine.size]
            parts.append(part)
        return cls(parts, which), y

    def __repr__(self) -> str:
        return f"Mixed([{', '.join(map(repr, self.parts))}], which=...)"


def pad(x: Array, width: int) -> Array:
    """(N, w) with zero columns appended up to ``width``."""
    xp = namespace(x)
    missing = width - x.shape[1]
    return x if missing <= 0 else xp.concat([x, *([xp.zeros_like(x[:, :1])] * missing)], axis=1)
