"""Priors that a user states by name, and the table of all priors.

Coefficients: beta_j ~ N(m_j, s_j^2) per unit of its column. Of the scaled column gamma_j = beta_j scale_j has variance
(s_j scale_j)^2, and its mean is a known part of eta, (x_j - centre_j) m_j.

Parameters of the likelihood, by the names that tables print:

    "noise"                     sd or scale of noise about eta; its prior is centred at the start of learning
    "size", "shape", "power", "precision", "dispersion", "df", "probability"
    "cutpoints"                 {"first": ..., "step 1": ...}
    "dispersion", "zero"        {column: ...}, of the formulas of these names

Every default is a weak, proper normal density on the scale of learning: a log, a logit, a coefficient. ``fixed_sd``
also scales the priors of coefficients in ``dispersion=`` and ``zero=`` and of the first cutpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import Refusal, problem
from ..hyperparameters.priors import PC, Density, Normal, PCDeviation, ScalarPrior, Scale, described
from ..likelihoods.base import Likelihood
from ..likelihoods.parameters import ThetaEntry
from ..terms import SumOfTerms, Term

if TYPE_CHECKING:
    import pandas as pd

    from .model import Model

FLAT = 100.0  # times the default sd: a flat prior is replaced by this one, since an improper one has no evidence
_MIDDLE = 1.96  # sds on either side that hold 95 % of a normal
_USUAL = 10.0  # the fixed_sd to which declared widths refer
_BEFORE_OPTIONS = re.compile(r"(\w+\([^()=]+),\w+=(?!=)")


# -- coefficients and terms -----------------------------------------------------------------------
def effect_priors(terms: Sequence[Term], asked: Mapping[str, Any], coefficients: Sequence[str]) -> Any:
    """The priors of special terms for ``SumOfTerms``; a term is named by its text, or by its column if that is
    not a coefficient.
    """
    out = {}
    for key, given in asked.items():
        term = term_named(terms, key)
        if term is not None and not is_coefficient(terms, coefficients, key):
            out[term.name] = given
    return out or "pc"


def is_coefficient(terms: Sequence[Term], coefficients: Sequence[str], key: Any) -> bool:
    """Whether a name is that of a coefficient: x in ``x + s(x)``, whose term is s(x)."""
    return key in coefficients and all(term.name != key for term in terms)


def term_named(terms: Sequence[Term], key: Any) -> Term | None:
    """The term with this text, ignoring blanks; else the only one over this column, or with this text less options."""
    text = without_blanks(key)
    for term in terms:
        if term.name == key or without_blanks(term.name) == text:
            return term
    over = terms_over(terms, key) or [term for term in terms if without_options(term.name) == text]
    return over[0] if len(over) == 1 else None


def without_blanks(name: Any) -> str:
    """The text of a term as it is compared."""
    return "".join(str(name).split())


def without_options(name: Any) -> str:
    """The text of a term without its options: matern(x,y) of matern(x,y,nu=1)."""
    text = without_blanks(name)
    before = _BEFORE_OPTIONS.match(text)
    return text if before is None else f"{before[1]})"


def terms_over(terms: Sequence[Term], column: Any) -> list[Term]:
    """The terms whose levels are those of a column."""
    return [term for term in terms if term.column == column or term.claims == (column,)]


def ambiguous(where: str, key: Any, names: Sequence[Any]) -> Refusal:
    """The error for a name that several terms have."""
    return problem(where, f"{key!r} is {len(names)} terms", f"one of {', '.join(repr(str(name)) for name in names)}")


def spelled_out(asked: Mapping[str, Any], stands_for: Callable[[Any], list[Any]]) -> dict[str, Any]:
    """Priors by the names of terms; those of a text for several terms, such as (1|a/b), come first."""
    each = {key: stands_for(key) for key in asked}
    many = {name: asked[key] for key, names in each.items() if len(names) > 1 for name in names}
    return many | {key: given for key, given in asked.items() if len(each[key]) == 1}


class FixedPriors:
    """The priors of the coefficients, stated ones and defaults.

    None for a coefficient is flat: a normal a hundred times as wide as the default, so that there is an evidence.

    Attributes
    ----------
    variance : array (intercept + p,)
        Prior variances of (c, gamma), the latents behind the fixed effects.
    mean : array (intercept + p,)
        Prior means of the coefficients in the user's units; 0 by default, and for the intercept (see ``level``).
    stated : dict
        Name of a coefficient -> its Normal; that of the intercept refers to the mean of every column.
    flat : set
        The coefficients whose prior is flat.

    ``elsewhere`` are names that another part of the model has.
    """

    def __init__(
        self, sum_: SumOfTerms, asked: Mapping[str, Any], terms: Sequence[Any], elsewhere: Sequence[str] = ()
    ) -> None:
        names = [*(["Intercept"] if sum_.intercept else []), *sum_.fixed_names]
        own = int(sum_.intercept)
        self.variance = np.full(len(names), float(sum_.fixed_variance))
        self.mean, self.columns, self.own = np.zeros(len(names)), sum_.columns, own
        self.stated: dict[str, Normal] = {}
        self.flat: set[str] = set()
        for key, given in asked.items():
            of_term = term_named(sum_.effects, key) is not None and not is_coefficient(sum_.effects, names, key)
            if of_term or (key in elsewhere and key not in names):
                continue
            over = terms_over(sum_.effects, key)
            if key not in names and over:
                raise ambiguous("Model: priors", key, [term.name for term in over])
            if key not in names:
                raise problem(
                    "Model", f"priors name {key!r}", f"one of {list(dict.fromkeys([*names, *terms, *elsewhere]))}"
                )
            j = names.index(key)
            if isinstance(given, Mapping) and set(given) == {self.part(j)}:
                given = given[self.part(j)]
            if given is None:
                self.variance[j] *= FLAT**2
                self.flat.add(key)
                continue
            if not isinstance(given, Normal):
                got = f"the prior of the coefficient {key!r} is {given!r}"
                expected = "fenchel.hyperparameters.Normal(mean, sd), per unit of its column, or None for a flat one"
                raise problem("Model", got, expected)
            scale = 1.0 if j < own else float(sum_.columns.scale[j - own])
            self.variance[j], self.mean[j] = (given.sd * scale) ** 2, given.mean if j >= own else 0.0
            self.stated[key] = given

    def part(self, j: int) -> str:
        """The quantity that the prior of a coefficient refers to, for tables."""
        return "at the mean of the columns" if j < self.own else "coefficient"

    def offset(self, X: np.ndarray) -> np.ndarray:
        """The part of eta (N,) that comes from prior means of the coefficients."""
        given = self.mean[self.own :]
        return (X - self.columns.centre - self.columns.rest) @ given if given.any() else np.zeros(X.shape[0])

    def known(self, design: Any) -> np.ndarray:
        """The same at rows of a design over all latents, of which the coefficients are the last."""
        given = self.mean[self.own :] * self.columns.scale
        return np.asarray(design[:, design.shape[1] - given.size :] @ given)


# -- parameters of the likelihood -----------------------------------------------------------------
class OwnPriors:
    """The priors of the parameters of the likelihood, stated ones and defaults.

    Parameters
    ----------
    likelihood : Likelihood
    y, weights : arrays (N,)
        The data, which determine bounds of the parameters.
    asked : mapping
        All stated priors, also those of coefficients and terms.
    fixed_sd : float
    columns : names of columns and terms, which take precedence over equal names of parameters

    Attributes
    ----------
    likelihood : Likelihood, with the priors
    bounds : array (n, 2), of its theta
    names : list of str
        The names that ``asked`` may use, one for each entry of the likelihood's theta.
    stated : set of str
        The names that ``asked`` uses.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        y: np.ndarray,
        weights: np.ndarray | None,
        asked: Mapping[str, Any],
        fixed_sd: float,
        columns: Collection[Any],
    ) -> None:
        entries = likelihood.entries()
        self.names = [f"{likelihood.name} {e.word}" if e.word in columns else e.word for e in entries]
        self.stated = {key for key in asked if key in self.names}
        priors: list[Density | None] = [e.prior or _weak(e, fixed_sd) for e in entries]
        for key in self.stated:
            mine = [(i, e) for i, e in enumerate(entries) if self.names[i] == key]
            for i, given in _each(key, asked[key], mine):
                priors[i] = _stated(key, entries[i], given)
        self.likelihood = likelihood.with_priors(priors) if entries else likelihood
        self.bounds = likelihood.theta_bounds(y, weights) if entries else np.zeros((0, 2))

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """Rows of the table of priors: name, parameter, prior in words and its central 95 % interval."""
        out = []
        for name, entry, (low, high) in zip(self.names, self.likelihood.entries(), self.bounds, strict=True):
            out.append((name, entry.name, *described(entry.prior, scale_of(entry), (float(low), float(high)))))
        return out


def _each(key: str, given: Any, entries: Sequence[tuple[int, ThetaEntry]]) -> list[tuple[int, Any]]:
    """The stated prior of each entry of a name."""
    names = [e.name for _, e in entries]
    if given is None:
        return [(i, None) for i, _ in entries]
    if not isinstance(given, Mapping):
        if len(entries) > 1:
            expected = f"{{name: prior}} with names of {', '.join(map(repr, names))}, or None for flat ones"
            raise problem("Model", f"priors[{key!r}] is {given!r}", expected)
        return [(entries[0][0], given)]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise problem("Model", f"priors[{key!r}] names {unknown!r}", ", ".join(map(repr, names)))
    return [(i, given[e.name]) for i, e in entries if e.name in given]


def _stated(key: str, entry: ThetaEntry, given: Any) -> Density | None:
    """The stated density of theta; a normal refers to the quantity that the table names."""
    if given is None:
        return None
    if isinstance(given, ScalarPrior):
        return given.stated_on(scale_of(entry))
    if entry.size and isinstance(given, PC) and given.sd is not None:
        return PCDeviation(given.sd, given.alpha, entry.factor)
    pc = f"PC(sd=u, alpha=a) for P({entry.name} > u) = a, " if entry.size else ""
    got = f"the prior of {key!r}{'' if entry.name == key else f', {entry.name}'} is {given!r}"
    raise problem("Model", got, f"{pc}Normal(mean, sd) of {entry.label}, or None for a flat one")


def _weak(entry: ThetaEntry, fixed_sd: float) -> Normal:
    mean, sd = entry.weak
    return Normal(mean, sd * fixed_sd / _USUAL if entry.wide else sd)


def scale_of(entry: ThetaEntry) -> Scale:
    """The scale on which an entry is shown."""
    return Scale(entry.name, entry.label, entry.value, 0.0, entry.factor)


# -- every prior of a model ------------------------------------------------------------------------------
def prior_table(model: Model) -> pd.DataFrame:
    """Table of all priors with their central 95 % intervals; ``priors={name: {parameter: prior}}`` changes a row."""
    import pandas as pd

    from .tables import names_of

    rows, given = [], model.coefficient_priors
    for j, name in enumerate(names_of(model)):
        own = int(model.sum.intercept)
        sd = float(np.sqrt(given.variance[j]))
        if name in given.stated:
            mean, sd = given.stated[name].mean, given.stated[name].sd
            text = f"N({mean:.4g}, {sd:.4g}^2)"
        elif j < own:
            mean = round(model.level + model.target.likelihood.reported()[1], 10)
            text = f"N({mean:.4g}, {sd:.4g}^2)"
        else:
            mean, per_sd = 0.0, sd
            sd = sd / float(model.sum.columns.scale[j - own])
            text = f"N(0, {sd:.4g}^2), {per_sd:.4g} for one sd of it"
        text = f"flat: {text}" if name in given.flat else text
        rows.append((name, given.part(j), text, mean - _MIDDLE * sd, mean + _MIDDLE * sd))
    for term in model.sum.effects:
        for h in term.hyperparameters:
            rows.append((str(term.name), h.scale.name, *described(h.prior, h.scale, h.bounds)))
        rows += [(str(term.name), *pair, np.nan, np.nan) for pair in term.stated]
    rows += model.own_priors.rows()
    frame = pd.DataFrame(rows, columns=["name", "parameter", "prior", "lower", "upper"])
    return frame.set_index(["name", "parameter"])
