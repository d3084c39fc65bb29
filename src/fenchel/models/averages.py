"""Contrasts between rows, and effects of a column averaged over rows.

d/dx E[y]      (E[y | x + h] - E[y | x - h]) / 2h, averaged over the rows, of each joint draw of the latents
d/dx eta       the same, which is linear in the latents: its marginal is that of one row of a design
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..checks import count, numeric, problem, scalar
from ..inputs.frames import read_frame, used
from ..marginals import Marginals
from ..priors.base import NewRows
from ..terms import DataColumn, Kind
from .predictions import (
    PredictionRows,
    eta_draws,
    interval_ends,
    latent_draws,
    marginals,
    mean_given,
    read_rows,
    shares,
)
from .tables import marginal_table

if TYPE_CHECKING:
    import pandas as pd

    from ..inputs.frames import Table
    from .fit_tables import FitTables

_STEP = 1e-3  # of a standard deviation of the column
_LEAST = 2_000  # draws of E[y] at least: the ends of intervals are then known to 0.06 sds
_MOST = 20_000  # draws of E[y] at most: the ends are then known to 0.02 sds
_DRAWN = 40_000_000  # numbers that are drawn in all where neither decides
_CELLS = 20_000_000  # numbers of a block of draws


def contrast(
    fit: FitTables, first: Table, second: Table, kind: str, interval: float, without: str | Sequence[str] = ()
) -> pd.DataFrame:
    """``first`` minus ``second``."""
    first, second = _completed(fit, first, second)
    one, two = (read_rows(fit, table, without=without) for table in (first, second))
    if not (one.there.all() and two.there.all()):
        raise problem("contrast", "a covariate is missing in a row", "all of them in every row")
    sizes = {len(one.index), len(two.index)} - {1}
    if len(sizes) > 1:
        raise problem("contrast", f"{len(one.index)} rows meet {len(two.index)}", "as many, or one")
    n = sizes.pop() if sizes else 1
    index = one.index if len(one.index) == n else two.index
    if kind == "link" and not (one.unseen or two.unseen):
        return _of_marginals(index, _difference(fit, _repeated(one, n), _repeated(two, n)), interval)
    import pandas as pd

    size = _size(len(one.index) + len(two.index))
    parts = _latents(fit, size)
    # one table of both: a group that neither has seen is one group
    both = read_rows(fit, pd.concat([one.frame, two.frame], ignore_index=True), without=without)
    drawn, m = _drawn(both, parts, kind), len(one.index)
    return _of_draws(index, np.broadcast_to(drawn[:m] - drawn[m:], (n, size)), interval)


def _size(rows: int) -> int:
    """How many draws of E[y] are made at so many rows."""
    return int(np.clip(_DRAWN // max(rows, 1), _LEAST, _MOST))


def _difference(fit: FitTables, one: PredictionRows, two: PredictionRows) -> Marginals:
    """The marginals of eta of one set of rows less that of another."""

    def apart(view: FitTables) -> NewRows:
        a, b = ((where if view is fit else where.under(view)).new for where in (one, two))
        return replace(a, design=a.design - b.design, offset=a.offset - b.offset, extra_variance=0.0)

    return marginals(fit, apart)


def _completed(fit: FitTables, first: Table, second: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both, with the columns that neither names at a typical value."""
    frames = read_frame("contrast", first, "first"), read_frame("contrast", second, "second")
    named = {name for frame in frames for name in frame.columns}
    one, two = (typical_rows(fit, frame, named) for frame in frames)
    return one, two


def typical_rows(fit: FitTables, frame: pd.DataFrame, named: Collection[Any] = ()) -> pd.DataFrame:
    """Rows with the columns that are not ``named`` at a typical value: the mean of numbers, the most frequent level."""
    model, named = fit.model, named or set(frame.columns)
    levels = {
        source for term in model.sum.effects for column in term.claims for source in model.compiled.sources_of(column)
    }
    same: dict[str, Any] = {}
    for name in (name for name in model.covariates if name not in named):
        column = model.reduction.source(model, name)[name]
        number = column.dtype.kind in "iuf" and name not in {*levels, *model.fixed.expression.factors}
        same[str(name)] = float(column.mean()) if number else column.mode().iloc[0]
    return frame.assign(**same)


def _repeated(where: PredictionRows, n: int) -> PredictionRows:
    if len(where.index) == n:
        return where
    at = np.zeros(n, dtype=int)
    return replace(where, new=replace(where.new, design=where.new.design[at], offset=where.new.offset[at]))


class _Part(NamedTuple):
    """Draws of the latents (n, L) of a fit at one theta, and which of all draws they are."""

    fit: FitTables
    which: np.ndarray
    latents: np.ndarray


def _latents(fit: FitTables, size: int) -> list[_Part]:
    rng = np.random.default_rng(0)
    each = shares(fit, size, rng)
    return [_Part(part, which, latent_draws(part, which.size, rng)) for part, which in each]


def _drawn(where: PredictionRows, parts: Sequence[_Part], kind: str) -> np.ndarray:
    """Draws (M, size) of eta or of E[y], at exposure 1 and one trial."""
    rng, size = np.random.default_rng(1), sum(part.which.size for part in parts)
    out = np.empty((len(where.frame), size))
    for fit, which, latents in parts:
        eta = eta_draws(where if len(parts) == 1 else where.under(fit), latents, rng)
        if kind != "link":
            unit = fit.model.response.at(fit.found.likelihood, where.frame, dict.fromkeys(("exposure", "trials"), 1.0))
            eta = mean_given(fit, unit, eta)
        out[:, which] = eta
    return out


def survival_draws(
    fit: FitTables, new: Table, times: Any, size: int, rng: Any, new_groups: str
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Times (T,), joint draws (size, M, T) of P(T > t) of new rows, and their index."""
    at = np.atleast_1d(numeric("survival", "times", times))
    if not fit.likelihood.durations:
        got = f"the family is {fit.likelihood.word or fit.likelihood.name!r}"
        raise problem("survival", got, 'family="weibull", "exponential" or "cox"')
    if at.ndim > 1 or not (at >= 0.0).all():
        raise problem("survival", f"times = {times!r}", "one time or several, each 0 or above")
    rows, rng = read_rows(fit, new, new_groups), np.random.default_rng(rng)
    out = np.empty((count("survival", "size", size, 2), rows.there.size, at.size))
    for part, which in shares(fit, len(out), rng):
        eta = eta_draws(rows.under(part), latent_draws(part, which.size, rng), rng)
        likelihood = part.model.response.at(part.found.likelihood, rows.frame, {})
        for k, t in enumerate(at):
            out[which, :, k] = rows.full(1.0 - likelihood.cdf(t, eta)).T
    return at, out, rows.index


def survival_frame(index: Any, times: np.ndarray, drawn: np.ndarray, interval: float | None) -> pd.DataFrame:
    """Draws (size, rows, times) of P(T > t): their mean, with lower and upper ends where an interval is asked for."""
    import pandas as pd

    columns = pd.Index(times, name="time")
    each = {"mean": drawn.mean(axis=0)}
    if interval is not None:
        each["lower"], each["upper"] = np.quantile(drawn, interval_ends("survival", interval), axis=0)
    frames = {name: pd.DataFrame(values, index, columns) for name, values in each.items()}
    return frames["mean"] if interval is None else pd.concat(frames, axis=1)


def average_effect(
    fit: FitTables, name: str, new: Table, kind: str, step: float | None, size: int | None, interval: float
) -> pd.DataFrame:
    """Of a number its slope, or what ``step`` more of it does; of a factor each level against the first."""
    frame = fit.model.frame if new is None else read_frame("average_effect", new, "new").reset_index(drop=True)
    if name not in fit.model.covariates:
        known = ", ".join(repr(str(column)) for column in fit.model.covariates)
        raise problem("average_effect", f"{name!r} is no covariate of the model", f"one of {known}")
    if _only_groups(fit, name):
        advice = "Its levels are in fit.effects, and fit.contrast compares any two rows."
        raise problem("average_effect", f"{name!r} says which group a row has", "a number or a factor", advice)
    step = None if step is None else scalar("average_effect", "step", step)
    column = used("average_effect", frame, [name])[name]
    kinds, per = DataColumn("average_effect", name, column), 1.0
    if kinds.kind is Kind.NUMBERS and name not in fit.model.fixed.expression.factors:
        seen = column.dropna()
        near = _STEP * ((float(np.std(seen)) if len(seen) else 0.0) or 1.0)
        values = [column - near, column + near] if step is None else [column, column + step]
        labels, per = [name if step is None else f"{name} + {step:g}"], 2.0 * near if step is None else 1.0
    elif step is not None:
        raise problem("average_effect", f"step = {step:g} of {name!r}, which has levels", "step=None")
    else:
        values = _levels(fit, name, kinds)
        labels = [f"{name}[{level} - {values[0]}]" for level in values[1:]]
    changed = [frame.assign(**{name: value}) for value in values]
    if kind == "link" and size is None:
        exact = _average_of_eta(fit, changed, per, interval, labels)
        if exact is not None:
            return exact
    n = _size(len(values) * len(frame)) if size is None else count("average_effect", "size", size, 2)
    parts = _latents(fit, n)
    base, *others = _average(fit, changed, parts, kind)
    return _of_draws(labels, np.array([other - base for other in others]) / per, interval)


def _average_of_eta(
    fit: FitTables, changed: Sequence[pd.DataFrame], per: float, interval: float, labels: list[str]
) -> pd.DataFrame | None:
    """The average of eta at other tables above that at the first: linear in the latents; None where groups are new."""
    base, *others = [read_rows(fit, table) for table in changed]
    if base.unseen or any(where.unseen for where in others) or not base.there.any():
        return None

    def apart(view: FitTables) -> NewRows:
        each = [(where if view is fit else where.under(view)).new for where in (base, *others)]
        design = sp.csr_array(np.stack([np.asarray(one.design.mean(axis=0)).ravel() for one in each]))
        offset = np.array([np.mean(np.broadcast_to(one.offset, one.design.shape[0])) for one in each])
        first = sp.csr_array(np.tile(design[[0]].toarray(), (len(others), 1)))
        return NewRows(design=(design[1:] - first) / per, offset=(offset[1:] - offset[0]) / per)

    return _of_marginals(labels, marginals(fit, apart), interval)


def _only_groups(fit: FitTables, name: str) -> bool:
    """Whether a column is that of groups or regions, and nothing else in the model."""
    fixed = name in fit.model.fixed.expression.names
    terms = [term for term in fit.model.sum.effects if name in term.columns]
    over = [t for t in terms if name in t.group_columns and (t.of_groups or t.over_regions)]
    return not fixed and bool(over) and len(over) == len(terms)


def _levels(fit: FitTables, name: str, column: DataColumn) -> list[Any]:
    if column.kind is Kind.BOOLEANS:
        return [False, True]
    if name in fit.model.fixed.expression.factors:
        return list(fit.model.fixed.expression.factors[name])
    advice = "A term over levels is in fit.effects, and fit.contrast compares any two rows."
    raise problem("average_effect", f"{name!r} is neither a number nor a factor of the fixed part", "one", advice)


def _average(fit: FitTables, changed: Sequence[pd.DataFrame], parts: Sequence[_Part], kind: str) -> np.ndarray:
    """The average over the rows of several tables, (tables, size): drawn together, points near one another being next
    to the same.
    """
    import pandas as pd

    size = sum(part.which.size for part in parts)
    block, total, n = max(1, _CELLS // size // len(changed)), np.zeros((len(changed), size)), 0
    for start in range(0, len(changed[0]), block):
        each = [one.iloc[start : start + block] for one in changed]
        where = read_rows(fit, pd.concat(each, ignore_index=True))
        if where.there.any():
            total += _drawn(where, parts, kind).reshape(len(changed), -1, size).sum(axis=1)
            n += int(where.there.sum()) // len(changed)
    if n == 0:
        raise problem("average_effect", "no row of new has all covariates", "at least one")
    return np.asarray(total / n)


def _of_marginals(index: Any, found: Marginals, interval: float) -> pd.DataFrame:
    interval_ends("FittedModel", interval)
    return marginal_table(None, list(index), found, None, interval).set_axis(index, axis=0)


def _of_draws(index: Any, values: np.ndarray, interval: float) -> pd.DataFrame:
    import pandas as pd

    lower, upper = np.quantile(values, interval_ends("FittedModel", interval), axis=1)
    columns = {"mean": values.mean(axis=1), "sd": values.std(axis=1, ddof=1), "lower": lower, "upper": upper}
    return pd.DataFrame({**columns, "p_above_0": (values > 0.0).mean(axis=1)}, index=pd.Index(index))
