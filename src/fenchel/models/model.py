"""A model: a formula and a data frame, compiled into a likelihood and a sum of terms.

eta = intercept + X beta + sum of special terms + offset,    y ~ family(eta)
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Refusal, problem, scalar
from ..distributed import is_dask
from ..files import Stated, Statement, is_loading, stated
from ..inputs.frames import Dropped, Table, missing, read_frame, used
from ..inputs.observations import read_family
from ..likelihoods.base import Likelihood
from ..linalg.arrays import Seed
from ..tasks import Jobs
from ..terms import DataTable, SumOfTerms, Term
from .accuracy import Dial
from .base import ROW_NAMES, ModelSpec, Reduction, keep_arguments, model_statement
from .before_data import MakesData
from .compiler import Compiler, Scope
from .cox import Cox
from .fixed import FixedPart
from .formula_errors import unknown_option
from .grammar import parse, shown_in
from .hurdle import HurdleParts, names_for_priors
from .model_matrix import INTERCEPT
from .multinomial import Multinomial
from .remarks import of_data, warn
from .response import Response, SecondPredictor, Target, with_dual
from .stated_priors import FixedPriors, OwnPriors, effect_priors, prior_table, spelled_out

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel

REDUCTIONS: tuple[type[Reduction], ...] = (Cox, Multinomial, HurdleParts, Reduction)
_LOOSEST = 1e-3  # relative gap that a fit may ask for
Options = tuple[float, Mapping[str, Any], Sequence[str]]  # fixed_sd, priors, and names that another part has


class Model(MakesData, Stated):
    """A latent Gaussian model of a data frame, given by a formula.

    Parameters
    ----------
    formula : str
        Such as ``"y ~ x + z:w + C(f) + (1|group) + (x|group) + rw1(year) + bym2(district)"``. The fixed part is in the
        language of formulaic: interactions, ``C()``, ``poly``, ``bs``, ``scale``, ``np.log``, ``offset()``, ``-1``, and
        ``.`` for every other column. Special terms: ``(1|g)``, ``(x|g)``, ``(x||g)``, ``(1|a/b)``, ``(1|a:b)``,
        ``(1|gr(g, cov=A))``, ``rw1(t)``, ``rw2(t)``, ``ar1(t)``, ``seasonal(t, 12)``, ``icar(r)``, ``bym2(r)``,
        ``leroux(r)`` and others of ``models.grammar``. The left side: ``y``, ``np.log(y)``, ``y | trials(n)``,
        ``cbind(successes, failures)``, ``cens(time, event)``, ``interval(lower, upper)``.
    data : data frame of pandas, polars or another library that narwhals reads, or dict of columns
        Rows with a missing covariate are left out and counted; rows with a missing y are predicted.
    family : str or Likelihood, default "gaussian"
        "gaussian", "poisson", "bernoulli", "binomial", "negative-binomial", "gamma", "ordinal", "student-t", ...;
        "multinomial" for unordered labels, "cox" for durations. A warning says if y looks like labels or counts.
    weights, exposure, trials, event : name of a column, number or array, optional
        ``weights`` multiply the log-likelihood of each row: the number of times that it was seen (not a precision).
    terms : sequence of Term, optional
        Terms of ``fenchel.terms`` or your own, in addition to those of the formula.
    graphs : dict, optional
        Graphs by the column of regions, or by a name that the formula uses.
    env : dict, optional
        Variables of the formula; they take precedence over those of the caller.
    levels : dict of column or term to list, optional
        All levels in order, if the data do not have them all.
    priors : dict, optional
        {name: prior} or {name: {parameter: prior}}; ``model.priors`` lists the names and defaults. A coefficient:
        ``Normal(mean, sd)`` per unit of its column. A term: ``PC(sd=1, alpha=0.01)``. A parameter of the likelihood
        ("noise", "size", "shape", "cutpoints", "zero", ...): ``Normal`` of its log or logit. None is flat (for a
        coefficient, a hundred times as wide as the default). For a hurdle with ``zero=`` a name applies to every part
        that has it; {"zero": {name: prior}} or {"count": ...} to one.
    fixed_sd : float, default 10.0
        Prior sd of fixed effects per sd of their column, and of the intercept at the mean of the columns; for noise
        about eta in units of the sd of y.
    bound : str, default "best"
        "best", or the name of one of the likelihood's bounds.
    dispersion : str, optional
        Formula ``"~ x + f"`` of fixed effects for the log of each row's sd (Gaussian, Student-t), shape (gamma),
        precision (beta, beta-binomial) or size (negative binomial). Its coefficients are hyperparameters.
    zero : str, optional
        Formula ``"~ x"`` for the logit of the probability of a structural zero (zero-inflated families, fixed effects
        only) or of a zero (hurdle families, any terms; the model is then two fits, of zeros and of positive counts).
    baseline : {"rw1", "rw2", "free"}, default "rw1"
        For "cox": prior of the log hazard over time. "free" is the partial likelihood, for up to 500 event times.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import fenchel
    >>> rng = np.random.default_rng(0)
    >>> data = pd.DataFrame({"x": rng.normal(size=200), "g": rng.integers(0, 10, 200)})
    >>> data["y"] = rng.poisson(np.exp(1 + 0.5 * data.x + rng.normal(size=10)[data.g]))
    >>> fit = fenchel.Model("y ~ x + (1|g)", data, family="poisson").fit()
    >>> bool(abs(fit.coefficients.loc["x", "mean"] - 0.5) < 0.1)
    True
    """

    variables: dict[str, Any]  # the caller's variables that the formula uses; files store them
    expressions: list[Any]  # of the formula; files refuse user-defined functions in them

    def __new__(cls, formula: Any = None, data: Any = None, *args: Any, **options: Any) -> Model:
        """Return a ``PartitionedModel`` for a Dask dataframe."""
        if cls is Model and is_dask(data):
            from .partitioned import PartitionedModel

            return super().__new__(PartitionedModel, formula, data, *args, **options)
        return super().__new__(cls, formula, data, *args, **options)

    def __init__(
        self,
        formula: str,
        data: Table,
        family: str | Likelihood | None = None,
        *,
        weights: Any = None,
        exposure: Any = None,
        trials: Any = None,
        event: Any = None,
        terms: Sequence[Term] = (),
        graphs: Mapping[str, Any] | None = None,
        env: Mapping[str, Any] | None = None,
        levels: Mapping[Any, Iterable[Hashable]] | None = None,
        priors: Mapping[str, Any] | None = None,
        fixed_sd: float = 10.0,
        bound: str = "best",
        dispersion: str | None = None,
        zero: str | None = None,
        baseline: str = "rw1",
        _elsewhere: Sequence[str] = (),  # names in priors that belong to another part of the model
        _depth: int | None = 1,  # depth of the caller whose variables the formula may use; None: no caller
    ) -> None:
        given = {name: value for name, value in locals().items() if name in ModelSpec.__dataclass_fields__}
        caller = None if _depth is None or is_loading() else sys._getframe(_depth)
        given["variables"] = None if caller is None else {**caller.f_globals, **caller.f_locals}
        given |= {name: given[name] or {} for name in ("graphs", "env", "levels", "priors")}
        given |= {"family": read_family(family), "fixed_sd": scalar("Model", "fixed_sd", fixed_sd, 0.0)}
        spec = ModelSpec(**given, elsewhere=_elsewhere)
        self.formula = parse(formula).formula
        self.reduction = next(kind for kind in REDUCTIONS if kind.applies(spec))()
        spec, *others = self.reduction.reduce(spec)
        self.others = [other.model() for other in others]
        try:
            scope = self._compile(spec, family is not None)
        except Refusal as refused:
            raise shown_in(refused, spec.formula, self.formula) from None
        keep_arguments(self, scope, data)

    def statement(self) -> Statement:
        """The call that rebuilds the model, for a file."""
        return model_statement(self, super().statement())

    def _compile(self, spec: ModelSpec, family_given: bool) -> Scope:
        """Read the formula and the table of the main model."""
        self.parsed, frame, self.family_given = parse(spec.formula), read_frame("Model", spec.data), family_given
        self.data_index = frame.index
        if not len(frame):
            raise problem("Model", "the data have no rows", "at least one")
        variables = spec.variables or {}
        scope = Scope(
            self.parsed,
            list(frame.columns),
            spec.graphs,
            spec.env,
            variables,
            frame,
            python=spec.variables is not None,
        )
        given = {name: spec.__dict__[name] for name in ROW_NAMES}
        asked = {"dispersion": spec.dispersion, "zero": spec.zero}
        family = "gaussian" if spec.family is None else spec.family
        self.seconds = [SecondPredictor(word, text, scope, family) for word, text in asked.items() if text is not None]
        self.response = Response(scope, family, given, self.seconds, spec.zeros_unobserved)
        self.compiled = Compiler(scope, spec.levels).run(spec.terms)
        self.fixed = FixedPart(scope.expression(self._fixed_text(scope)))
        self.offsets = [scope.expression("0 + {" + piece.text + "}") for piece in self.parsed.offsets]
        self.frame, self.kept, self.dropped = self._kept(frame)
        named = list(spec.priors)
        elsewhere = [*spec.elsewhere, *(name for other in self.others for name in names_for_priors(other, named))]
        priors = spelled_out(spec.priors, self.compiled.stands_for)
        self._assemble(spec.bound, spec.fixed_sd, priors, elsewhere)
        warn(of_data(self, family_given))
        return scope

    # -- reading -----------------------------------------------------------------------------------
    def _fixed_text(self, scope: Scope) -> str:
        """The fixed part as text for formulaic; a dot becomes all columns that have no other role."""
        pieces = self.parsed.fixed
        if any(piece.text == "." for piece in pieces):
            outlines = [name for name in scope.columns if str(scope.frame[name].dtype) == "geometry"]
            taken = {*self.response.names, *self.response.row_names, *self.compiled.sources, *outlines}
            rest = [f"`{name}`" for name in scope.columns if name not in taken]
            return " ".join(f"{p.sign} {'+'.join(rest) or '1' if p.text == '.' else p.text}" for p in pieces)
        return " ".join(f"{p.sign} {p.text}" for p in pieces).lstrip("+ ") or "1"

    @property
    def covariates(self) -> list[Hashable]:
        """The columns that prediction of a row needs, without y and exposures."""
        others = [*self.offsets, *(second.expression for second in self.seconds)]
        names = [*self.fixed.expression.names, *(n for o in others for n in o.names), *self.compiled.sources]
        return list(dict.fromkeys(names))

    def _kept(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, Dropped]:
        """The rows without a missing covariate, their places in the data, and a count of the dropped ones."""
        rows = [name for name in self.response.row_names if name not in self.response.names]
        needed = [*self.covariates, *rows]
        plain = used("Model", frame, [*needed, *self.response.names])
        bad = missing("Model", plain, needed)
        dropped = np.zeros(len(frame), dtype=bool)
        for where in bad.values():
            dropped |= where
        if dropped.all():
            worst = max(bad, key=lambda name: bad[name].sum())
            raise problem("Model", f"no row has all covariates: {worst!r} is missing in {bad[worst].sum()}", "one row")
        counted = self.reduction.missing(self, needed)  # of a Cox model the people, not the pieces of their time
        counted = bad if counted is None else counted
        counts = {name: int(where.sum()) for name, where in counted.items()}
        n = int(np.any(list(counted.values()), axis=0).sum()) if counted else 0
        return plain[~dropped].reset_index(drop=True), np.flatnonzero(~dropped), Dropped(n, counts)

    # -- the parts of the model --------------------------------------------------------------------
    def _assemble(self, bound: str, fixed_sd: float, priors: Mapping[str, Any], elsewhere: Sequence[str]) -> None:
        self.fixed.expression.evaluate(self.frame)
        wanted = INTERCEPT in self.fixed.expression.columns
        keep = np.isin(np.arange(len(self.data_index)), self.kept)
        self.target: Target = self.response.read(self.frame, keep, bound, wanted)
        self.target = self.reduction.target(self.target, keep, bound)
        self._state_own(fixed_sd, priors, self.target.y, self.target.weights)
        self.ordered, seen = self.target.likelihood.ordered, self.target.seen
        if not seen.any():
            raise problem("Model", "no row is observed", "one row with y, and weight, exposure and trials above 0")
        frame, about = self.compiled.extended(self.frame), np.average(self.offset_at(self.frame), weights=seen)
        table = DataTable("Model", frame, weights=self.target.weights, places=self.kept)
        self._add_up(table, (fixed_sd, priors, elsewhere), float(about), weights=seen)
        self.target = with_dual(self.target, self.sum.effects, bound)

    def _add_up(self, table: DataTable, stated: Options, mean_offset: float, **options: Any) -> None:
        """Read the terms from a table and set the priors of the coefficients; ``options`` go to ``SumOfTerms``."""
        (fixed_sd, priors, elsewhere), columns = stated, self.fixed.expression.columns
        intercept = INTERCEPT in columns and not self.ordered
        self.level = self.target.level - mean_offset if intercept else 0.0  # prior mean of the intercept
        self.sum = SumOfTerms(
            [self.fixed, *self.compiled.terms],
            table,
            scale=self.target.scale,
            intercept=intercept,
            centred=intercept or self.ordered,
            fixed_variance=fixed_sd**2,
            priors=effect_priors(self.compiled.terms, priors, columns),
            **options,
        )
        self.fixed = FixedPart.among(self.sum.terms)  # as read
        others = [*elsewhere, *self.own_priors.names]
        self.coefficient_priors = FixedPriors(self.sum, priors, [term.name for term in self.compiled.terms], others)
        if "Intercept" in self.coefficient_priors.stated:
            self.level = self.coefficient_priors.stated["Intercept"].mean
        self.sum.fixed_variance = self.coefficient_priors.variance
        self.sum.offset = self.level + self.offset_at(self.frame) + self.coefficient_priors.offset(self.sum.X)

    def _state_own(self, fixed_sd: float, priors: Mapping[str, Any], y: np.ndarray, weights: Any) -> None:
        """Set the priors of the parameters of the likelihood."""
        names = [*self.fixed.expression.columns, *(str(term.name) for term in self.compiled.terms)]
        self.own_priors = OwnPriors(self.target.likelihood, y, weights, priors, fixed_sd, names)
        self.target = replace(self.target, likelihood=self.own_priors.likelihood)

    @property
    def n_rows(self) -> tuple[int, int]:
        """Number of rows that are used, and of those among them that are observed."""
        return len(self.kept), int((self.target.seen > 0.0).sum())

    def row_values(self, name: str) -> np.ndarray | None:
        """Array (N,) of the rows' "trials", "exposure" or "event"; None if the likelihood has no such parameter."""
        likelihood = self.target.likelihood
        given = getattr(likelihood, name) if name in likelihood.row_parameters else None
        return None if given is None else np.broadcast_to(np.asarray(given, dtype=np.float64), self.target.y.shape)

    def table(self, frame: pd.DataFrame) -> DataTable:
        """A frame as the table that terms read."""
        return DataTable("Model", self.compiled.extended(frame))

    def offset_at(self, frame: pd.DataFrame) -> np.ndarray:
        """The sum of the formula's offsets (N,)."""
        total = np.zeros(len(frame))
        for expression in self.offsets:
            part = expression.evaluate(frame)
            if part.shape[1] != 1 or not np.isfinite(part).all():
                got = f"offset({expression.text[5:-1]}) is not a finite number in every row"
                raise problem("Model", got, "one number")
            total += part[:, 0]
        return total

    @property
    def priors(self) -> pd.DataFrame:
        """Table of all priors of the model in words, by the names that ``priors=`` takes."""
        import pandas as pd

        if not self.others:
            return prior_table(self)
        each = zip(self.reduction.parts, (self, *self.others), strict=True)
        return pd.concat({name: prior_table(model) for name, model in each}, names=["part"])

    @stated("n_restarts", "progress", "rng", "n_jobs", "checkpoint")
    def fit(
        self,
        *,
        n_restarts: int = 0,
        tol: float | None = None,
        progress: bool = False,
        rng: Seed = 0,
        accuracy: str = "auto",
        evidence: str | None = None,
        integrate: str | bool | None = None,
        n_jobs: Jobs = None,
        checkpoint: Any = None,
        engine: str = "auto",
        n_probes: int | None = None,
    ) -> FittedModel:
        """Learn the hyperparameters and fit the posterior.

        Parameters
        ----------
        n_restarts : int, default 0
            Number of further starts of the search, drawn with ``rng``.
        tol : float, optional
            Relative gap at which every fit ends. Default: 1e-10, for the iterative engine 1e-4.
        progress : bool, default False
            Show a progress line.
        rng : numpy Generator or int, default 0
            Seed of the restarts and of the iterative engine.
        accuracy : {"auto", "fast", "high"}, default "auto"
            "fast": hyperparameters that maximise the elbo, and the best Gaussian there. "high": integrated over the
            hyperparameters, with corrected evidence and marginals at each point. "auto": the most accurate method that
            takes at most 15 times as long as "fast", or a second. ``fit.accuracy`` and the summary say which it was.
        evidence : {"elbo", "corrected"}, optional
            The objective of learning; it overrides ``accuracy``. "corrected" also corrects the marginals, and finds the
            variances of groups that quadrature finds.
        integrate : {"auto", "grid", "ccd", True, False}, optional
            Method of integration over the hyperparameters (``fenchel.integrate``), or False for none; it overrides
            ``accuracy``. Tables, predictions and draws are then mixtures over fits at many hyperparameters.
        n_jobs : int, None or Dask client
            Workers for the restarts and for the fits of an integration (``fenchel.tasks``).
        checkpoint : path or Finished, optional
            File in which finished fits of an integration are kept.
        engine : {"auto", "direct", "iterative"}, default "auto"
            "iterative" uses conjugate gradients and ``n_probes`` random vectors instead of a factorisation, for crossed
            groups with 10^5 levels and more; its gap is an interval. "auto" uses it, and says so, only if a
            factorisation would exceed stated limits of memory and work. It is faster from about 3000 levels on.
        n_probes : int, default 32
            Number of random vectors of the iterative engine.

        Returns
        -------
        FittedModel
        """
        from .engines import fit_directly, fit_iteratively, uses_iterative

        self.response.check_observed()
        dial = Dial(accuracy, evidence, integrate)
        if checkpoint is not None and dial.method is None:
            advice = "Other fits in memory take seconds: leave it out."
            raise problem("Model", "checkpoint with a table in memory", "integrate=..., or a Dask dataframe", advice)
        if tol is not None:
            scalar("Model", "tol", tol, 0.0, _LOOSEST)
        only = {"n_restarts": n_restarts, "integrate": dial.method, "evidence": evidence == "corrected"}
        if uses_iterative(self, engine, only):
            return fit_iteratively(self, tol, rng, progress, n_probes)
        if n_probes is not None and engine == "direct":
            raise problem("Model", 'n_probes with engine = "direct"', "n_probes=None", "This engine has no probes.")
        each: dict[str, Any] = {"progress": progress, "n_jobs": n_jobs}
        search = {"n_restarts": n_restarts, "rng": rng, "tol": 1e-10 if tol is None else tol, **each}
        points = {"checkpoint": checkpoint, **each}
        fits = [fit_directly(model, search, dial, points) for model in (self._alone(), *self.others)]
        return self.reduction.invert(self, fits)

    def _alone(self) -> Model:
        """The main model without the models of other parts."""
        if not self.others:
            return self
        out = copy.copy(self)
        out.reduction, out.others = Reduction(), []
        return out

    def __repr__(self) -> str:
        return f"Model({self.formula!r}, {self.n_rows[0]} rows, {self.target.likelihood!r})"


_self, *_given = signature(Model.__init__).parameters.values()
Model.__signature__ = Signature(_given)  # type: ignore[attr-defined]  # help() would show that of __new__


def fit(
    formula: str,
    data: Table,
    family: str | Likelihood | None = None,
    *,
    weights: Any = None,
    exposure: Any = None,
    trials: Any = None,
    event: Any = None,
    terms: Sequence[Term] = (),
    graphs: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    levels: Mapping[Any, Iterable[Hashable]] | None = None,
    priors: Mapping[str, Any] | None = None,
    fixed_sd: float = 10.0,
    bound: str = "best",
    dispersion: str | None = None,
    zero: str | None = None,
    baseline: str = "rw1",
    n_restarts: int = 0,
    tol: float | None = None,
    progress: bool = False,
    rng: Seed = 0,
    accuracy: str = "auto",
    evidence: str | None = None,
    integrate: str | bool | None = None,
    n_jobs: Jobs = None,
    checkpoint: Any = None,
    engine: str = "auto",
    n_probes: int | None = None,
    **unknown: Any,
) -> FittedModel:
    """Fit a formula to a data frame: ``Model(formula, data, family, ...).fit(...)`` in one call.

    Parameters
    ----------
    formula, data, family, weights, exposure, trials, event, terms, graphs, env, levels, priors, fixed_sd, bound,
    dispersion, zero, baseline
        As in ``Model``.
    n_restarts, tol, progress, rng, accuracy, evidence, integrate, n_jobs, checkpoint, engine, n_probes
        As in ``Model.fit``, which also says what is returned.
    """
    given = dict(locals())
    for name in given.pop("unknown"):
        raise unknown_option(name, [known for known in signature(fit).parameters if known != "unknown"])
    options = {name: given.pop(name) for name in signature(Model.fit).parameters if name != "self"}
    return Model(**given, _depth=2).fit(**options)
