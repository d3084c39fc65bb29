"""Contrasts between rows, and effects of a column averaged over rows.

d/dx E[y]      (E[y | x + h] - E[y | x - h]) / 2h, averaged over the rows, of each joint draw of the latents
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..checks import problem
from ..hyperparameters.integration import Mixture
from ..marginals import Marginals, probabilities
from ..priors.base import NewRows
from ..terms import DataColumn, Kind
from .frames import read_frame, used
from .predictions import Where, again, eta_draws, latent_draws, mean_given, rows_at

if TYPE_CHECKING:
    import pandas as pd

    from .fitted import FittedModel
    from .frames import Table

_STEP = 1e-3  # of a standard deviation of the column
_SIZE = 2000  # draws of a contrast of means
_CELLS = 20_000_000  # numbers of a block of draws


def contrast(fit: FittedModel, first: Table, second: Table, kind: str, interval: float) -> pd.DataFrame:
    """``first`` minus ``second``."""
    first, second = _completed(fit, first, second)
    one, two = rows_at(fit, first), rows_at(fit, second)
    if not (one.there.all() and two.there.all()):
        raise problem("contrast", "a covariate is missing in a row", "all of them in every row")
    sizes = {len(one.index), len(two.index)} - {1}
    if len(sizes) > 1:
        raise problem("contrast", f"{len(one.index)} rows meet {len(two.index)}", "as many, or one")
    n = sizes.pop() if sizes else 1
    index = one.index if len(one.index) == n else two.index
    if kind == "link" and not (one.unseen or two.unseen):
        there = _difference(fit, _repeated(one, n), _repeated(two, n))
        probabilities("FittedModel", interval, "interval")
        ends, none = np.asarray(there.interval(interval)), np.asarray(there.sd) == 0.0
        above = np.where(none & (np.asarray(there.mean) == 0.0), 0.5, 1.0 - np.asarray(there.cdf(0.0)))
        return _frame(index, np.asarray(there.mean), np.asarray(there.sd), ends[:, 0], ends[:, 1], above)
    import pandas as pd

    parts = _latents(fit, _SIZE)
    both = rows_at(fit, pd.concat([one.frame, two.frame], ignore_index=True))  # a group unseen in both is one group
    drawn, m = _drawn(both, parts, kind), len(one.index)
    return _of_draws(index, np.broadcast_to(drawn[:m] - drawn[m:], (n, _SIZE)), interval)


def _difference(fit: FittedModel, one: Where, two: Where) -> Marginals:
    """The marginals of eta of one set of rows less that of another."""

    def at(part: FittedModel, a: NewRows, b: NewRows) -> Marginals:
        apart = replace(a, design=a.design - b.design, offset=a.offset - b.offset, extra_variance=0.0)
        return part.posterior.at(**apart)

    if fit.integrated is None:
        return at(fit, one.new, two.new)
    views = [view for view, _ in fit._parts(1, np.random.default_rng(0))]
    return Mixture(fit.integrated.weights, [at(v, again(v, one).new, again(v, two).new) for v in views])


def _completed(fit: FittedModel, first: Table, second: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both, with the columns that neither names at a typical value: the mean of numbers, the most frequent level."""
    model = fit.model
    frames = read_frame("contrast", first, "first"), read_frame("contrast", second, "second")
    named = {name for frame in frames for name in frame.columns}
    levels = {
        source for term in model.sum.effects for column in term.claims for source in model.compiled.sources_of(column)
    }
    same: dict[str, Any] = {}
    for name in (name for name in model.covariates if name not in named):
        column = model.frame[name]
        number = getattr(column.dtype, "kind", "O") in "iuf" and name not in {*levels, *model.fixed.expression.factors}
        same[str(name)] = float(column.mean()) if number else column.mode().iloc[0]
    one, two = (frame.assign(**same) for frame in frames)
    return one, two


def _repeated(where: Where, n: int) -> Where:
    if len(where.index) == n:
        return where
    at = np.zeros(n, dtype=int)
    return replace(where, new=replace(where.new, design=where.new.design[at], offset=where.new.offset[at]))


class _Part(NamedTuple):
    """Draws of the latents (n, L) of a fit at one theta, and which of all draws they are."""

    fit: FittedModel
    which: np.ndarray
    latents: np.ndarray


def _latents(fit: FittedModel, size: int) -> list[_Part]:
    rng = np.random.default_rng(0)
    return [_Part(part, some, latent_draws(part, some.size, rng)) for part, some in fit._parts(size, rng) if some.size]


def _drawn(where: Where, parts: Sequence[_Part], kind: str) -> np.ndarray:
    """Draws (M, size) of eta or of E[y], at exposure 1 and one trial."""
    rng, size = np.random.default_rng(1), sum(part.which.size for part in parts)
    out = np.empty((len(where.frame), size))
    for fit, which, latents in parts:
        eta = eta_draws(where if len(parts) == 1 else again(fit, where), latents, rng)
        if kind != "link":
            unit = fit.model.response.at(fit.found.likelihood, where.frame, dict.fromkeys(("exposure", "trials"), 1.0))
            eta = mean_given(fit, unit, eta)
        out[:, which] = eta
    return out


def average_effect(fit: FittedModel, name: str, new: Table, kind: str, size: int, interval: float) -> pd.DataFrame:
    """Of a number its slope, of a factor each level against the first."""
    frame = fit.model.frame if new is None else read_frame("average_effect", new, "new").reset_index(drop=True)
    if name not in fit.model.covariates:
        known = ", ".join(repr(str(column)) for column in fit.model.covariates)
        raise problem("average_effect", f"{name!r} is no covariate of the model", f"one of {known}")
    if _only_groups(fit, name):
        advice = "Its levels are in fit.effects, and fit.contrast compares any two rows."
        raise problem("average_effect", f"{name!r} says which group a row has", "a number or a factor", advice)
    column = used("average_effect", frame, [name])[name]
    parts = _latents(fit, size)
    kinds = DataColumn("average_effect", name, column)
    rows: dict[Any, np.ndarray] = {}
    if kinds.kind is Kind.NUMBERS and name not in fit.model.fixed.expression.factors:
        step = _STEP * (float(np.nanstd(column)) or 1.0)
        up, down = _average(fit, frame, name, [column + sign * step for sign in (1.0, -1.0)], parts, kind)
        rows[name] = (up - down) / (2.0 * step)
    else:
        levels = _levels(fit, name, kinds)
        base, *others = _average(fit, frame, name, levels, parts, kind)
        rows = {f"{name}[{level} - {levels[0]}]": other - base for level, other in zip(levels[1:], others, strict=True)}
    return _of_draws(list(rows), np.array(list(rows.values())), interval)


def _only_groups(fit: FittedModel, name: str) -> bool:
    """Whether a column is that of groups or regions, and nothing else in the model."""
    fixed = name in fit.model.fixed.expression.names
    terms = [term for term in fit.model.sum.effects if name in term.columns]
    over = [t for t in terms if name in t.group_columns and (t.of_groups or hasattr(t, "matrix"))]
    return not fixed and bool(over) and len(over) == len(terms)


def _levels(fit: FittedModel, name: str, column: DataColumn) -> list[Any]:
    if column.kind is Kind.BOOLEANS:
        return [False, True]
    if name in fit.model.fixed.expression.factors:
        return list(fit.model.fixed.expression.factors[name])
    advice = "A term over levels is in fit.effects, and fit.contrast compares any two rows."
    raise problem("average_effect", f"{name!r} is neither a number nor a factor of the fixed part", "one", advice)


def _average(
    fit: FittedModel, frame: Any, name: str, values: Sequence[Any], parts: Sequence[_Part], kind: str
) -> np.ndarray:
    """The average over the rows where a column has other values, (values, size): drawn together, points near one
    another being next to the same.
    """
    import pandas as pd

    changed, size = [frame.assign(**{name: value}) for value in values], sum(part.which.size for part in parts)
    block, total, n = max(1, _CELLS // size // len(values)), np.zeros((len(values), size)), 0
    for start in range(0, len(frame), block):
        each = [one.iloc[start : start + block] for one in changed]
        where = rows_at(fit, pd.concat(each, ignore_index=True))
        if not where.there.any():
            raise problem("average_effect", "no row of new has all covariates", "at least one")
        total += _drawn(where, parts, kind).reshape(len(values), -1, size).sum(axis=1)
        n += int(where.there.sum()) // len(values)
    return np.asarray(total / n)


def _of_draws(index: Any, values: np.ndarray, interval: float) -> pd.DataFrame:
    inside = float(probabilities("FittedModel", interval, "interval"))
    lower, upper = np.quantile(values, [0.5 - inside / 2, 0.5 + inside / 2], axis=1)
    return _frame(index, values.mean(axis=1), values.std(axis=1, ddof=1), lower, upper, (values > 0.0).mean(axis=1))


def _frame(index: Any, mean: Any, sd: Any, lower: Any, upper: Any, above: Any) -> pd.DataFrame:
    import pandas as pd

    columns = {"mean": mean, "sd": sd, "lower": lower, "upper": upper, "p_above_0": above}
    return pd.DataFrame(columns, index=pd.Index(index))
