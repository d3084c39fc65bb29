"""Models of tables that are out of memory: a formula over a Dask dataframe whose latents fit in memory.

The formula is compiled against a sketch, some rows that have every level of every factor and group; two passes say what
else depends on the data (``partition_survey.py``). From then on a partition makes its own rows of the design
(``partition_reader.py``), and a fit is a dozen passes (``distributed/``). It is the fit of the same table in memory.
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
from ..distributed import Partitions, Sums
from ..distributed.survey import Moments
from ..inputs.families import read_family
from ..inputs.fixed_columns import Columns
from ..inputs.frames import Dropped, unknown
from ..inputs.observations import read_observations
from ..linalg.moments import Moments as ColumnMoments
from ..terms import Smooth, SumOfTerms, Term
from ..terms.smooths import MeasuredCurve
from .fixed import INTERCEPT, FixedPart
from .grammar import Call, Crossed, Grouping, Name, Parsed, parse
from .model import Model
from .origins import NEARLY, SAME
from .partition_reader import PartitionReader, measure, read_kinds
from .partition_survey import TableRequest, TableSketch, rows_for_all, sketch
from .remarks import of_columns, warn
from .response import Target

if TYPE_CHECKING:
    import pandas as pd

    from .fitted_partitioned import FittedPartitioned

_OVER_LEVELS = ("rw1", "rw2", "ar1", "seasonal", "iid", "icar", "bym", "bym2", "leroux", "generic")
_ELSEWHERE = ("rows", "survey", "asked", "kinds", "touched", "measured", "standing")  # not part of a file


class PartitionedModel(Model):
    """What ``Model`` is of a Dask dataframe: the same model, whose rows stay where they are.

    Fixed effects, ``(1|g)``, ``(x|g)``, ``(x||g)``, ``(1|a:b)``, ``(1|a/b)``, ``s(x)``, series and regions over levels
    (``rw1``, ``rw2``, ``ar1``, ``seasonal``, ``icar``, ``bym2``, ``leroux``...), offsets, weights, exposure and trials
    by the names of columns. Making it reads the table twice, and ``fit`` some ten times.
    """

    rows: Partitions | None = None

    def __init__(self, formula: str, data: Any, family: Any = None, *, _depth: int | None = 1, **options: Any) -> None:
        signature(Model.__init__).bind(self, formula, data, family, **options)  # before a pass
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
                got, expected, advice = unknown(data._meta, value)
                raise problem("Model", f"{key}: {got}", expected, advice)
        parsed = parse(formula)
        _check_terms(parsed)
        self.rows = Partitions.of("Model", table=data)
        columns = [value for value in given.values() if isinstance(value, str)]
        weighted = given["weights"] if isinstance(given["weights"], str) else None
        asked = _asked(parsed, data, asked_family, columns, weighted)
        self.survey: TableSketch = self.rows.reduce(sketch, asked)
        self.asked = asked
        if not self.survey.kept:
            worst = max(self.survey.lost, key=lambda name: self.survey.lost[name])
            got = f"no row has all covariates: {worst!r} is missing in {self.survey.lost[worst]}"
            raise problem("Model", got, "one row")
        shown, self.kinds = read_kinds(self.survey.sketch, self.survey.categories)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a sketch, which is not the data
            depth = None if _depth is None else _depth + 1
            super().__init__(formula, shown, family, **options, _depth=depth)
        warn(of_columns(self.sum.columns))

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows, which are elsewhere."""
        return {key: value for key, value in self.__dict__.items() if key not in _ELSEWHERE}

    @property
    def n_rows(self) -> tuple[int, int]:
        return self.n_used, self.n_seen

    def _kept(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, Dropped]:
        plain, kept, _ = super()._kept(frame)
        found = self.survey
        return plain, kept, Dropped(found.n - found.kept, dict(found.lost))

    # -- the parts of the model --------------------------------------------------------------------
    def _assemble(self, bound: str, fixed_sd: float, priors: Mapping[str, Any], elsewhere: Sequence[str]) -> None:
        super()._assemble(bound, fixed_sd, priors, elsewhere)  # of the sketch: levels and columns
        self._check_stateless()
        assert self.rows is not None
        means = {name: self.survey.means[name] for name in self.fixed.origin}
        reading = self._reading([self._about_means(term) for term in self.sum.terms])
        found: Sums = self.rows.reduce(measure, reading)
        self.n_used, self.n_seen = found["n"], found["n_seen"]
        if not self.n_seen:
            raise problem("Model", "no row is observed", "one whose y is there, with weight, exposure and trials")
        read, wanted = self.fixed, INTERCEPT in self.fixed.expression.columns
        self.target = self._target(found, bound, wanted)
        self._state_own(fixed_sd, priors, self.standing)
        left = _left_over(found["plain"], wanted)
        self.fixed = FixedPart(read.expression)
        self._add_up(
            self.table(self.frame),
            (fixed_sd, priors, elsewhere),
            found["offset"] / found["weight"],
            columns=_columns(found["fixed"], left, read, self.sum.fixed_names, wanted or self.ordered),
            measured={read.name: (means, left)} | {t.name: _measured(found, t.name) for t in self.compiled.terms},
            counts={t.name: found["counts"][str(t.name)] for t in self.sum.effects if t.levels is not None},
        )
        self.touched = _touched(found["touched"], self.sum)
        self.measured = np.concatenate([[found["n"], found["weight"], found["offset"]], *_figures(found)])

    def _about_means(self, term: Term) -> Term:
        """A term as read from the sketch, about the means of all rows."""
        if isinstance(term, FixedPart):
            return term.about({name: self.survey.means[name] for name in term.origin})
        if isinstance(term, Smooth):
            return term.about(np.array([self.survey.means[name] for name in term.inputs]))
        return term

    def _reading(self, terms: list[Term]) -> PartitionReader:
        """What travels to the partitions."""
        response, sum_ = copy.copy(self.response), copy.copy(self.sum)
        response.__dict__.pop("found", None)
        sum_.terms, sum_.training, sum_.X = terms, [], np.zeros((0, 0))
        target = replace(self.target, y=np.zeros(0), weights=None)
        parts = (response, target, self.compiled, self.offsets, sum_)
        return PartitionReader(self.asked.names, self.asked.needed, self.kinds, *parts)

    def reading(self) -> PartitionReader:
        """What makes rows for a fit of a partition."""
        return replace(self._reading(self.sum.terms), level=self.level, priors=self.coefficient_priors)

    def _check_stateless(self) -> None:
        """Refuse transformations that learn from all rows at once."""
        expressions = [self.fixed.expression, *self.offsets, self.response.expression]
        expressions += [made.expression for made in self.compiled.derived.values()]
        for expression in expressions:
            state = {} if expression is None or expression.spec is None else expression.spec.transform_state
            for text, held in state.items():
                if held:
                    got = f"{text!r} learns from all rows at once, and the table is out of memory"
                    raise self.parsed.refuse(text, got, "columns, C(), np.log and the like, interactions")

    def _target(self, found: Sums, bound: str, centred: bool) -> Target:
        """The likelihood where learning starts, by y of all rows."""
        response, sketch = self.response, self.target
        own = sketch.likelihood
        rows = {key: getattr(own, key) for key in own.row_parameters if getattr(own, key) is not None}
        y, beside, weights = rows_for_all(found["values"], response.family, list(rows))
        self.standing = y
        family = response.family
        bound = bound if isinstance(family, str) else "best"
        made = read_observations("Model", family, bound, y, beside, weights, centred, True, sketch.words)
        likelihood = made.likelihood.with_rows(**rows) if rows else made.likelihood  # of the sketch again
        return replace(sketch, likelihood=likelihood, level=made.level, scale=made.scale, values=made.values)

    # -- fitting -----------------------------------------------------------------------------------
    def fit(
        self, *, tol: float | None = None, progress: bool = False, checkpoint: Any = None, **others: Any
    ) -> FittedPartitioned:
        """Learn the hyperparameters and fit the rest, together, pass by pass.

        Parameters
        ----------
        tol : float
            Relative gap; default: 1e-12.
        progress : bool
        checkpoint : path, optional
            A file that keeps the iterate after every pass: the same call goes on from there.
        """
        from .fitted_partitioned import fitted

        usual: dict[str, tuple[Any, ...]] = {"n_restarts": (0,), "evidence": ("elbo",), "integrate": (None, False)}
        usual |= {"engine": ("auto", "direct"), "n_probes": (None,), "n_jobs": (), "seed": ()}
        for key, value in others.items():
            if key not in usual:
                raise TypeError(f"fit() got an unexpected keyword argument {key!r}")
            if usual[key] and value not in usual[key]:
                raise problem("Model", f"{key} = {value!r} of a table that is out of memory", "a fit without it")
        tol = 1e-12 if tol is None else scalar("Model", "tol", tol, 0.0, 1e-3)
        return fitted(self, tol, progress, checkpoint)


# -- what the passes ask for --------------------------------------------------------------------------------
def _check_terms(parsed: Parsed) -> None:
    """Refuse terms that learn more of the rows than their levels."""
    for part in parsed.terms:
        group = part.group if isinstance(part, Grouping) else None
        plain = isinstance(group, Name | Crossed)
        if isinstance(part, Call):
            plain = part.word in _OVER_LEVELS and "by" not in part.options
            plain |= _is_curve(part)
        if not plain:
            got = f"{part.text} of a table that is out of memory"
            wanted = (
                "fixed effects, (1|g), (x|g), s(x), or terms over levels: rw1, rw2, ar1, seasonal, icar, bym2, leroux"
            )
            raise parsed.refuse(part.at, got, wanted)


def _is_curve(part: Call | Grouping) -> bool:
    """s(x) of one column, a cubic spline or a P-spline."""
    if not (isinstance(part, Call) and part.word == "s" and len(part.args) == 1 and isinstance(part.args[0], Name)):
        return False
    return set(part.options) <= {"bs", "k"} and _basis(part) in ("cr", "ps")


def _basis(part: Call) -> object:
    return getattr(part.options.get("bs"), "value", "cr")


def _words(text: str) -> set[str]:
    return {*re.findall(r"[^\W\d]\w*", text), *re.findall(r"`([^`]+)`", text)}


def _asked(parsed: Parsed, data: Any, family: Any, given: Sequence[str], weights: str | None) -> TableRequest:
    columns, meta = list(data.columns), data._meta
    left, right = parsed.formula.split("~", 1)
    every = any(piece.text == "." for piece in parsed.fixed)
    words = _words(right) | (set(columns) if every else set())
    own = _words(parsed.response.text)
    needed = words | (set(given) | _words(left) - own)
    names = [name for name in columns if name in words | own | _words(left) | set(given)]
    keys: list[tuple[Hashable, ...]] = []
    curves: dict[bool, list[Hashable]] = {True: [], False: []}
    for part in parsed.terms:
        if isinstance(part, Call) and _is_curve(part) and isinstance(part.args[0], Name):
            curves[_basis(part) == "cr"].append(part.args[0].name)
            continue
        group: Any = part.group if isinstance(part, Grouping) else part.args[0] if part.args else None
        group = group.names if isinstance(group, Crossed) else (group,) if isinstance(group, Name) else ()
        for each in group if isinstance(part, Grouping) else ():
            if each.name not in columns:
                raise parsed.refuse(each.at, *unknown(meta, each.name))
        keys += [tuple(each.name for each in group)] if group else []
    factors = {name for text in re.findall(r"C\(\s*`?([^\W\d]\w*)", right) for name in [text]}
    labels = getattr(family, "support", None) == "levels" or family in (
        "bernoulli",
        "probit",
        "ordinal",
        "ordinal-probit",
    )
    for name in names:
        numbers = getattr(meta[name].dtype, "kind", "O") in "biuf"
        if not numbers or name in factors or (labels and name in own):
            keys.append((name,))
    keys = [key for key in dict.fromkeys(keys) if all(name in columns for name in key)]
    lacking = tuple(name for name in names if name in needed and (name not in own or name in words))
    counted, some = (tuple(name for name in curves[cubic] if name in columns) for cubic in (True, False))
    return TableRequest(tuple(names), lacking, tuple(keys), counted, some, weights)


# -- what they say ------------------------------------------------------------------------------------------
def _left_over(found: Moments, level: bool) -> np.ndarray | None:
    """``left`` of a ``FixedPart`` by the moments of its columns, the intercept first where there is one."""
    p, size = found.mean.size, np.maximum(found.size, 1e-300)
    inner = found.covariance / np.outer(size, size)
    mean = found.mean / size
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


def _columns(found: Moments, left: np.ndarray | None, fixed: FixedPart, names: Sequence[str], centred: bool) -> Columns:
    """Centres and scales of the fixed effects over all rows."""
    p, own = found.mean.size, len(fixed.expression.columns)
    change = np.eye(p)
    if left is not None:
        change[:own, :own] = left
    keep = [j for j in range(p) if j >= own or fixed.expression.columns[j] != INTERCEPT]
    mean, spread = found.mean @ change, change.T @ found.covariance @ change
    return Columns.by_moments(names, mean[keep], spread[np.ix_(keep, keep)], found.size[keep], centred)


def _measured(found: Sums, name: Hashable) -> Any:
    """What all rows say of a term, as its ``read_sketch`` takes it."""
    key = str(name)
    if key in found["slopes"]:
        slopes: Moments = found["slopes"][key]
        return slopes.columns(), slopes.low, slopes.high
    if key in found["curves"]:
        return _curve(found["curves"][key])
    return float(np.sqrt(found["by"][key].mean[0])) or 1.0 if key in found["by"] else None


def _curve(found: Moments) -> MeasuredCurve:
    """What the moments of x and of the penalised functions say of a smooth."""
    C, every = found.covariance, found.columns()
    x = ColumnMoments(*(part[:1] for part in every))
    slope = C[0, 1:] / max(float(x.sd[0]), 1e-300)
    return MeasuredCurve(x, np.stack([found.mean[1:], slope]), np.maximum(np.diag(C)[1:] - slope**2, 0.0))


def _figures(found: Sums) -> list[np.ndarray]:
    """Numbers that tell one table from another."""
    parts = [found["values"].moments, found["plain"], found["fixed"]]
    return [array for part in parts for array in (part.mean, np.diag(part.covariance))]


def _touched(found: Any, sum_: SumOfTerms) -> sp.csr_array:
    """A row for each set of latents that rows touch together, the fixed effects among all of them."""
    n_effects = sum(term.n_latents for term in sum_.effects)
    p = len(sum_.fixed_names) + int(sum_.intercept)
    tail, rows = n_effects + np.arange(p), [np.zeros((0,), dtype=np.int64)]
    each = [np.zeros(0, dtype=np.int64)]
    for k, sets in found.sets.items():
        whole = np.hstack([sets, np.tile(tail, (len(sets), 1))])
        rows.append(whole.ravel())
        each.append(np.full(len(sets), k + p, dtype=np.int64))
    ptr = np.concatenate([[0], np.cumsum(np.concatenate(each))])
    indices = np.concatenate(rows)
    return sp.csr_array((np.ones(indices.size), indices, ptr), shape=(ptr.size - 1, n_effects + p))
