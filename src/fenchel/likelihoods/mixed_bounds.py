"""Bounds of rows with different likelihoods: every part's bound is evaluated on all rows, and each row selects its own.

Parts with fewer potentials or predictors than the largest are padded with zeros: tau = alpha = lam = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..linalg.arrays import Array, namespace
from .bounds import Bound, ConvexBound, DirectBound, Domain, Loss, Site
from .outcomes import Rows

if TYPE_CHECKING:
    from .base import Likelihood

_UNCOUPLED = 1e200  # slack of a row whose potentials share no normalisation: diag - spread spread'/slack = diag


class MixedBound(Bound):
    """What both kinds of bounds share."""

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__(likelihood)
        self.parts = [part.objective for part in self.likelihood.parts]
        self.layout = max((part.layout for part in self.parts), key=len)
        self.conjugate = all(part.conjugate for part in self.parts)
        self.coupled = any(part.coupled for part in self.parts)
        self.needs_independent_predictors = any(part.needs_independent_predictors for part in self.parts)

    @property
    def log_concave(self) -> bool:
        return all(part.log_concave for part in self.parts)

    def _ask(self, rows: Rows, question: Callable[..., Any]) -> dict[int, Any]:
        """The answer of every part's bound, given its rows and its numbers of potentials and predictors."""
        return self.likelihood._ask(
            rows, lambda part, r: question(part.objective, r, len(part.objective.layout), part.n_predictors)
        )

    def _pick(self, rows: Rows, width: int, answers: Mapping[int, Array]) -> Array:
        return self.likelihood._choose_rows(rows, width, answers)

    def _select(self, rows: Rows, width: int, question: Callable[..., Array]) -> Array:
        return self._pick(rows, width, self._ask(rows, question))

    def loss(self, h: Array, rho: Array, rows: Rows) -> Loss:
        answers = self._ask(rows, lambda part, r, P, C: part.loss(h, rho, r))
        loss: Loss = self.likelihood._losses(rows, answers)
        return loss

    def is_flat(self, rows: Rows) -> Array:
        xp, one = namespace(rows["which"]), 1.0 + 0.0 * rows["which"]
        flat = self._select(rows, 0, lambda part, r, P, C: xp.where(part.is_flat(r), one, 0.0))
        return flat > 0.5


class MixedLoss(MixedBound, DirectBound):
    """At least one part has no dual."""


class MixedSite(MixedBound, ConvexBound):
    """Every part has a dual."""

    curved = True  # a part may be

    def signs(self, rows: Rows) -> Array:
        return self._select(rows, len(self.layout), lambda part, r, P, C: part.signs(r))

    def site(self, s: Array, rows: Rows) -> Site:
        P, C = len(self.layout), self.likelihood.n_predictors
        sites = self._ask(rows, lambda part, r, P, C: part.site(s[:, :P], r))
        widths = {"tau": P, "alpha": C, "lam": C, "lam_slope": P, "lam_curvature": P, "k": 0, "spread": P}
        values = {
            name: self._pick(rows, width, {i: site[k] for i, site in sites.items()})
            for k, (name, width) in enumerate(widths.items())
        }
        slacks = {i: site.slack for i, site in sites.items()}
        if all(slack is None for slack in slacks.values()):
            return Site(**values)
        apart = _UNCOUPLED + 0.0 * values["k"]
        slack = self._pick(rows, 0, {i: apart if slack is None else slack for i, slack in slacks.items()})
        return Site(**values, slack=slack)

    def coordinate(self, tau: Array, rows: Rows) -> Array:
        return self._select(rows, len(self.layout), lambda part, r, P, C: part.coordinate(tau[:, :P], r))

    def divergence(self, s_hat: Array, s: Array, rows: Rows) -> Array:
        return self._select(rows, 0, lambda part, r, P, C: part.divergence(s_hat[:, :P], s[:, :P], r))

    def gap(self, s: Array, h: Array, rho: Array, rows: Rows) -> Array:
        return self._select(rows, 0, lambda part, r, P, C: part.gap(s[:, :P], h[:, :C], rho[:, :C], r))

    def maximiser(self, h: Array, rho: Array, s: Array, rows: Rows) -> Array:
        return self._select(
            rows, len(self.layout), lambda part, r, P, C: part.maximiser(h[:, :C], rho[:, :C], s[:, :P], r)
        )

    def start(self, rows: Rows, shrink: float) -> Array:
        return self._select(rows, len(self.layout), lambda part, r, P, C: part.start(r, shrink))

    def _numbers(self, rows: Rows, value: Callable[[ConvexBound, Rows], float]) -> Array:
        """One number of each part's potentials (N, P)."""
        xp, one, P = namespace(rows["which"]), 1.0 + 0.0 * rows["which"], len(self.layout)
        return self._select(rows, P, lambda part, r, *_: xp.stack([value(part, r) * one] * P, axis=1))

    def reach(self, rows: Rows) -> Array:
        return self._numbers(rows, lambda part, r: part.reach(r))

    def domain_of(self, rows: Rows) -> Domain:
        return Domain(
            lower=self._numbers(rows, lambda part, r: part.domain.lower),
            upper=self._numbers(rows, lambda part, r: part.domain.upper),
            total=self._numbers(rows, lambda part, r: part.domain.total)[:, 0],
        )
