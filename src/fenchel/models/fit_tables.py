"""The posterior of a fitted model, over theta where that is averaged over, and its tables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

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

_GRID = 2  # of the likelihood's own parameters that are averaged over on a lattice, which follows tails
_COMPOSITE = 5  # the most on a composite design; more are on a star
_MOST_OWN = 12  # the most that are averaged over; more are held at their mode
_TOL = 1e-6  # relative gap of a fit that is one of many
_CORRECTED = 2000  # rows: up to so many, a bound that is loose in eta (of extra zeros) is corrected at every point


class FitTables:
    """The posterior of a fitted model and its tables: the base of ``FittedModel``, which adds predictions and pictures.

    ``tables.py``, ``predictions.py``, ``remarks.py`` and the engines are written for this class. ``at_theta`` marks one
    of the ``components``, the fits at one theta each over which another fit averages. Of a fit with ``parts`` theta,
    solution and likelihood are those of the main part.
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
        self.why = why  # the answers are no more accurate
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
        """Where the table of capabilities lists what this fit does not answer."""
        return [name for name in (self.engine.name, self.model.reduction.name) if name]

    # -- the posterior -----------------------------------------------------------------------------
    @property
    def n_averaged(self) -> int:
        """How many of the likelihood's own parameters are averaged over, where theta is not integrated out."""
        likelihood, n = self.found.likelihood, self.theta.size
        held = self.at_theta or not (self.engine.averages_own and likelihood.moves_eta)
        if self.integrated is not None or held:
            return 0
        free = sum(i not in self.found.at_bounds for i in range(n - likelihood.theta.size, n))
        return free if free <= _MOST_OWN else 0

    @cached_property
    def mixture(self) -> Integrated | None:
        """The posterior over theta that tables and predictions are of; None: they are at the learned one."""
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
        """The model as fitted at each theta of ``mixture``; the fit itself where there is none."""
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
        """What tables and predictions are of: a mixture over theta, what ``corrected`` gave, or the Gaussian."""
        if self.mixture is not None:
            return self.mixture
        return self.solution.posterior if self.answers is None else self.answers

    @cached_property
    def proofs(self) -> dict[str, Proof]:
        """Proofs of the evidence that were made, by their effort."""
        return {}

    @property
    def evidence_estimate(self) -> float:
        """log p(y) beyond the elbo, at the hyperparameters or, of an integrated fit, over them; NaN of a plain fit."""
        if self.parts:
            return sum(part.evidence_estimate for part in self.parts.values())
        if self.integrated is not None:
            return float(self.integrated.log_evidence)
        return np.nan if self.answers is None else float(self.answers.log_evidence)

    @property
    def approximation_loss(self) -> float:
        """Nats of elbo that terms seen through inducing points cost at most; 0 without such terms.

        Infinite where nothing bounds it: for a family without a dual.
        """
        fits = self.parts.values() if self.parts else [self]
        return float(sum(cost.bound for fit in fits for _, cost in fit.approximations))

    @property
    def approximations(self) -> list[tuple[Any, Any]]:
        """The terms that approximate, and what is known of what they cost at the learned hyperparameters."""
        pairs = self.model.sum.thetas(self.theta)
        return [(term, term.cost_at(part, self.solution)) for term, part in pairs if term.approximates]

    @cached_property
    def accuracy(self) -> str:
        """Which answers these are: integrated over the hyperparameters, corrected, or Gaussian at the mode."""
        return in_words(self)

    @cached_property
    def remarks(self) -> list[Remark]:
        """Of the data of each term, and of what the prior decides and the data do not, a sentence each."""
        if self.parts:
            return [Remark(f"{name}: {r}", r.name, r.severity) for name, p in self.parts.items() for r in p.remarks]
        return self.engine.remarks(self)

    @stated()
    def corrected(self) -> Self:
        """The same fit beyond the Gaussian: coefficients, effects and predictions by ``Solution.corrected``.

        Intervals are then skewed where the posterior is, which shows with few labels or small counts. Hyperparameters
        and the certificate stay; joint draws are the Gaussian's, each unknown moved to its corrected marginal.
        An integrated fit is itself: every theta has its marginals beyond the Gaussian, or says why not.
        """
        check(self, "corrected")
        if self.parts:
            parts = {name: part.corrected() for name, part in self.parts.items()}
            return type(self)(self.model, self.found, parts=parts)
        if self.answers is not None:
            return self
        if self.integrated is not None:
            if self.integrated.evidence != "corrected":
                warnings.warn(f"corrected: Gaussian given theta: {self.integrated.status}.", stacklevel=2)
            return self
        answers = self.solution.corrected()
        if not answers.marginals_trusted:
            warnings.warn(f"corrected: {answers.status}.", UserWarning, stacklevel=2)
        return type(self)(self.model, self.found, answers=answers, at_theta=self.at_theta, engine=self.engine)

    # -- tables ------------------------------------------------------------------------------------
    @property
    def coefficients(self) -> pd.DataFrame:
        """The intercept (where every column is 0) and the coefficients (per unit): mean, sd, 95 % interval.

        Of labels of several kinds those of each class against the reference, of a hurdle those of each part.

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
        """The posterior covariance of the coefficients."""
        check(self, "covariance")
        return tables.covariance(self)

    @property
    def effects(self) -> Mapping[Any, pd.DataFrame]:
        """Each special term as a frame, one row a level: by its text, ``"(1|g)"``, or by its column, ``"g"``.

        Of an iterative engine ``sd_error`` is what probes leave unknown of the sd.

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
        """The evidence about its mode: its curvature, and which hyperparameters are at a bound."""
        return tables.theta_mode(self)

    @property
    def theta_covariance(self) -> np.ndarray:
        """Of theta, by the curvature of the evidence; 0 for an entry that ended at a bound."""
        return self.engine.theta_covariance(self)

    @cached_property
    def hyperparameters(self) -> pd.DataFrame:
        """Standard deviations, correlations, shares and the likelihood's parameters: value and 95 % interval.

        Cutpoints are those where every column is 0, and their intervals include how well the coefficients are known.
        Of an integrated fit ``value`` is where the density that was integrated is largest, on the scale of ``theta``,
        beside the posterior mean, sd and median. Of an iterative engine ``error`` is the standard error that probes
        have brought into the value.
        """
        if self.parts:
            return tables.over_parts(self, lambda part: part.hyperparameters)
        if self.integrated is None:
            return self.engine.hyperparameters(self)
        return tables.integrated_hyperparameters(self, self.integrated)

    @property
    def priors(self) -> pd.DataFrame:
        """Every prior of the model, in words."""
        return tables.over_parts(self, lambda part: prior_table(part.model))

    def summary(self) -> str:
        """A page for a reader: the certificate first, then the model, its rows and what it found."""
        from .summaries import summary

        return summary(self)

    def __repr__(self) -> str:
        word = "converged" if self.converged else "NOT CONVERGED"
        word += f", {self.accuracy.partition(':')[0]}"
        formulas = [part.model.formula for part in self.parts.values()] or [self.model.formula]
        text = ", ".join(map(repr, formulas))
        return f"FittedModel({text}, {word}, elbo={self.elbo:.4f}, gap={self.gap:.1e})"
