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
    """A latent Gaussian model of a data frame, by a formula.

    Parameters
    ----------
    formula : str
        ``"y ~ x + z:w + C(f) + (1|group) + (x|group) + rw1(year) + bym2(district)"``. The fixed part is formulaic's:
        interactions, ``C()``, ``poly``, ``bs``, ``scale``, ``np.log``, ``offset()``, ``-1``, ``.`` for every other
        column. Special terms are added to it: ``(1|g)``, ``(x|g)``, ``(x||g)``, ``(1|a/b)``, ``(1|a:b)``,
        ``(1|gr(g, cov=A))``, ``rw1(t)``, ``rw2(t)``, ``ar1(t)``, ``seasonal(t, 12)``, ``icar(r)``, ``bym2(r)``,
        ``leroux(r)`` and others of ``models.grammar``. On the left: ``y``, ``np.log(y)``, ``y | trials(n)``,
        ``cbind(successes, failures)``, ``cens(time, event)``, ``interval(lower, upper)``.
    data : data frame of pandas, polars or whatever narwhals reads, or a dict of columns
        Rows in which a covariate is missing are left out and counted; where y is missing, y is predicted.
    family : str or Likelihood, optional
        "gaussian", "poisson", "bernoulli", "binomial", "negative-binomial", "gamma", "ordinal", "student-t", ...;
        "multinomial" for labels of several kinds, "cox" for durations with a baseline hazard of any form.
        Default: "gaussian", with a warning where y is 0 or 1 in every row, or whole numbers with zeros among them and a
        mean below 3; of any whole numbers from 0 on, the first lines of the summary ask whether they are counts.
    weights, exposure, trials, event : name of a column, number or array, optional
        ``weights`` multiply the log-likelihood of each row: how often it was seen, not lme4's precision of its mean.
    terms : sequence of Term, optional
        Terms of ``fenchel.terms`` or of one's own, beside those of the formula.
    graphs : dict, optional
        Column of regions -> its graph; or a name that the formula uses -> a graph.
    env : dict, optional
        Other variables of the formula, before those of the caller.
    levels : dict, optional
        Column or term -> its levels in order, where they are more than the data have.
    priors : dict, optional
        {name: prior} or {name: {parameter: prior}}, by the names that ``model.priors`` prints of all of them: a
        coefficient -> ``Normal(mean, sd)`` per unit of its column; a term -> ``PC(sd=1, alpha=0.01)``; a parameter of
        the likelihood ("noise", "size", "shape", "cutpoints", "zero", ...) -> ``Normal`` of its log or logit. None is
        flat: of a coefficient, a hundred times as wide as its default. What is not named keeps its default. Of a hurdle
        with ``zero=`` a name may be of either part; a name that both parts have is stated for both, and {"zero": {name:
        prior}} or {"count": ...} for one.
    fixed_sd : float
        Prior sd of what one sd of a fixed column does, those of ``dispersion=`` and ``zero=`` too, and of the intercept
        at the mean of the columns about the overall level of y; for noise about eta in units of the sd of y.
    bound : str
        "best", or one of the likelihood's bounds.
    dispersion : str, optional
        ``"~ x + f"``, fixed effects alone: the log of each row's sd (Gaussian, Student-t), shape (gamma), precision
        (beta, beta-binomial) or size (negative binomial). Its coefficients are hyperparameters.
    zero : str, optional
        ``"~ x"``: the logit of the probability of a structural zero (zero-inflated families, fixed effects alone), or
        of a zero (hurdle families, any terms: the model is then two fits, of zeros and of counts above 0).
    baseline : "rw1", "rw2" or "free"
        Of ``family="cox"``: the log of its hazard over time. "free" is the partial likelihood, for up to 500 different
        event times; rows in which the time or the event is missing are left out.

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

    variables: dict[str, Any]  # of the caller, that the formula uses; a file keeps them
    expressions: list[Any]  # of the formula; a file refuses functions of one's own in them

    def __new__(cls, formula: Any = None, data: Any = None, *args: Any, **options: Any) -> Model:
        """A table of Dask's, whose rows are out of memory, has a model of its own."""
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
        _elsewhere: Sequence[str] = (),  # what priors may name beside this model's own: another part has it
        _depth: int | None = 1,  # of the caller whose variables and functions the formula may use; None: nobody's
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
        """The call that makes the model again, for a file."""
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
        """The fixed part as one text for formulaic; a lone dot is every column that is nothing else."""
        pieces = self.parsed.fixed
        if any(piece.text == "." for piece in pieces):
            outlines = [name for name in scope.columns if str(scope.frame[name].dtype) == "geometry"]
            mine = {*self.response.names, *self.response.row_names, *self.compiled.sources, *outlines}
            rest = [f"`{name}`" for name in scope.columns if name not in mine]
            return " ".join(f"{p.sign} {'+'.join(rest) or '1' if p.text == '.' else p.text}" for p in pieces)
        return " ".join(f"{p.sign} {p.text}" for p in pieces).lstrip("+ ") or "1"

    @property
    def covariates(self) -> list[Hashable]:
        """The columns that a row needs to be predicted, y's own and exposures aside."""
        others = [*self.offsets, *(second.expression for second in self.seconds)]
        names = [*self.fixed.expression.names, *(n for o in others for n in o.names), *self.compiled.sources]
        return list(dict.fromkeys(names))

    def _kept(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, Dropped]:
        """The rows in which every covariate is there, and what was left out."""
        rows = [name for name in self.response.row_names if name not in self.response.names]
        needed = [*self.covariates, *rows]
        plain = used("Model", frame, [*needed, *self.response.names])
        bad = missing("Model", plain, needed)
        lost = np.zeros(len(frame), dtype=bool)
        for where in bad.values():
            lost |= where
        if lost.all():
            worst = max(bad, key=lambda name: bad[name].sum())
            raise problem("Model", f"no row has all covariates: {worst!r} is missing in {bad[worst].sum()}", "one row")
        people = self.reduction.missing(self, needed)
        people = bad if people is None else people
        counts = {name: int(where.sum()) for name, where in people.items()}
        n = int(np.any(list(people.values()), axis=0).sum()) if people else 0
        return plain[~lost].reset_index(drop=True), np.flatnonzero(~lost), Dropped(n, counts)

    # -- the parts of the model --------------------------------------------------------------------
    def _assemble(self, bound: str, fixed_sd: float, priors: Mapping[str, Any], elsewhere: Sequence[str]) -> None:
        self.fixed.expression.evaluate(self.frame)
        wanted = INTERCEPT in self.fixed.expression.columns
        keep = np.isin(np.arange(len(self.data_index)), self.kept)
        self.target: Target = self.response.read(self.frame, keep, bound, wanted)
        self.target = self.reduction.target(self.target, keep, bound)
        self._state_own(fixed_sd, priors, self.target.y)
        self.ordered, seen = self.target.likelihood.ordered, self.target.seen
        if not seen.any():
            raise problem("Model", "no row is observed", "one whose y is there, with weight, exposure and trials")
        frame, about = self.compiled.extended(self.frame), np.average(self.offset_at(self.frame), weights=seen)
        table = DataTable("Model", frame, weights=self.target.weights, places=self.kept)
        self._add_up(table, (fixed_sd, priors, elsewhere), float(about), weights=seen)
        self.target = with_dual(self.target, self.sum.effects, bound)

    def _add_up(self, table: DataTable, stated: Options, mean_offset: float, **options: Any) -> None:
        """Read the terms against a table, and give the coefficients their priors; ``options`` of ``SumOfTerms``."""
        (fixed_sd, priors, elsewhere), columns = stated, self.fixed.expression.columns
        intercept = INTERCEPT in columns and not self.ordered
        self.level = self.target.level - mean_offset if intercept else 0.0  # of the intercept's prior
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

    def _state_own(self, fixed_sd: float, priors: Mapping[str, Any], y: np.ndarray) -> None:
        """Give the likelihood's own parameters their priors."""
        names = [*self.fixed.expression.columns, *(str(term.name) for term in self.compiled.terms)]
        self.own_priors = OwnPriors(self.target.likelihood, y, priors, fixed_sd, names)
        self.target = replace(self.target, likelihood=self.own_priors.likelihood)

    @property
    def n_rows(self) -> tuple[int, int]:
        """How many rows are used, and how many of them are observed."""
        return len(self.kept), int((self.target.seen > 0.0).sum())

    def row_values(self, name: str) -> np.ndarray | None:
        """ "trials", "exposure" or "event" of the rows (N,); None where the likelihood has none."""
        likelihood = self.target.likelihood
        given = getattr(likelihood, name) if name in likelihood.row_parameters else None
        return None if given is None else np.broadcast_to(np.asarray(given, dtype=np.float64), self.target.y.shape)

    def table(self, frame: pd.DataFrame) -> DataTable:
        """Plain rows as terms read them."""
        return DataTable("Model", self.compiled.extended(frame))

    def offset_at(self, frame: pd.DataFrame) -> np.ndarray:
        """The sum of the formula's offsets (N,)."""
        total = np.zeros(len(frame))
        for expression in self.offsets:
            part = expression.evaluate(frame)
            if part.shape[1] != 1 or not np.isfinite(part).all():
                got = f"offset({expression.text[5:-1]}) is no finite number in every row"
                raise problem("Model", got, "one number")
            total += part[:, 0]
        return total

    @property
    def priors(self) -> pd.DataFrame:
        """Every prior of the model, in words; of a hurdle with ``zero=`` those of each part."""
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
        """Learn the hyperparameters and fit the rest.

        Parameters
        ----------
        n_restarts : int
            Further starts of the search, drawn with ``rng``.
        tol : float
            Relative gap of every fit; default: 1e-10, of the iterative engine 1e-4.
        progress : bool
        accuracy : "auto", "fast" or "high"
            "fast": hyperparameters where the elbo is largest, and the best Gaussian there. "high": integrated over the
            hyperparameters, each point weighted by its corrected evidence and with marginals beyond the Gaussian.
            "auto": the best that takes at most 15 times as long as the plain fit, or a second: integrated, corrected at
            the mode, or Gaussian. ``fit.accuracy`` and the first line of the summary say which it is.
        evidence : "elbo" or "corrected", optional
            What learning maximises, in the place of what ``accuracy`` says. "corrected" finds the variances of groups
            that quadrature finds (``fenchel.hyperparameters.learn``), and takes marginals beyond the Gaussian there.
        integrate : "auto" (or True), "grid", "ccd" or False, optional
            Integrate over the hyperparameters (``fenchel.integrate``) by this method, in the place of what ``accuracy``
            says; False does not. Coefficients, effects, predictions, draws and leave-one-out are then mixtures over
            fits at many hyperparameters.
        n_jobs : int, None or Dask client
            Who fits the points of an integration, or searches from several starts, side by side (``fenchel.tasks``).
        checkpoint : path or Finished
            Of the integration: what keeps finished fits.
        engine : "auto", "direct" or "iterative"
            "iterative" needs no factor of the precision: conjugate gradients and ``n_probes`` (32) random vectors drawn
            with ``rng``, for groups crossed at 10^5 levels and more. Its gap is an interval. "auto" takes it, and says
            so, only where a factor would exceed stated limits of memory and work; it is the faster one from about 3000
            levels on. Where a factorisation is dear, the direct engine's search begins where a quick such fit ends.
        """
        from .engines import fit_directly, fit_iteratively, uses_iterative

        self.response.check_observed()
        dial = Dial(accuracy, evidence, integrate)
        if checkpoint is not None and dial.method is None:
            advice = "Another fit in memory is over in seconds: leave it out."
            raise problem("Model", "checkpoint meets a table in memory", "integrate=..., or a Dask dataframe", advice)
        if tol is not None:
            scalar("Model", "tol", tol, 0.0, _LOOSEST)
        only = {"n_restarts": n_restarts, "integrate": dial.method, "evidence": evidence == "corrected"}
        if uses_iterative(self, engine, only):
            return fit_iteratively(self, tol, rng, progress, n_probes)
        if n_probes is not None and engine == "direct":
            raise problem("Model", 'n_probes with engine = "direct"', "n_probes left out", "It has no probes.")
        each: dict[str, Any] = {"progress": progress, "n_jobs": n_jobs}
        search = {"n_restarts": n_restarts, "rng": rng, "tol": 1e-10 if tol is None else tol, **each}
        points = {"checkpoint": checkpoint, **each}
        fits = [fit_directly(model, search, dial, points) for model in (self._alone(), *self.others)]
        return self.reduction.invert(self, fits)

    def _alone(self) -> Model:
        """The main model without those beside it, as a model of its own."""
        if not self.others:
            return self
        out = copy.copy(self)
        out.reduction, out.others = Reduction(), []
        return out

    def __repr__(self) -> str:
        return f"Model({self.formula!r}, {self.n_rows[0]} rows, {self.target.likelihood!r})"


_self, *_given = signature(Model.__init__).parameters.values()
Model.__signature__ = Signature(_given)  # type: ignore[attr-defined]  # not that of __new__


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
    """``Model(formula, data, family, ...).fit(...)`` in one call.

    Parameters
    ----------
    formula, data, family, weights, exposure, trials, event, terms, graphs, env, levels, priors, fixed_sd, bound,
    dispersion, zero, baseline
        Of ``Model``.
    n_restarts, tol, progress, rng, accuracy, evidence, integrate, n_jobs, checkpoint, engine, n_probes
        Of ``Model.fit``.

    Returns
    -------
    FittedModel
    """
    given = dict(locals())
    for name in given.pop("unknown"):
        raise unknown_option(name, [known for known in signature(fit).parameters if known != "unknown"])
    options = {name: given.pop(name) for name in signature(Model.fit).parameters if name != "self"}
    return Model(**given, _depth=2).fit(**options)
