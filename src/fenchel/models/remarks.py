"""Remarks on the data and on a fit: sentences for warnings and for the summary.

numbers as text          a column of text in the fixed part reads as numbers, so it is a factor
many levels              a factor has nearly as many levels as there are rows
family                   y looks like labels or counts, and no family was given
columns                  columns that do not vary, or are linear combinations of others
groups                   a single group, a group for every row, or the same groups under two names
response                 y is 0 in every row, or the same label
no variance              the sd of a term ended at its lower bound
no noise                 Gaussian noise ended at its lower bound, because weights repeat rows exactly
unbounded range          the range along a column ended at its upper bound: the process does not vary along it
undetermined             the posterior of a parameter of the likelihood is nearly as wide as its prior
separated                the likelihood does not fall in a direction of the coefficients: only the prior bounds them
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..checks import callers_line, number
from ..files import is_loading
from ..hyperparameters.priors import described, distribution
from ..inputs.fixed_columns import name_list
from ..inputs.frames import is_categorical
from ..inputs.levels import present
from ..likelihoods.noise import Gaussian
from ..terms import IID, Grouped
from .stated_priors import scale_of

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables
    from .model import Model

_LEVELS = 10  # different whole numbers in a column of text up to which they are taken as codes of a factor
_LEVELS_PER_ROW = 0.5  # levels of a factor per row from which a remark is made
_ROWS = 10  # rows from which that remark is made
_COUNT_MEAN = 3.0  # whole numbers with zeros and a mean below this look like counts
_FEW_LEVELS = 10  # different whole numbers up to which y may be ordered levels
_LARGEST = 2_000_000  # cells of the fixed part up to which it is tested for separation
_CHECKED = 10  # coefficients that are tested for separation at most
_DIVERGES = 1e-6  # share of a unit step that a coefficient must be able to go to count as separated
_INFORMED = 1 / 3  # posterior sd over prior sd from which a parameter is called undetermined
_WEAK = 2.5  # prior sd of the effect of one sd of a column from which the prior is weak

_NO_VARIANCE = 0.01  # sd of a term under a flat prior, relative to the scale of y, below which there is no variance


class Remark(str):
    """A sentence with a topic (``name``) and a severity: 3, results may be wrong; 2, the data determine little; 1, a
    note."""

    name: str
    severity: int

    def __new__(cls, text: str, name: str, severity: int = 2) -> Remark:
        out = super().__new__(cls, text)
        out.name, out.severity = name, severity
        return out


def warn(sentences: Sequence[str], stacklevel: int = 1) -> None:
    """Give all sentences in one warning, at the line that called the library or ``stacklevel`` frames up."""
    if sentences and not is_loading():
        level = max(callers_line(), stacklevel + 1)
        warnings.warn("Model: " + ".\n  ".join(sentences) + ".", UserWarning, stacklevel=level)


# -- the data -----------------------------------------------------------------------------------------------
def of_data(model: Model, family_given: bool) -> list[str]:
    """Remarks on the columns and on y."""
    factors = model.fixed.expression.factors
    single = [name for name, levels in factors.items() if len(levels) < 2]
    single += [str(term.name) for term in model.sum.terms if term.single]
    out = [f"the factor {name!r} has one level, so it has no coefficient" for name in single]
    out += [text for name in factors if (text := _numbers_as_text(model.frame[name], name)) is not None]
    if not out and len(model.frame) >= _ROWS:
        for name, levels in factors.items():
            if len(levels) > _LEVELS_PER_ROW * len(model.frame):
                out.append(
                    f"the factor {name!r} has {len(levels)} levels in {len(model.frame)} rows, and a coefficient for "
                    f"each: (1|{name}) makes groups of them"
                )
    if not family_given:
        out += [text for text in [_likely_family(model)] if text is not None]
    return [*out, *model.sum.columns.complaints(), *of_terms(model), *of_rows(model)]


def of_rows(model: Model) -> list[Remark]:
    """Remarks on groups and on y."""
    groups = [Remark(text, "groups") for text in _of_groups(model)]
    return [*groups, *(Remark(text, "response") for text in _all_the_same(model) + _labels_with_noise(model))]


def of_family(model: Model) -> list[Remark]:
    """A remark on whole numbers that are modelled as Gaussian because no family was given."""
    y = model.target.y[model.target.seen > 0.0]
    if model.family_given or y.size < 2 or not bool((y >= 0.0).all() and (y == np.floor(y)).all()):
        return []
    levels = ', "ordinal" where they are levels' if np.unique(y).size <= _FEW_LEVELS else ""
    doubt = _likely_family(model) or (
        f"the response {model.response.name!r} is whole numbers and the family is gaussian, as none was given: "
        f'family="poisson" or "negative-binomial" where they count something{levels}'
    )
    return [Remark(doubt, "family", 1)]


def of_terms(model: Model) -> list[Remark]:
    """Remarks of the terms on the data, without the baseline of a Cox model, which the user did not state."""
    terms = model.reduction.own_terms(model.sum.terms)
    return [Remark(sentence, str(term.name), 1) for term in terms for sentence in term.remarks(model.sum.terms)]


def _of_groups(model: Model) -> list[str]:
    """Remarks on groups whose variance the data cannot determine."""
    import pandas as pd

    seen, out, levels = model.target.seen > 0.0, [], {}
    frame, codes = model.compiled.extended(model.frame)[seen], {}
    for term in model.sum.effects:
        if type(term) not in (IID, Grouped) or term.column not in frame.columns:
            continue
        codes[term.name], result = pd.factorize(frame[term.column])
        levels[term.name] = len(result)
        if len(result) == 1:
            only = result.tolist()[0]
            out.append(
                f"{term.name} has one group, {only!r}, so its effect cannot be separated from the intercept: drop it"
            )
        elif len(result) == len(frame) and term.by is None and (why := _one_row_each(model)):
            out.append(f"{term.name} has a group for every row, {why}")
    alike = [name for name in codes if 1 < levels[name] < len(frame)]
    for k, name in enumerate(alike):
        for other in alike[:k]:
            by = [next(t for t in model.sum.effects if t.name == each) for each in (name, other)]
            same = levels[name] == levels[other] and np.array_equal(codes[name], codes[other])
            if same and by[0].group_columns != by[1].group_columns:
                out.append(f"{other} and {name} are the same groups under two names: leave one of them out")
    return out


def _one_row_each(model: Model) -> str | None:
    """Why one row per group does not determine their variance; None if it does, as for overdispersed counts."""
    likelihood = model.target.likelihood
    if likelihood.support == "levels":
        return "and one label does not determine a variance: the prior decides"
    if any(np.ndim(p.of(likelihood)) == 0 for p in likelihood.parameters if p.attribute != "probability"):
        return "so its variance can hardly be separated from that of the noise"
    return None


def _all_the_same(model: Model) -> list[str]:
    """A remark if counts are all 0, all trials succeed, or all labels are equal."""
    target, seen = model.target, model.target.seen > 0.0
    y, own = target.y[seen], target.likelihood
    if not own.discrete or y.size < 2:
        return []
    trials = model.row_values("trials")
    full = trials is not None and bool((y == trials[seen]).all())
    if not (full or (y == 0.0).all() or (own.support == "levels" and (y == y[0]).all())):
        return []
    label = 0 if target.labels is None else target.labels[int(y[0])]
    what = "all of its trials" if full else number(label) if target.words is None else repr(str(label))
    return [f"the response {model.response.name!r} is {what} in every row: only the prior bounds its level"]


def _labels_with_noise(model: Model) -> list[str]:
    """A remark if y is 0 or 1 and the family, by its name that of logistic regression, is logistic noise."""
    y = model.target.y[model.target.seen > 0.0]
    if model.target.likelihood.word != "logistic" or y.size < 2 or not np.isin(y, (0.0, 1.0)).all():
        return []
    name = model.response.name
    noise = 'family="logistic" is real numbers with logistic noise. Logistic regression is family="bernoulli"'
    return [f"the response {name!r} is 0 or 1 in every row, and {noise}"]


def _numbers_as_text(column: pd.Series, name: str) -> str | None:
    """A remark on a column of text that reads as numbers, unless it is a few whole numbers, which may be codes."""
    if is_categorical(column) or column.dtype.kind not in "OUT":
        return None
    texts = {value for value in column.tolist() if present(value)}
    if not texts or not all(isinstance(value, str) for value in texts):
        return None
    try:
        numbers = [float(value.replace(",", ".")) for value in texts]
    except ValueError:
        return None
    if len(numbers) <= _LEVELS and all(number == int(number) for number in numbers if np.isfinite(number)):
        return None
    return (
        f"the column {name!r} holds numbers as text, and is a factor with {len(numbers)} levels: convert it with "
        f"pandas.to_numeric, or make it a pandas.Categorical if it is meant as a factor"
    )


def _likely_family(model: Model) -> str | None:
    """A remark if y looks like labels (only 0 and 1) or counts (whole numbers with zeros and a mean below 3)."""
    import pandas as pd

    response, y = model.response, model.target.y
    own: Any = response.values(model.frame)
    seen = y[~np.isnan(y)]
    name, keep = response.name, 'family="gaussian" says that it is meant as a number'
    booleans = pd.Series(own).dtype.kind == "b"
    if booleans or (np.isin(seen, (0.0, 1.0)).all() and seen.size > 1):
        what = "holds booleans" if booleans else "is 0 or 1 in every row"
        return f'the response {name!r} {what} and the family is gaussian by default: family="bernoulli"? {keep}'
    whole = seen.size > 1 and bool((seen >= 0.0).all() and (seen == np.floor(seen)).all())
    if whole and (seen == 0.0).any() and seen.mean() < _COUNT_MEAN:
        counts = f"the response {name!r} looks like counts (whole, with zeros, mean {seen.mean():.2g})"
        return f'{counts} and the family is gaussian by default: family="poisson" or "negative-binomial"? {keep}'
    return None


# -- a fit --------------------------------------------------------------------------------------------------
def warn_of(fit: FitTables) -> None:
    """Warn if a fit did not converge or ended at a bound, and of its remarks that do not concern the data alone."""
    if is_loading():  # the warnings were given when the model was fitted
        return
    if not fit.found.converged:
        warnings.warn(
            f"Model did not converge: {fit.found.status}. Its results are those of the best point reached, and gap "
            "bounds the distance of that from its optimum.",
            ConvergenceWarning,
            stacklevel=callers_line(),
        )
    names = [f"{t.name}: {h.label}" for t in fit.model.sum.effects for h in t.hyperparameters]
    names += fit.found.likelihood.theta_names
    explained = endless(fit)
    held = [f"{names[i]!r} at its {fit.found.at_bounds[i]} bound" for i in fit.found.held if i not in explained]
    if held:
        warnings.warn(
            f"Model ended with {', '.join(held[:3])}, and the evidence still rises beyond it: the value is set by the "
            "bound, not by the data.",
            ConvergenceWarning,
            stacklevel=callers_line(),
        )
    warn(fit.remarks[len(of_terms(fit.model)) :])  # the model has warned of the others
    over = fit.integrated
    if over is not None and over.doubts:
        warnings.warn(f"Model: {'; '.join(over.doubts)}.", UserWarning, stacklevel=callers_line())
    if over is not None and fit.found.converged and not over.converged:
        warnings.warn(f"Model: {over.status}.", ConvergenceWarning, stacklevel=callers_line())


def of_fit(fit: FitTables) -> list[Remark]:
    """Remarks on quantities that the prior decides rather than the data, and of terms on their learned values."""
    thetas = fit.model.sum.thetas(fit.theta)
    own = [Remark(text, str(term.name)) for term, theta in thetas for text in term.remarks_at(theta)]
    bounds = [*_without_variance(fit), *_without_noise(fit), *endless(fit).values()]
    separated = [Remark(text, "separation") for text in _of_separated(_separated(fit))]
    return [*(Remark(text, "variance", 1) for text in bounds), *own, *separated]


def undetermined(fit: FitTables) -> list[Remark]:
    """Remarks on parameters of the likelihood whose prior contributes more than a tenth of the information."""
    model, n = fit.model, fit.theta.size
    entries, bounds, out = model.own_priors.likelihood.entries(), model.own_priors.bounds, []
    if not entries:
        return []
    sds = np.sqrt(np.diag(fit.theta_covariance))[n - len(entries) :]
    for i, (name, entry, sd, ends) in enumerate(zip(model.own_priors.names, entries, sds, bounds, strict=True)):
        at, total = distribution(entry.prior, (float(ends[0]), float(ends[1])))
        middle = (at[1:] + at[:-1]) / 2
        width = np.sqrt(np.cov(middle, aweights=np.diff(total)))
        if n - len(entries) + i not in fit.found.at_bounds and sd < _INFORMED * width:
            continue
        words = described(entry.prior, scale_of(entry), (float(ends[0]), float(ends[1])))[0]
        what = name if name == entry.name else f"{name}, {entry.name}"
        text = f"the data hardly determine {what!r}: its interval is largely that of its prior, {words}"
        out.append(Remark(text, "prior"))
    return out


def _without_variance(fit: FitTables) -> list[str]:
    """Remarks on terms whose sd ended at its lower bound, or close to 0 under a flat prior."""
    small, where = _NO_VARIANCE * fit.model.target.scale, {}
    entries = [(term, h) for term in fit.model.sum.effects for h in term.hyperparameters]
    for i, (term, h) in enumerate(entries):
        if h.size is None:
            continue
        if fit.found.at_bounds.get(i) == "lower" and term.levels is not None:
            where[term.name] = "at its lower bound"
        elif h.prior is None and term.of_groups and h.scale.value(float(fit.theta[i])) < small:
            where.setdefault(term.name, "next to 0")  # not for smooths: without variance they are lines
    return [f"{name}: the sd is {place}, no variance is found" for name, place in where.items()]


def _without_noise(fit: FitTables) -> list[str]:
    """A remark on Gaussian noise at its lower bound if weights count rows more than once."""
    model, first = fit.model, sum(len(term.hyperparameters) for term in fit.model.sum.effects)
    if type(model.target.likelihood) is not Gaussian or model.target.weights is None:
        return []
    weights = np.asarray(model.target.weights, dtype=np.float64)
    if not any(i >= first and side == "lower" for i, side in fit.found.at_bounds.items()) or weights.max() <= 1.0:
        return []
    return [
        f"the noise is at its lower bound: weights of up to {weights.max():.4g} count a row as that many rows with the "
        "same y, which a term that fits every row explains without noise. Weights are numbers of rows, not precisions "
        "of means: leave out weights= if each row is one observation"
    ]


def endless(fit: FitTables) -> dict[int, str]:
    """Remarks, by entry of theta, on processes that do not vary along one of their columns."""
    out, i = {}, 0
    for term in fit.model.sum.effects:
        of = {f"range {column}": column for column in term.inputs}
        for h in term.hyperparameters:
            if h.name in of and fit.found.at_bounds.get(i) == "upper":
                out[i] = (
                    f"{term.name}: the range along {str(of[h.name])!r} is at its upper bound, "
                    f"{h.value(h.bounds[1]):.3g}: the term hardly varies along this column, which may be left out"
                )
            i += 1
    return out


def _of_separated(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    whose = "its" if len(names) == 1 else "their"
    coefficients = name_list("coefficient", names)
    return [
        f"the data say little about {coefficients} beyond {whose} sign: rows are separated, and {whose} size comes "
        f"from the prior. State one: priors={{{names[0]!r}: Normal(0, ...)}}"
    ]


def _separated(fit: FitTables) -> list[str]:
    """Names of coefficients that only a weak prior bounds, for labels and counts.

    A coefficient that is large under its prior is tested: whether the likelihood never falls as it grows. Models with
    a softmax, which have a coefficient for each class, are not tested.
    """
    model = fit.model
    columns = model.sum.columns
    own, p = int(model.sum.intercept), len(model.sum.fixed_names)
    discrete = model.target.likelihood.discrete
    if not discrete or model.sum.X.size > _LARGEST or not model.reduction.looks_for_separation:
        return []
    prior = np.sqrt(model.coefficient_priors.variance[own:])
    mean = np.asarray(fit.solution.posterior.latent_mean)
    gamma = mean[mean.size - p :]
    known = {*columns.constant, *(k for j, others in columns.dependent for k in (j, *others))}
    far = [j for j in range(p) if j not in known and prior[j] >= _WEAK and abs(gamma[j]) > prior[j] / 4]
    if not far:
        return []
    test = SeparationTest(model)
    return [model.sum.fixed_names[j] for j in far[:_CHECKED] if test.diverges(j, float(np.sign(gamma[j])))]


class SeparationTest:
    """The directions d of the fixed effects in which the likelihood of no row falls, as a linear programme.

        x'd <= c_k for rows of level k or below,   x'd >= c_k for rows above level k,    -1 <= d <= 1

    with c = 0 if there are no cutpoints. A count of 0 only gives the first inequality, any other count both; so does a
    number of successes between 0 and its trials.
    """

    def __init__(self, model: Model) -> None:
        target, sum_ = model.target, model.sum
        seen = target.seen > 0.0
        X, y = sum_.columns.tail(sum_.X, sum_.intercept)[seen], target.y[seen]
        self.own, self.p = int(sum_.intercept), X.shape[1]
        if target.likelihood.ordered:
            cuts = np.eye(int(y.max(initial=0.0)) + 2)[:, 1:-1]  # of the lower end of each level, then the upper one
            at = y.astype(int)
            below, above = at < cuts.shape[1], at > 0
            up = np.hstack([X, -cuts[at + 1]])[below]
            down = np.hstack([-X, cuts[at]])[above]
        else:
            trials = model.row_values("trials")
            top = np.inf if trials is None else trials[seen]
            top = 1.0 if target.likelihood.support == "levels" else top
            up, down = X[y < top], -X[y > 0.0]
        self.A = np.vstack([up, down])

    def diverges(self, j: int, sign: float) -> bool:
        """Whether the likelihood never falls as coefficient j grows towards one sign."""
        from scipy.optimize import linprog

        towards = np.zeros(self.A.shape[1])
        towards[self.own + j] = -sign
        bounds = [(-1.0, 1.0)] * self.p + [(None, None)] * (self.A.shape[1] - self.p)
        result = linprog(towards, A_ub=self.A, b_ub=np.zeros(self.A.shape[0]), bounds=bounds)
        return bool(result.status == 0 and result.fun < -_DIVERGES)
