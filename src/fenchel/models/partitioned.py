"""``PartitionedModel``: a formula over a Dask dataframe, whose rows need not fit in memory while its latents do.

The formula is compiled for a sketch, some rows with every level of every factor and group; two passes over the rows
compute what else depends on the data. Then each partition makes its rows of the design (``partition_rows.py``), and a
fit takes a dozen passes (``distributed/``). The result is that for the same table in memory.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ..checks import problem, scalar
from ..distributed import Checkpoint, Learning, PartitionedFit, PartitionedProblem, Partitions, Sums
from ..distributed.approximation import QuadraticModel
from ..distributed.precision import SparsePrior
from ..distributed.row_sums import LatentSets, TableMoments
from ..files import Statement, is_loading, searched, stated
from ..inputs.fixed_columns import Columns
from ..inputs.frames import Dropped, unknown
from ..inputs.observations import read_family, read_observations
from ..solvers.base import reporting
from ..terms import WORDS, SumOfTerms
from .base import Engine
from .fixed import NEARLY, SAME, FixedPart
from .grammar import Call, Grouping, Name, Parsed, parse
from .model import Model
from .model_matrix import INTERCEPT
from .partition_rows import PartitionReader, TableRequest, measure, read_kinds, rows_for_all, sketch
from .remarks import Remark, warn, warn_of
from .response import Target

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .fitted import FittedModel

_LABELS = ("bernoulli", "probit", "ordinal", "ordinal-probit")
# attributes that are not sent to the partitions
_ELSEWHERE = ("rows", "passes", "survey", "request", "means", "kinds", "touched", "measured", "standing")
_FIT_OPTIONS: dict[str, tuple[Any, ...]] = {  # options of a fit in memory -> values that are allowed here; (): any
    "n_restarts": (0,),
    "accuracy": (),
    "evidence": (None, "elbo"),
    "integrate": (None, False),
    "engine": ("auto", "direct"),
    "n_probes": (None,),
    "n_jobs": (),
    "rng": (),
}


class PartitionedEngine(Engine):
    """The engine for Dask dataframes: the fit holds the posterior of the latents, but no rows.

    Intervals of hyperparameters come from a quadratic approximation at the optimum; files store their table.
    """

    name = "partitioned"
    averages_own = False
    keeps_rows = False

    def __init__(self, evidence: Any) -> None:
        self.parabola = evidence

    def evidence(self, fit: FitTables) -> Any:
        return self.parabola

    def remarks(self, fit: FitTables) -> list[Remark]:
        """No remarks, since they need the rows."""
        return []


class PartitionedModel(Model):
    """A ``Model`` of a Dask dataframe, whose rows stay in their partitions.

    Fixed effects, ``(1|g)``, ``(x|g)``, ``(x||g)``, ``(1|a:b)``, ``(1|a/b)``, ``s(x)``, series and regions over levels
    (``rw1``, ``rw2``, ``ar1``, ``seasonal``, ``icar``, ``bym2``, ``leroux``...), offsets, weights, exposure and trials
    by the names of columns. The constructor reads the table twice, and ``fit`` about ten times.
    """

    rows: Partitions | None = None

    def __init__(self, formula: str, data: Any, family: Any = None, *, _depth: int | None = 1, **options: Any) -> None:
        signature(Model.__init__).bind(self, formula, data, family, **options)  # an error before any pass
        given: dict[str, Any] = {key: options.get(key) for key in ("weights", "exposure", "trials", "event")}
        for word in ("terms", "dispersion", "zero"):
            if options.pop(word, None):
                raise problem("Model", f"{word}= of a table that is out of memory", "a model without it")
        asked_family = read_family(family)
        if asked_family in ("cox", "multinomial") or str(asked_family).startswith("hurdle"):
            raise problem(
                "Model", f"family = {asked_family!r} of a table that is out of memory", "one likelihood a row"
            )
        for key, value in given.items():
            if np.ndim(value) or hasattr(value, "dask"):
                raise problem("Model", f"{key} is an array beside a Dask dataframe", "the name of one of its columns")
            if isinstance(value, str) and value not in data.columns:
                got, expected, advice = unknown(_columns_of(data), value)
                raise problem("Model", f"{key}: {got}", expected, advice)
        parsed = parse(formula)
        self.rows, self.passes = Partitions.of("Model", table=data), list[dict[str, Any]]()
        self.request = _request(parsed, data, asked_family, given)
        self.columns = _columns_of(data).iloc[:0][list(self.request.names)]
        self.survey: Sums = self._pass("survey", sketch, self.request)
        lost: Sums = self.survey["lost"]
        if not self.survey["kept"]:
            worst = max(lost, key=lambda name: lost[name])
            got = f"no row has all covariates: {worst!r} is missing in {lost[worst]}"
            raise problem("Model", got, "one row")
        self.means = {name: total / self.survey["weight"] for name, total in self.survey["totals"].items()}
        shown, self.kinds = read_kinds(self.survey["sketch"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # they would concern the sketch, not the data
            depth = None if _depth is None else _depth + 1
            super().__init__(formula, shown, family, **options, _depth=depth)
        warn(self.sum.columns.complaints())

    def _pass(self, word: str, work: Any, *given: Any) -> Sums:
        """The result of a pass over all rows, stored for files, which do not have the rows."""
        assert self.rows is not None
        rows = self.rows
        sums: Sums = searched(word, lambda: rows.reduce(work, *given), dict, Sums)
        self.passes.append({**sums, "of": word})
        return sums

    def statement(self) -> Statement:
        """The call that rebuilds the model, with the results of the passes over its rows."""
        word, arguments, options, _ = super().statement()
        given = signature(Model).bind(*arguments, **options).arguments
        return Statement(word, (), {**given, "data": self.columns}, self.passes)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the rows, which are not pickled."""
        return {key: value for key, value in self.__dict__.items() if key not in _ELSEWHERE}

    @property
    def n_rows(self) -> tuple[int, int]:
        return self.n_used, self.n_seen

    def _kept(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, Dropped]:
        plain, kept, _ = super()._kept(frame)
        return plain, kept, Dropped(self.survey["n"] - self.survey["kept"], dict(self.survey["lost"]))

    # -- the parts of the model --------------------------------------------------------------------
    def _assemble(self, bound: str, fixed_sd: float, priors: Mapping[str, Any], elsewhere: Sequence[str]) -> None:
        super()._assemble(bound, fixed_sd, priors, elsewhere)  # of the sketch: levels and columns
        self._check_stateless()
        assert self.rows is not None
        means = {name: self.means[name] for name in self.fixed.origin}
        reading = replace(self.reading(), sum=self._travelling([term.about(self.means) for term in self.sum.terms]))
        sums: Sums = self._pass("measure", measure, reading)
        self.n_used, self.n_seen = sums["n"], sums["n_seen"]
        if not self.n_seen:
            raise problem("Model", "no row is observed", "one whose y is there, with weight, exposure and trials")
        read, wanted = self.fixed, INTERCEPT in self.fixed.expression.columns
        self.target = self._target(sums, bound, wanted)
        self._state_own(fixed_sd, priors, *self.standing)
        left = _left_over(sums["plain"], wanted)
        self.fixed = FixedPart(read.expression)
        self._add_up(
            self.table(self.frame),
            (fixed_sd, priors, elsewhere),
            sums["offset"] / sums["weight"],
            columns=_columns(sums["fixed"], left, read, self.sum.fixed_names, wanted or self.ordered),
            measured={read.name: (means, left)}
            | {term.name: sums["moments"].get(str(term.name)) for term in self.compiled.terms},
            counts={t.name: sums["counts"][str(t.name)] for t in self.sum.effects if t.levels is not None},
        )
        self.touched = _touched(sums["touched"], self.sum)
        self.measured = np.concatenate([[sums["n"], sums["weight"], sums["offset"]], *_figures(sums)])

    def _travelling(self, terms: list[Any]) -> SumOfTerms:
        """The sum of terms without its rows."""
        out = copy.copy(self.sum)
        out.terms, out.training, out.X = terms, [], np.zeros((0, 0))
        return out

    def reading(self) -> PartitionReader:
        """The object that makes the rows of a partition; it is sent there and holds no rows itself."""
        response, target = copy.copy(self.response), replace(self.target, y=np.zeros(0), weights=None)
        response.__dict__.pop("found", None)
        sum_ = self._travelling(self.sum.terms)
        parts = (response, target, self.compiled, self.offsets, sum_, self.level, self.coefficient_priors)
        return PartitionReader(self.request, self.kinds, *parts)

    def _check_stateless(self) -> None:
        """Refuse transformations that need all rows at once."""
        expressions = [self.fixed.expression, *self.offsets, self.response.expression]
        expressions += [made.expression for made in self.compiled.derived.values()]
        for expression in expressions:
            state = {} if expression is None or expression.spec is None else expression.spec.transform_state
            for text, held in state.items():
                if held:
                    got = f"{text!r} learns from all rows at once, and the table is out of memory"
                    raise self.parsed.refuse(text, got, "columns, C(), np.log and the like, interactions")

    def _target(self, sums: Sums, bound: str, centred: bool) -> Target:
        """The target with the starting likelihood, from the values of y in all rows."""
        response, sketch = self.response, self.target
        own = sketch.likelihood
        rows = own.row_values
        y, beside, weights = rows_for_all(sums["values"], response.family, list(rows))
        self.standing = y, weights
        family = response.family
        bound = bound if isinstance(family, str) else "best"
        made = read_observations("Model", family, bound, y, beside, weights, centred, True, sketch.words)
        likelihood = made.likelihood.with_rows(**rows) if rows else made.likelihood  # of the sketch again
        return replace(sketch, likelihood=likelihood, level=made.level, scale=made.scale, values=made.values)

    # -- fitting -----------------------------------------------------------------------------------
    @stated("progress", "checkpoint", "others")
    def fit(
        self, *, tol: float | None = None, progress: bool = False, checkpoint: Any = None, **others: Any
    ) -> FittedModel:
        """Learn the hyperparameters and fit the posterior together, by passes over the rows.

        Parameters
        ----------
        tol : float
            Relative gap; default: 1e-12.
        progress : bool
        checkpoint : path, optional
            File in which the iterate is stored after every pass, and from which the same call resumes.
        """
        from .fitted import FittedModel

        for key, value in others.items():
            if key not in _FIT_OPTIONS:
                raise TypeError(f"fit() got an unexpected keyword argument {key!r}")
            if _FIT_OPTIONS[key] and value not in _FIT_OPTIONS[key]:
                raise problem("Model", f"{key} = {value!r} of a table that is out of memory", "a fit without it")
        tol = 1e-12 if tol is None else scalar("Model", "tol", tol, 0.0, 1e-3)
        if not is_loading() and (self.rows is None or not self.rows.parts):
            raise problem("Model", "the rows of a loaded model are elsewhere", "Model(formula, table), made anew")
        likelihood, prior = self.target.likelihood, SparsePrior(self.sum.family(), self.touched)
        learning = Learning.of(bool(prior.theta.size), likelihood if likelihood.theta.size else None, *self.standing)
        reading = replace(self.reading(), pattern=(prior.triangle.indptr, prior.triangle.indices))
        rows, file = self.rows, None
        if checkpoint is not None:
            file = Checkpoint("Model", checkpoint)
            priors = self.priors.reset_index().astype(str).to_numpy().tolist()
            settings = {"formula": self.formula, "family": repr(self.response.family), "priors": priors}
            file.describe(settings, self.measured)
            assert rows is not None
            rows = replace(rows, kept=file.path)
        task = PartitionedProblem(rows, reading, likelihood, prior, learning)
        with reporting(progress, f"fitting {self.n_rows[0]} rows in partitions", None) as report:
            outcome, _ = PartitionedFit([task], tol, checkpoint=file, callback=report).run()
        learned = task.learned(outcome, tol, outcome.n_iter)
        engine = PartitionedEngine(QuadraticModel(outcome.point, learning))
        fit = FittedModel(self, learned, engine=engine, why="rows are out of memory")
        warn_of(fit)
        return fit


def _columns_of(data: Any) -> pd.DataFrame:
    """The columns of a Dask dataframe without rows, which is all that a loaded model has."""
    return data if is_loading() else data._meta


# -- the request of the first pass --------------------------------------------------------------------------
def _request(parsed: Parsed, data: Any, family: Any, given: Mapping[str, Any]) -> TableRequest:
    """The columns of a formula, and those whose values must all be collected."""
    columns, meta = list(data.columns), _columns_of(data)
    left, right = parsed.formula.split("~", 1)
    own = _words(parsed.response.text)
    beside = {value for value in given.values() if isinstance(value, str)}
    words = _words(right) | (set(columns) if any(piece.text == "." for piece in parsed.fixed) else set())
    names = [name for name in columns if name in words | own | _words(left) | beside]
    keys: list[tuple[Hashable, ...]] = []
    curves: dict[str, list[Hashable]] = {"cr": [], "ps": []}
    for part in parsed.terms:
        source, basis = _source(parsed, part, meta)
        key = tuple(each.name for each in source if each.name in columns)
        if basis is not None:
            curves[basis] += key
        elif key and len(key) == len(source):
            keys.append(key)
    factors = set(re.findall(r"C\(\s*`?([^\W\d]\w*)", right))
    labels = own if getattr(family, "support", None) == "levels" or family in _LABELS else set()
    for name in names:
        if meta[name].dtype.kind not in "biuf" or name in factors | labels:
            keys.append((name,))
    needed = words | beside | (_words(left) - own)
    lacking = tuple(name for name in names if name in needed and (name not in own or name in words))
    weights = given["weights"] if isinstance(given["weights"], str) else None
    every = tuple(dict.fromkeys(keys))
    return TableRequest(tuple(names), lacking, every, tuple(curves["cr"]), tuple(curves["ps"]), weights)


def _words(text: str) -> set[str]:
    return {*re.findall(r"[^\W\d]\w*", text), *re.findall(r"`([^`]+)`", text)}


def _source(parsed: Parsed, part: Call | Grouping, meta: pd.DataFrame) -> tuple[Sequence[Name], str | None]:
    """The columns whose levels a term is over, or the column of a curve with its basis.

    Terms that need more from the rows are refused.
    """
    if isinstance(part, Grouping):
        for each in part.group.columns:
            if each.name not in meta:
                raise parsed.refuse(each.at, *unknown(meta, each.name))
        if part.group.columns:
            return part.group.columns, None
    elif WORDS[part.word].partitioned and "by" not in part.options:
        return part.args[0].columns if part.args else (), None
    elif part.word == "s" and len(part.args) == 1 == len(part.args[0].columns) and set(part.options) <= {"bs", "k"}:
        basis = getattr(part.options.get("bs"), "value", "cr")
        if basis in ("cr", "ps"):
            return part.args[0].columns, basis
    words = ", ".join(word for word, kind in WORDS.items() if kind.partitioned)
    wanted = f"fixed effects, (1|g), (x|g), s(x), or terms over levels: {words}"
    raise parsed.refuse(part.at, f"{part.text} of a table that is out of memory", wanted)


# -- the results of the passes ------------------------------------------------------------------------------
def _left_over(moments: TableMoments, level: bool) -> np.ndarray | None:
    """``left`` of a ``FixedPart`` by the moments of its columns, the intercept first where there is one."""
    p, size = moments.mean.size, np.maximum(moments.size, 1e-300)
    inner = moments.covariance / np.outer(size, size)
    mean = moments.mean / size
    full = inner if level else inner + np.outer(mean, mean)
    B, first = np.eye(p), int(level)
    for j in range(max(1, first), p):
        by = np.zeros(j)
        by[first:] = np.linalg.lstsq(full[first:j, first:j], full[first:j, j], rcond=None)[0]
        if level:
            by[0] = mean[j] - float(by[1:] @ mean[1:j])
        rest = full[j, j] - float(by[first:] @ full[first:j, j])
        share = rest / max(float(inner[j, j]), 1e-300)
        if SAME < share < NEARLY:
            B[:j, j] = -by * size[j] / size[:j]
    return B if np.any(np.triu(B, 1)) else None


def _columns(
    moments: TableMoments, left: np.ndarray | None, fixed: FixedPart, names: Sequence[str], centred: bool
) -> Columns:
    """Centres and scales of the fixed effects over all rows."""
    p, own = moments.mean.size, len(fixed.expression.columns)
    change = np.eye(p)
    if left is not None:
        change[:own, :own] = left
    keep = [j for j in range(p) if j >= own or fixed.expression.columns[j] != INTERCEPT]
    mean, spread = moments.mean @ change, change.T @ moments.covariance @ change
    return Columns.by_moments(names, mean[keep], spread[np.ix_(keep, keep)], moments.size[keep], centred)


def _figures(sums: Sums) -> list[np.ndarray]:
    """Numbers by which a checkpoint recognises its table."""
    parts = [sums["values"].moments, sums["plain"], sums["fixed"]]
    return [array for part in parts for array in (part.mean, np.diag(part.covariance))]


def _touched(latent_sets: LatentSets, sum_: SumOfTerms) -> sp.csr_array:
    """A row for each set of latents that rows touch together, the fixed effects among all of them."""
    n_effects = sum(term.n_latents for term in sum_.effects)
    p = len(sum_.fixed_names) + int(sum_.intercept)
    indices, sizes = [np.zeros(0, dtype=np.int64)], [0]
    for k, sets in latent_sets.sets.items():
        fixed = np.tile(n_effects + np.arange(p), (len(sets), 1))
        indices.append(np.hstack([sets, fixed]).ravel())
        sizes += [k + p] * len(sets)
    columns, ends = np.concatenate(indices), np.cumsum(sizes)
    return sp.csr_array((np.ones(columns.size), columns, ends), shape=(ends.size - 1, n_effects + p))
