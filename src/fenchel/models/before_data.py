"""Simulation before data are collected: data sets with known parameters, and the power of a design.

    b, theta as stated,  z ~ p(z | theta),  y ~ p(y | z, theta)
    power = P(the interval of an effect leaves out 0)                 over such data sets, each fitted

y may be missing in every row, if there are no data yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.optimize import least_squares

from ..checks import choice, count, instance, number, problem, scalar
from ..likelihoods.base import Likelihood
from ..tasks import Jobs, run_tasks
from . import tables
from .fixed import reported_shift
from .prior_draws import draw_data, over_data, prior_at, prior_predictive, refuse_reduced
from .reference_grid import listed
from .residuals import is_censored

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model

_NEAR = 1e-6  # relative tolerance with which stated hyperparameters must be reached


class MakesData:
    """The methods of ``Model`` that draw data sets, from the priors or from known parameters."""

    def prior_predictive(self, n: int = 100, rng: Any = 0) -> np.ndarray:
        """Draw n data sets (n, N) from the priors: what the model expects before it has seen y.

        Every hyperparameter needs a proper prior. Parameters of the likelihood without a stated prior are drawn
        from a normal one of sd 0.5 on the scale of theta about their start. Default priors of coefficients
        are wide (``fixed_sd=10``), and such data sets are then implausible, which this method shows.

        Examples
        --------
        >>> import numpy as np, pandas as pd, fenchel
        >>> plan = pd.DataFrame({"x": np.linspace(-1, 1, 30), "y": np.nan})
        >>> model = fenchel.Model("y ~ x", plan, "poisson", fixed_sd=1)
        >>> model.prior_predictive(5).shape
        (5, 30)
        """
        return prior_predictive(self, n, rng)  # type: ignore[arg-type]

    def simulate(
        self, coefficients: Mapping[str, float], hyperparameters: Any = None, size: int = 1, rng: Any = 0
    ) -> np.ndarray:
        """Draw data sets (size, N) with known parameters; the effects of terms are drawn for each.

        Parameters
        ----------
        coefficients : mapping
            Values by the names of ``fit.coefficients``: per unit of each column; the intercept is at 0 of every column.
        hyperparameters : mapping, optional
            Values by the names of ``fit.hyperparameters``: {"(1|g)": {"sd": 0.5}, "noise": {"sd": 1.0}}, or a number
            for a term with one parameter.
        size : int

        Examples
        --------
        >>> import numpy as np, pandas as pd, fenchel
        >>> plan = pd.DataFrame({"arm": [0, 1] * 20, "site": np.repeat(np.arange(8), 5), "y": np.nan})
        >>> model = fenchel.Model("y ~ arm + (1|site)", plan, "poisson")
        >>> y = model.simulate({"Intercept": 1.0, "arm": 0.5}, {"(1|site)": {"sd": 0.3}}, size=3)
        >>> y.shape, bool((y >= 0).all())
        ((3, 40), True)
        """
        return simulate(self, coefficients, hyperparameters, size, rng)  # type: ignore[arg-type]

    def with_response(self, y: Any) -> Self:
        """The same model with another y, one value for each row of the data."""
        model: Any = self
        _, given, _ = model.__dict__["_arguments"]
        if model.response.expression is not None:
            got = f"the response {model.response.name!r} is computed"
            raise problem("with_response", got, "a response that is one column")
        y = np.asarray(y)
        if y.shape != model.data_index.shape:
            raise problem("with_response", f"y of shape {y.shape}", f"one value a row, {model.data_index.shape}")
        return type(self)(**{**given, "data": given["data"].assign(**{model.response.name: y})})

    def _repr_html_(self) -> str:
        """For notebooks: the formula and the model in words."""
        from .summaries import described

        model: Any = self
        items = "".join(f"<li>{escape(line)}</li>" for line in described(model))
        return f"<code>{escape(model.formula)}</code><ul>{items}</ul>"


# -- known parameters ---------------------------------------------------------------------------------------
class _Described(NamedTuple):
    """The part of a fit that ``tables.described_theta`` uses, for a model that is not fitted."""

    model: Model
    found: Any
    shift: float = 0.0


class _Found(NamedTuple):
    likelihood: Likelihood


@dataclass(frozen=True)
class KnownParameters:
    """Known coefficients and hyperparameters, converted to latents and theta."""

    fixed: np.ndarray
    theta: np.ndarray

    @classmethod
    def of(cls, where: str, model: Model, coefficients: Mapping[str, Any], hyperparameters: Any) -> KnownParameters:
        """Convert values in the user's units, all of which must be stated."""
        refuse_reduced(where, model)
        given: dict[Any, Any] = {}
        for key, value in {} if hyperparameters is None else dict(hyperparameters).items():
            match key:
                case (term, parameter):  # of a column of fit.hyperparameters
                    given.setdefault(term, {})[parameter] = value
                case _:
                    given[key] = value
        b, view = _coefficients(where, model, dict(coefficients)), _Described(model, _Found(model.target.likelihood))
        start = np.concatenate([model.sum.family().theta, model.target.likelihood.theta])
        row, shift = reported_shift(view)  # type: ignore[arg-type]
        if row is not None:  # of cutpoints, which are stated at 0 of every column
            view = view._replace(shift=shift + float(row[row.size - b.size :] @ _fixed_latents(view, b, start)))
        theta = _theta(where, view, given, start)
        return cls(_fixed_latents(view, b, theta), theta)

    def datasets(self, where: str, model: Model, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """A data set (n, N) by each generator, all from one prior of the latents."""
        likelihood = model.target.likelihood
        prior = prior_at(model, likelihood, self.theta)
        each = [draw_data(where, model, likelihood, self.theta, rng, self.fixed, prior).y for rng in rngs]
        return over_data(model, np.stack(each))


def _coefficients(where: str, model: Model, given: Mapping[str, Any]) -> np.ndarray:
    """The stated coefficients in order."""
    names = tables.names_of(model)
    if set(given) != set(names):
        wanted = ", ".join(f"{name!r}: ..." for name in names)
        odd = [name for name in given if name not in names] or [name for name in names if name not in given]
        raise problem(where, f"coefficients: {odd[0]!r} is unknown or missing", f"coefficients={{{wanted}}}")
    return np.array([scalar(where, f"coefficients[{name!r}]", given[name]) for name in names])


def _fixed_latents(view: Any, b: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The latents of coefficients at theta, which may set the unit of y."""
    rows = tables.coefficient_rows(view, theta[None])
    A = rows.design.toarray()[:, rows.design.shape[1] - b.size :]
    return np.linalg.solve(A, b - np.asarray(rows.offset)[0]) if b.size else b


def _theta(where: str, view: Any, given: dict[Any, Any], start: np.ndarray) -> np.ndarray:
    """The theta at which tables show the stated values, by least squares."""
    known = [(term, parameter) for term, parameter, _ in tables.described_theta(view, start)]
    wanted = {pair: _stated(where, known, given, pair) for pair in known}
    for key in given:
        if key not in {term for term, _ in known}:
            raise problem(where, f"hyperparameters name {key!r}", f"names of {_template(known)}")
    target = np.array([wanted[pair] for pair in known])
    if not target.size:
        return start

    def off(theta: np.ndarray) -> np.ndarray:
        values = np.array([value for _, _, value in tables.described_theta(view, theta)])
        logs = (target > 0.0) & (values > 0.0)
        return np.where(logs, np.log(np.where(logs, values, 1.0) / np.where(logs, target, 1.0)), values - target)

    result = least_squares(off, start, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    if np.abs(off(result.x)).max() > _NEAR:
        worst = known[int(np.argmax(np.abs(off(result.x))))]
        raise problem(where, f"{worst[1]} of {worst[0]} = {number(wanted[worst])} cannot be", "a value that can")
    return np.asarray(result.x)


def _stated(where: str, known: list[tuple[str, str]], given: Mapping[Any, Any], pair: tuple[str, str]) -> float:
    term, parameter = pair
    match given.get(term):
        case {**several}:
            value = several.get(parameter)
        case one:
            value = one if sum(name == term for name, _ in known) == 1 else None
    if value is None:
        raise problem(where, f"{parameter} of {term} is not stated", f"hyperparameters={_template(known)}")
    return scalar(where, f"hyperparameters[{term!r}]", value)


def _template(known: list[tuple[str, str]]) -> str:
    """A template of the values that must be stated."""
    terms = dict.fromkeys(term for term, _ in known)
    each = [f"{t!r}: {{{', '.join(f'{p!r}: ...' for u, p in known if u == t)}}}" for t in terms]
    return f"{{{', '.join(each)}}}"


def simulate(model: Model, coefficients: Any, hyperparameters: Any, size: int, rng: Any) -> np.ndarray:
    """Data sets (size, N) of known parameters."""
    size, rng = count("simulate", "size", size, 1), np.random.default_rng(rng)
    known = KnownParameters.of("simulate", model, coefficients, hyperparameters)
    return known.datasets("simulate", model, [rng] * size)


# -- power --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class Power:
    """What ``power`` found.

    Attributes
    ----------
    table : pandas frame, a row for each coefficient that was asked about
        truth; power, the share of intervals that leave out 0, with its Monte Carlo error mc_error; coverage, the share
        that holds the truth; bias of the estimate; sd of the estimates; width of the intervals; type_s, the share of
        intervals beyond 0 that lie on the wrong side; type_m, how many times too large estimates beyond 0 are.
    fits : pandas frame (data sets x coefficients, estimate, conf_low, conf_high)
    converged : bool array
    """

    table: pd.DataFrame
    fits: pd.DataFrame
    converged: np.ndarray

    def __repr__(self) -> str:
        rows = [
            f"{name}: power {row.power:.2f} (+- {2 * row.mc_error:.2f}) where it is {number(row.truth)}"
            for name, row in self.table.iterrows()
        ]
        bad = int((~self.converged).sum())
        tail = f"; {bad} did not converge" if bad else ""
        return "\n".join([*rows, f"by {len(self.converged)} data sets, each fitted{tail}"])


def power(
    model: Model,
    effect: Any = None,
    n: int = 200,
    *,
    coefficients: Mapping[str, float],
    hyperparameters: Mapping[str, Any] | None = None,
    level: float = 0.95,
    accuracy: str = "fast",
    rng: Any = 0,
    n_jobs: Jobs = None,
    progress: bool = False,
) -> Power:
    """How often the interval of an effect leaves out 0, in data sets of known parameters that are made and fitted.

    Parameters
    ----------
    model : Model
        Its rows, terms and priors; its y may be missing in every row, for data that are not there yet.
    effect : str or list of str, optional
        Coefficients that are asked about; default: all but the intercept.
    n : int
        Data sets.
    coefficients, hyperparameters : mapping
        The truth, in the units of ``fit.coefficients`` and ``fit.hyperparameters``: {"Intercept": 0.0, "arm": 0.5} and
        {"(1|site)": {"sd": 0.4}, "noise": {"sd": 1.0}}. Every one is stated. Columns of the frames of a pilot are taken
        as they are: ``pilot.coefficients["mean"]``, ``pilot.hyperparameters["value"]``.
    level : float
        Of the intervals.
    accuracy : "fast", "auto" or "high"
        As in ``Model.fit``.
    n_jobs : int, None or Dask client
        Who fits, side by side (``fenchel.tasks``).
    progress : bool

    Returns
    -------
    Power

    Examples
    --------
    >>> import numpy as np, pandas as pd, fenchel
    >>> plan = pd.DataFrame({"arm": np.tile([0, 1], 40), "site": np.repeat(np.arange(10), 8), "y": np.nan})
    >>> model = fenchel.Model("y ~ arm + (1|site)", plan, "gaussian")
    >>> truth = {"coefficients": {"Intercept": 0.0, "arm": 1.0}, "hyperparameters": {"(1|site)": 0.5, "noise": 1.0}}
    >>> found = fenchel.power(model, "arm", n=20, **truth)
    >>> list(found.table.columns)
    ['truth', 'power', 'mc_error', 'coverage', 'bias', 'sd', 'width', 'type_s', 'type_m']
    >>> bool(found.table.power["arm"] > 0.8)
    True
    """
    from .model import Model

    instance("power", "model", model, Model, 'Model("y ~ arm + (1|site)", data)')
    n, level = count("power", "n", n, 10), scalar("power", "level", level, 0.0, 1.0)
    choice("power", "accuracy", accuracy, ("fast", "auto", "high"))
    names = [name for name in tables.names_of(model) if name != tables.INTERCEPT] if effect is None else listed(effect)
    for name in names:
        choice("power", "effect", name, tuple(tables.names_of(model)))
    known = KnownParameters.of("power", model, coefficients, hyperparameters)
    if is_censored(model.target.likelihood):
        got = "durations of which some had not ended, or are known between two ends"
        raise problem("power", got, "an event of 1 in every row", "Durations are drawn to their end.")
    seeds = np.random.default_rng(rng).integers(0, 2**63, n).tolist()
    made = known.datasets("power", model, [np.random.default_rng(seed) for seed in seeds])
    shared = (model, names, level, accuracy)
    result = run_tasks(_one_fit, list(made), shared, where="power", n_jobs=n_jobs, progress=progress)
    return _summed([coefficients[name] for name in names], names, result)


def _one_fit(
    shared: tuple[Model, list[str], float, str], y: np.ndarray
) -> tuple[list[tuple[float, float, float]], bool]:
    """Estimate and interval of each effect of one data set."""
    model, names, level, accuracy = shared
    fit = model.with_response(y).fit(accuracy=accuracy)
    table = tables.coefficients(fit, level)
    return [tuple(table.loc[name, ["mean", "lower", "upper"]]) for name in names], fit.converged


def _share_error(hits: int, n: int) -> float:
    """The standard error of a share, as Agresti and Coull have it: above 0 where all or none are hits."""
    p = (hits + 2.0) / (n + 4.0)
    return float(np.sqrt(p * (1.0 - p) / (n + 4.0)))


def _summed(truth: list[float], names: list[str], result: list[tuple[Any, bool]]) -> Power:
    import pandas as pd

    every = np.array([part for part, _ in result])  # data sets, effects, (estimate, low, high)
    rows = {}
    for k, (name, b) in enumerate(zip(names, truth, strict=True)):
        estimate, low, high = every[:, k].T
        beyond = (low > 0.0) | (high < 0.0)
        share = float(beyond.mean())
        wrong = float((np.sign(estimate[beyond]) != np.sign(b)).mean()) if beyond.any() and b else np.nan
        larger = float(np.abs(estimate[beyond]).mean() / abs(b)) if beyond.any() and b else np.nan
        rows[name] = {
            "truth": b,
            "power": share,
            "mc_error": _share_error(int(beyond.sum()), len(every)),
            "coverage": float(((low <= b) & (b <= high)).mean()),
            "bias": float(estimate.mean() - b),
            "sd": float(estimate.std(ddof=1)),
            "width": float((high - low).mean()),
            "type_s": wrong,
            "type_m": larger,
        }
    columns = pd.MultiIndex.from_product([names, ["estimate", "conf_low", "conf_high"]])
    fits = pd.DataFrame(every.reshape(len(every), -1), columns=columns)
    table = pd.DataFrame.from_dict(rows, orient="index")
    return Power(table, fits, np.array([done for _, done in result]))
