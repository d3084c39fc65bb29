"""The posterior of a fitted model, averaged over theta if it is integrated out, and its tables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..checks import callers_line
from ..files import stated
from ..hyperparameters.base import Learned
from ..hyperparameters.integration import Integrated, integrate
from ..hyperparameters.mode import Mode
from ..marginals import Answers
from . import tables
from .accuracy import in_words
from .base import DIRECT, Engine
from .capabilities import check
from .fixed import reported
from .remarks import Remark
from .stated_priors import prior_table

if TYPE_CHECKING:
    import pandas as pd

    from ..corrections.collapsed import Collapsed
    from ..corrections.corrected import Corrected
    from ..corrections.importance import ImportanceSample
    from ..corrections.interpolated import Interpolated
    from ..proofs import Proof
    from .model import Model

    Corrections = Corrected | Collapsed | Interpolated | ImportanceSample

# Parameters of the likelihood that are averaged over where theta is not integrated out, by their number:
_GRID = 2  # up to this many on a grid, which follows heavy tails
_COMPOSITE = 5  # up to this many on a central composite design, more on a star
_MOST_OWN = 12  # up to this many are averaged over, more are held at their mode
_TOL = 1e-6  # relative gap of each of these fits
_CORRECTED = 2000  # rows up to which the evidence of a likelihood that is not log-concave is corrected at every point


class FitTables:
    """Base class of ``FittedModel``: the posterior of a fitted model and its tables.

    ``tables.py``, ``predictions.py``, ``remarks.py`` and the engines use this class. ``at_theta`` marks a fit as one of
    the ``components`` over which another fit averages. If there are ``parts``, then theta, solution and likelihood are
    those of the main part.
    """

    def __init__(
        self,
        model: Model,
        found: Learned,
        integrated: Integrated | None = None,
        answers: Corrections | None = None,
        *,
        at_theta: bool = False,
        engine: Engine = DIRECT,
        parts: Mapping[str, Any] | None = None,
        why: str = "",
    ) -> None:
        self.why = why  # the reason for which the fit is no more accurate
        self.model, self.found, self.at_theta, self.engine = model, found, at_theta, engine
        self.solution, self.theta = found.solution, found.theta
        self.integrated, self.answers, self.parts = integrated, answers, dict(parts or {})
        self.elbo, self.gap, self.converged = self.solution.elbo, self.solution.gap, found.converged
        if integrated is not None:
            self.gap, self.converged = integrated.gap, integrated.converged
            self.log_evidence = integrated.log_evidence
            self.log_evidence_error = integrated.log_evidence_error
        if self.parts:
            fits = self.parts.values()
            self.elbo, self.gap = sum(fit.elbo for fit in fits), sum(fit.gap for fit in fits)
            self.converged = all(fit.converged for fit in fits)
        self.likelihood, self.shift = reported(self)

    def __getattr__(self, name: str) -> Any:
        """A part by its name: ``fit.count``, ``fit.zero``."""
        parts = self.__dict__.get("parts", {})
        if name in parts:
            return parts[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def limits(self) -> list[str]:
        """The columns of the table of capabilities that list what this fit lacks."""
        return [name for name in (self.engine.name, self.model.reduction.name) if name]

    # -- the posterior -----------------------------------------------------------------------------
    @property
    def n_averaged(self) -> int:
        """Number of the likelihood's parameters that are averaged over although theta is not integrated out."""
        likelihood, n = self.found.likelihood, self.theta.size
        held = self.at_theta or not (self.engine.averages_own and likelihood.moves_eta)
        if self.integrated is not None or held:
            return 0
        free = sum(i not in self.found.at_bounds for i in range(n - likelihood.theta.size, n))
        return free if free <= _MOST_OWN else 0

    @cached_property
    def mixture(self) -> Integrated | None:
        """The posterior over theta behind tables and predictions; None: they are at the learned theta."""
        free, likelihood = self.n_averaged, self.found.likelihood
        if not free:
            return self.integrated
        first = self.theta.size - likelihood.theta.size
        target, loose = self.model.target, not likelihood.objective.log_concave
        corrected = self.answers is not None or (loose and self.model.n_rows[1] <= _CORRECTED)
        return integrate(
            target.likelihood,
            self.model.sum.family(),
            target.y,
            weights=target.weights,
            mode=self.found,
            method="grid" if free <= _GRID else "ccd" if free <= _COMPOSITE else "star",
            evidence="corrected" if corrected else "elbo",
            hold=range(first),
            tol=_TOL,
        )

    @cached_property
    def components(self) -> list[Self]:
        """The fits at each theta of ``mixture``; without one a list of this fit."""
        mixture = self.mixture
        if mixture is None:
            return [self]
        out = []
        for theta, solution, part in zip(mixture.thetas, mixture.solutions, mixture.answers, strict=True):
            found = replace(self.found, theta=theta, solution=solution, likelihood=solution.likelihood)
            answers: Any = None if part is solution.posterior else part
            out.append(type(self)(self.model, found, answers=answers, at_theta=True, engine=self.engine))
        return out

    @property
    def posterior(self) -> Answers:
        """The posterior behind tables and predictions: a mixture over theta, a corrected one, or the Gaussian."""
        if self.mixture is not None:
            return self.mixture
        return self.solution.posterior if self.answers is None else self.answers

    @cached_property
    def proofs(self) -> dict[str, Proof]:
        """The proofs of the evidence that have been computed, by their effort."""
        return {}

    @property
    def evidence_estimate(self) -> float:
        """Corrected estimate of log p(y), with hyperparameters integrated out if they are; NaN for a Gaussian fit."""
        if self.parts:
            return sum(part.evidence_estimate for part in self.parts.values())
        if self.integrated is not None:
            return float(self.integrated.log_evidence)
        return np.nan if self.answers is None else float(self.answers.log_evidence)

    @property
    def approximation_loss(self) -> float:
        """Upper bound, in nats, on the elbo lost by terms with inducing points; 0 without such terms.

        It is infinite for a family without a dual, where no bound is known.
        """
        fits = self.parts.values() if self.parts else [self]
        return float(sum(cost.bound for fit in fits for _, cost in fit.approximations))

    @property
    def approximations(self) -> list[tuple[Any, Any]]:
        """The approximate terms, each with the bound on its loss at the learned hyperparameters."""
        pairs = self.model.sum.thetas(self.theta)
        return [(term, term.cost_at(part, self.solution)) for term, part in pairs if term.approximates]

    @cached_property
    def accuracy(self) -> str:
        """The kind of results in words: integrated over the hyperparameters, corrected, or Gaussian at the mode."""
        return in_words(self)

    @cached_property
    def remarks(self) -> list[Remark]:
        """Sentences on the data of each term, and on results that the prior decides rather than the data."""
        if self.parts:
            return [Remark(f"{name}: {r}", r.name, r.severity) for name, p in self.parts.items() for r in p.remarks]
        return self.engine.remarks(self)

    @stated()
    def corrected(self) -> Self:
        """The same fit with corrected marginals: coefficients, effects and predictions by ``Solution.corrected``.

        Intervals are then skewed as the posterior is, which matters with few labels or small counts. Hyperparameters
        and the certificate do not change; joint draws are those of the Gaussian, transformed to the corrected
        marginals. An integrated fit is returned as it is, since it is corrected at every theta if that is possible.
        """
        check(self, "corrected")
        if self.parts:
            parts = {name: part.corrected() for name, part in self.parts.items()}
            return type(self)(self.model, self.found, parts=parts)
        if self.answers is not None:
            return self
        if self.integrated is not None:
            if self.integrated.evidence != "corrected":
                warnings.warn(f"corrected: Gaussian given theta: {self.integrated.status}.", stacklevel=callers_line())
            return self
        answers = self.solution.corrected()
        if not answers.marginals_trusted:
            warnings.warn(f"corrected: {answers.status}.", UserWarning, stacklevel=callers_line())
        return type(self)(self.model, self.found, answers=answers, at_theta=self.at_theta, engine=self.engine)

    # -- tables ------------------------------------------------------------------------------------
    @property
    def coefficients(self) -> pd.DataFrame:
        """Table of the intercept (at 0 of every column) and the coefficients (per unit): mean, sd, 95 % interval.

        For "multinomial" it has those of each class against the reference, for a hurdle those of each part.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.1, 2.9, 5.1, 6.9]})
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.coefficients["mean"].round(1).to_dict()
        {'Intercept': 1.1, 'x': 2.0}
        >>> fit.covariance.shape, fit.cov_params().equals(fit.covariance)
        ((2, 2), True)
        >>> fit.hyperparameters.index.tolist()
        [('noise', 'sd')]
        >>> fit.priors.loc["noise", "prior"].tolist(), fit.model.priors.equals(fit.priors)
        (['log sd ~ N(0.4388, 3^2)'], True)
        """
        return tables.over_parts(self, tables.coefficients)

    @property
    def covariance(self) -> pd.DataFrame:
        """Posterior covariance matrix of the coefficients."""
        check(self, "covariance")
        return tables.covariance(self)

    @property
    def effects(self) -> Mapping[Any, pd.DataFrame]:
        """The effects of special terms: ``effects["(1|g)"]`` or ``effects["g"]`` is a frame with one row per level.

        With the iterative engine ``sd_error`` is the standard error of the sd.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"g": list("aabbcc"), "y": [1.0, 1.2, 2.0, 2.2, 3.0, 3.2]})
        >>> effects = fenchel.fit("y ~ (1|g)", data, "gaussian", accuracy="fast").effects["g"]
        >>> effects["mean"].abs().round(1).to_dict()
        {'a': 1.0, 'b': 0.0, 'c': 1.0}
        """
        return tables.Effects(self)

    @cached_property
    def theta_mode(self) -> Mode:
        """The curvature of the evidence at its mode, and the hyperparameters that are at a bound."""
        return tables.theta_mode(self)

    @property
    def theta_covariance(self) -> np.ndarray:
        """Covariance matrix of theta from the curvature of the evidence; 0 for an entry that ended at a bound."""
        return self.engine.theta_covariance(self)

    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Table of the hyperparameters: standard deviations, correlations, shares and parameters of the likelihood.

        Columns are the value and its 95 % interval. For an integrated fit ``value`` is the mode of the density of
        ``theta``, and posterior mean, sd and median are added. With the iterative engine ``error`` is the Monte Carlo
        standard error of the value. Cutpoints are those at 0 of every column; their intervals include the uncertainty
        of the coefficients.
        """
        if self.parts:
            return tables.over_parts(self, lambda part: part.hyperparameters)
        if self.integrated is None:
            return self.engine.hyperparameters(self)
        return tables.integrated_hyperparameters(self, self.integrated)

    @property
    def priors(self) -> pd.DataFrame:
        """Table of all priors of the model, in words."""
        return tables.over_parts(self, lambda part: prior_table(part.model))

    def summary(self) -> str:
        """A text summary: the certificate, the model, its rows, and the tables of estimates."""
        from .summaries import summary

        return summary(self)

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        word += f", {self.accuracy.partition(':')[0]}"
        formulas = [part.model.formula for part in self.parts.values()] or [self.model.formula]
        text = ", ".join(map(repr, formulas))
        return f"FittedModel({text}, {word}, elbo={self.elbo:.4f}, gap={self.gap:.1e})"
