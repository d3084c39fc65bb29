"""Contrasts between rows, and effects of a column averaged over rows.

d/dx E[y]      (E[y | x + h] - E[y | x - h]) / 2h, averaged over the rows, of each joint draw of the latents
d/dx eta       the same, which is linear in the latents: its marginal is that of one row of a design
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..checks import count, numeric, problem
from ..inputs.frames import read_frame
from ..marginals import Marginals
from ..priors.base import NewRows
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

_STEP = 1e-3  # step of a difference, in standard deviations of the column
_LEAST = 2_000  # least number of draws of E[y]; the error of an end of an interval is then 0.06 sds
_MOST = 20_000  # largest number of draws of E[y]; the error is then 0.02 sds
_DRAWN = 40_000_000  # rows times draws, between these limits
BLOCK = 20_000_000  # numbers in a block of draws


def contrast(
    fit: FitTables, first: Table, second: Table, kind: str, interval: float, without: str | Sequence[str] = ()
) -> pd.DataFrame:
    """Predictions for ``first`` minus those for ``second``, as a table."""
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

    size = number_of_draws(len(one.index) + len(two.index))
    parts = latent_parts(fit, size)
    # one table of both, so that a new group in both is the same group
    both = read_rows(fit, pd.concat([one.frame, two.frame], ignore_index=True), without=without)
    drawn, m = _drawn(both, parts, kind), len(one.index)
    return _of_draws(index, np.broadcast_to(drawn[:m] - drawn[m:], (n, size)), interval)


def number_of_draws(rows: int) -> int:
    """The number of draws of E[y] for this many rows."""
    return int(np.clip(_DRAWN // max(rows, 1), _LEAST, _MOST))


def _difference(fit: FitTables, one: PredictionRows, two: PredictionRows) -> Marginals:
    """Marginals of the difference in eta between two sets of rows."""

    def apart(view: FitTables) -> NewRows:
        a, b = ((where if view is fit else where.under(view)).new for where in (one, two))
        return replace(a, design=a.design - b.design, offset=a.offset - b.offset, extra_variance=0.0)

    return marginals(fit, apart)


def _completed(fit: FitTables, first: Table, second: Table) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables, with columns that neither has at typical values."""
    frames = read_frame("contrast", first, "first"), read_frame("contrast", second, "second")
    named = {name for frame in frames for name in frame.columns}
    one, two = (typical_rows(fit, frame, named) for frame in frames)
    return one, two


def typical_rows(fit: FitTables, frame: pd.DataFrame, named: Collection[Any] = ()) -> pd.DataFrame:
    """Rows whose columns outside of ``named`` are typical: the mean of numbers, the most frequent level."""
    model, named = fit.model, named or set(frame.columns)
    over = [term for term in model.sum.effects if term.over_levels]
    levels = {source for term in over for column in term.claims for source in model.compiled.sources_of(column)}
    (rows, seen), same = model.reduction.data_rows(model), dict[str, Any]()
    for name in (name for name in model.covariates if name not in named):
        number = rows[name].dtype.kind in "iuf" and name not in {*levels, *model.fixed.expression.factors}
        same[str(name)] = float(np.average(rows[name], weights=seen)) if number else rows[name].mode().iloc[0]
    return frame.assign(**same)


def repeated_variance(x: np.ndarray, often: np.ndarray) -> float:
    """The variance of numbers (N,), each of them ``often`` (N,) times; 0 of one number."""
    n, away = max(often.sum(), float(x.size)), x - np.average(x, weights=often)
    return float(np.average(away**2, weights=often)) * n / max(n - 1.0, 1.0)


def _repeated(where: PredictionRows, n: int) -> PredictionRows:
    if len(where.index) == n:
        return where
    at = np.zeros(n, dtype=int)
    return replace(where, new=replace(where.new, design=where.new.design[at], offset=where.new.offset[at]))


class LatentDraws(NamedTuple):
    """Draws (n, L) of the latents of a fit at one theta, and their places among all draws."""

    fit: FitTables
    which: np.ndarray
    latents: np.ndarray


def latent_parts(fit: FitTables, size: int) -> list[LatentDraws]:
    rng = np.random.default_rng(0)
    each = shares(fit, size, rng)
    return [LatentDraws(part, which, latent_draws(part, which.size, rng)) for part, which in each]


def _drawn(where: PredictionRows, parts: Sequence[LatentDraws], kind: str) -> np.ndarray:
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
    fit: FitTables, new: Table, times: Any, size: int, rng: Any, options: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Times (T,), joint draws (size, M, T) of P(T > t) of new rows, and their index."""
    at = np.atleast_1d(numeric("survival", "times", times))
    if not fit.likelihood.durations:
        got = f"the family is {fit.likelihood.word or fit.likelihood.name!r}"
        raise problem("survival", got, 'family="weibull", "exponential" or "cox"')
    if at.ndim > 1 or not (at >= 0.0).all():
        raise problem("survival", f"times = {times!r}", "one time or several, each 0 or above")
    rows, rng = read_rows(fit, new, **options), np.random.default_rng(rng)
    out = np.empty((count("survival", "size", size, 2), rows.there.size, at.size))
    for part, which in shares(fit, len(out), rng):
        eta = eta_draws(rows.under(part), latent_draws(part, which.size, rng), rng)
        likelihood = part.model.response.at(part.found.likelihood, rows.frame, {})
        for k, t in enumerate(at):
            out[which, :, k] = rows.full(1.0 - likelihood.cdf(t, eta)).T
    return at, out, rows.index


def survival_frame(index: Any, times: np.ndarray, drawn: np.ndarray, interval: float | None) -> pd.DataFrame:
    """Table of draws (size, rows, times) of P(T > t): their mean, and with ``interval`` lower and upper ends."""
    import pandas as pd

    columns = pd.Index(times, name="time")
    each = {"mean": drawn.mean(axis=0)}
    if interval is not None:
        each["lower"], each["upper"] = np.quantile(drawn, interval_ends("survival", interval), axis=0)
    frames = {name: pd.DataFrame(values, index, columns) for name, values in each.items()}
    return frames["mean"] if interval is None else pd.concat(frames, axis=1)


def _of_marginals(index: Any, result: Marginals, interval: float) -> pd.DataFrame:
    interval_ends("FittedModel", interval)
    return marginal_table(None, list(index), result, None, interval).set_axis(index, axis=0)


def _of_draws(index: Any, values: np.ndarray, interval: float) -> pd.DataFrame:
    import pandas as pd

    lower, upper = np.quantile(values, interval_ends("FittedModel", interval), axis=1)
    columns = {"mean": values.mean(axis=1), "sd": values.std(axis=1, ddof=1), "lower": lower, "upper": upper}
    return pd.DataFrame({**columns, "p_above_0": (values > 0.0).mean(axis=1)}, index=pd.Index(index))
