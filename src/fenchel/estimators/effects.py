"""The effects of a structured regression: what a user writes, read into levels, fields and priors.

    "iid", "rw1", "rw2", "ar1"                                over the values of a column
    ("seasonal", period)
    ("icar" | "bym" | "bym2" | "leroux", graph)               over the nodes of a graph
    ("generic", structure)                                    over the rows of a structure matrix
    (kind, graph or None, {"precision": 4.0, "phi": 0.5})     with the builder's own starting values
    ("iid", {"precision": 4.0})                               the same where there is no graph

A random walk of second order is held free of a slope, a seasonal effect of what repeats exactly: both come back as
fixed effects (``Effect.free``), so that a trend or a season in the data is never lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as kept
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from .. import gmrf
from ..checks import Refusal, numeric, problem
from ..gmrf import MarkovField
from ..hyperparameters.priors import Normal, PCPrecision, PCVariance, ScalarPrior, independent
from ..priors.sparse import SparsePrecision
from .levels import counted_from_one, graph_of, inferred, listed, mismatch, present, shown, sort_of, values

ON_GRAPHS = {"icar": gmrf.icar, "bym": gmrf.bym, "bym2": gmrf.bym2, "leroux": gmrf.leroux}
IN_TIME = {"rw1": gmrf.rw1, "rw2": gmrf.rw2, "ar1": gmrf.ar1, "seasonal": gmrf.seasonal}
BUILDERS: dict[str, Any] = {"iid": gmrf.iid, **IN_TIME, **ON_GRAPHS, "generic": gmrf.generic}
START_SD = 0.5  # where learning starts: the typical size of an effect, in units of the response's scale


class OffsetField(MarkovField):
    """A field whose predictors have a known offset, under names and a prior of its own."""

    def __init__(self, base: MarkovField, offset: float, names: Sequence[str], bounds: Any, log_prior: Any) -> None:
        super().__init__(base.build, base.theta, names, bounds, base.design, base.constraints, log_prior)
        self.offset = offset

    def at(self, theta: Any = None, mean: Any = 0.0, offset: Any = None) -> SparsePrecision:
        return super().at(theta, mean, self.offset if offset is None else offset)


@dataclass
class Effect:
    """One effect: a column of X, the kind of field over its levels, and the levels in the field's order.

    Everything here is plain data, so that a fitted estimator can be pickled; the field is made anew when needed.
    """

    where: str
    name: Any
    kind: str
    given: Any
    options: dict[str, Any]
    levels: list[Any]
    scale: float  # of the response: 1 on the log and logit scales, the sd of y for Gaussian noise
    trend: bool = True
    place: dict[Any, int] = kept(init=False, repr=False)
    spread: float = kept(init=False)  # typical variance of the effect at precision 1

    def __post_init__(self) -> None:
        self.place = {level: i for i, level in enumerate(self.levels)}
        self.spread = 1.0
        if self.kind in ("rw1", "rw2", "seasonal", "icar", "bym", "generic"):
            unit = self._make({}) if self.kind != "bym" else gmrf.icar(self.given)
            prior = self._checked(unit)
            self.spread = _typical(prior.factor.inverse_diagonal())

    def _checked(self, unit: MarkovField) -> SparsePrecision:
        try:
            return SparsePrecision(unit.build(np.zeros(1))[0], constraints=unit.constraints)
        except Refusal as error:
            if self.kind != "generic":
                raise
            if "not positive definite" not in str(error):
                raise
            held = "constraints" in self.options
            got = f"the structure of {self.name!r} is singular{' beside its constraints' if held else ''}"
            advice = 'For an intrinsic one: ("generic", R, {"constraints": "sum-to-zero"}), or rows of your own.'
            if held:
                advice = "One row for each flat direction: the level of every part that hangs together, a slope."
            raise problem(self.where, got, "a proper one, or constraints that fix what is flat", advice) from None

    def _make(self, options: Mapping[str, Any]) -> MarkovField:
        first = [self.given] if self.kind in ON_GRAPHS or self.kind == "generic" else [len(self.levels)]
        if self.kind == "seasonal":
            first.append(self.given)
        if self.kind == "generic":
            options = {"constraints": self.options.get("constraints"), **options}
        return BUILDERS[self.kind](*first, **options)

    def build(self) -> MarkovField:
        """The field, at the user's starting values or where an effect has a typical sd of half the scale."""
        k = 1.0 / (START_SD * self.scale) ** 2
        start: dict[str, Any] = {"precision": k * self.spread}
        if self.kind == "ar1":
            start = {"variance": 1.0 / k}
        elif self.kind == "bym":
            start = {"precision_u": k * self.spread, "precision_v": k}
        return self._make({**start, **self.options})

    def bounds(self, made: MarkovField) -> np.ndarray:
        """e^-12 to e^12 about a typical variance of scale^2, whatever the length of a walk."""
        out = np.array(made.bounds)
        for i, name in enumerate(made.names):
            if name.startswith("log "):
                centre = self._centre(name)
                out[i] = centre - 12.0, centre + 12.0
                out[i] = min(out[i, 0], made.theta[i]), max(out[i, 1], made.theta[i])
        return out

    def _centre(self, name: str) -> float:
        """The log precision (log variance) at which the effect's typical variance is scale^2."""
        if name == "log variance":
            return 2 * float(np.log(self.scale))
        spread = 1.0 if name == "log precision v" else self.spread
        return float(np.log(spread / self.scale**2))

    # -- rows --------------------------------------------------------------------------------------
    def codes(self, column: Any, new: bool = False) -> np.ndarray:
        """The node of each row (N,); of new rows, -1 for a group that fit has not seen where groups are independent.

        A group of another sort than all that fit has seen, "10" for 10, is none of them and no new one: refused.
        """
        found, sorts = values(column), set()  # of new groups: text, numbers, dates
        out = np.empty(len(found), dtype=np.int64)
        for i, value in enumerate(found):
            code = self.place.get(value)
            if code is None:
                if not (new and self.kind == "iid" and present(value)):
                    raise self._unknown(i, value, new)
                if sort_of(value) not in sorts and mismatch(self.name, value, self.levels) is not None:
                    raise self._unknown(i, value, new)
                sorts.add(sort_of(value))
                code = -1
            out[i] = code
        return out

    def unseen(self, codes: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The variance (N,) that rows of groups without a latent have: the population's."""
        return np.where(codes < 0, np.exp(-theta[0]), 0.0) if self.kind == "iid" else np.zeros(codes.size)

    def _unknown(self, row: int, value: Any, new: bool) -> ValueError:
        got = f"X[{row}, {self.name!r}] = {value!r}"
        if not present(value):
            advice = "Drop the row, or give what is missing a level of its own."
            if new:
                advice = "Drop the row."
                if self.kind == "iid":
                    advice += " A group that fit has not seen is predicted from the population, under any name."
            return problem(self.where, f"{got} is NaN or inf", "a level in every row", advice)
        known = f"one of {len(self.levels)} levels {shown(self.levels)}"
        other = mismatch(self.name, value, self.levels)
        if other is not None:
            return problem(self.where, f"{got} is {sort_of(value)} and the levels are {other[0]}", known, other[1])
        if self.kind in IN_TIME:
            advice = f"To reach other times give them all to fit: levels={{{self.name!r}: ...}}."
        elif self.levels == list(range(len(self.levels))):
            advice = f"Name the nodes in the graph's order, levels={{{self.name!r}: ...}}, or count them from 0."
        else:
            advice = f"A level without data is fine when fit knows it: levels={{{self.name!r}: ...}}."
        return problem(self.where, f"{got} is unknown to the effect", known, advice)

    def free(self) -> tuple[list[str], np.ndarray]:
        """Fixed effects that give back what the field is held free of: names and columns (levels, r)."""
        none: tuple[list[str], np.ndarray] = ([], np.zeros((len(self.levels), 0)))
        if not self.trend or self.kind not in ("rw2", "seasonal"):
            return none
        C = np.asarray(self._make({}).constraints)
        if self.kind == "rw2":
            return [f"{self.name} (slope)"], C[1:].T
        return [f"{self.name} (season {i})" for i in range(C.shape[0])], C.T

    def design(self, codes: np.ndarray) -> sp.csr_array:
        """Rows over the field's own latents: (u, v) for the sum of a structured and an independent part."""
        n, known = len(self.levels), codes >= 0
        one = sp.csr_array((np.ones(known.sum()), (np.flatnonzero(known), codes[known])), shape=(codes.size, n))
        return sp.hstack([one, one], format="csr") if self.kind in ("bym", "bym2") else one

    # -- hyperparameters ---------------------------------------------------------------------------
    def priors(self, made: MarkovField, asked: Any) -> dict[int, ScalarPrior]:
        """The prior of each entry of the field's theta; a missing one is flat."""
        asked = {} if asked is None else asked
        if not isinstance(asked, Mapping):
            asked = {_word(made.names[0]): asked}
        unknown = set(asked) - {_word(name) for name in made.names}
        if unknown:
            known = ", ".join(_word(name) for name in made.names)
            raise problem(self.where, f"priors[{self.name!r}] names {sorted(unknown)[0]!r}", known)
        out = {}
        for i, name in enumerate(made.names):
            prior = self._prior(name, asked[_word(name)]) if _word(name) in asked else self._default(name)
            if prior is not None:
                out[i] = prior
        return out

    def _prior(self, name: str, given: Any) -> ScalarPrior | None:
        if given is None or isinstance(given, ScalarPrior):
            return given
        if isinstance(given, tuple) and len(given) == 2 and name.startswith("log "):
            return self._pc(name, *given)
        got = f"the prior of {self.name!r}, {_word(name)}, is {given!r}"
        raise problem(self.where, got, "a prior of fenchel.hyperparameters, None, or (u, a) for P(sd > u) = a")

    def _pc(self, name: str, u: float, a: float) -> ScalarPrior:
        """P(typical sd of the effect > u) = a."""
        if name == "log variance":
            return PCVariance(u, a)
        return PCPrecision(u / np.sqrt(1.0 if name == "log precision v" else self.spread), a)

    def _default(self, name: str) -> ScalarPrior:
        if name.startswith("log "):
            return self._pc(name, self.scale, 0.01)
        return Normal(2.0, 1.5) if self.kind == "ar1" else Normal(0.0, 1.8)

    def readable(self, theta: np.ndarray) -> list[tuple[str, float]]:
        """theta in words: precisions, shares, correlations; and the typical sd of the effect that they amount to."""
        made, out = self.build(), []
        for name, t in zip(made.names, theta, strict=True):
            inverse = np.exp if name.startswith("log ") else (lambda t: np.tanh(t / 2)) if self.kind == "ar1" else expit
            out.append((_word(name), float(inverse(t))))
        prior = made.at(theta)
        variance = prior.bind(prior.n_rows, 1, False).variance
        return [*out, ("typical sd", _typical(variance) ** 0.5)]


def _typical(variance: np.ndarray) -> float:
    """The geometric mean of the variances of the levels that can move."""
    moving = variance > 1e-12 * variance.max()
    return float(np.exp(np.log(variance[moving]).mean()))


def _word(name: str) -> str:
    """ "log precision u" -> "precision u"."""
    return name.split(" ", 1)[1]


def read(where: str, name: Any, spec: Any, column: Any, levels: Any, scale: float) -> Effect:
    """One entry of ``effects`` with its column of X."""
    parts = (spec,) if isinstance(spec, str) else tuple(spec) if isinstance(spec, (tuple, list)) else ()
    kind = parts[0] if parts and isinstance(parts[0], str) else None
    if kind not in BUILDERS or len(parts) > 3 or (len(parts) == 3 and not isinstance(parts[2], Mapping)):
        example = '"rw1", ("bym2", adjacency) or ("bym2", adjacency, {"precision": 4.0})'
        got, kinds = f"effects[{name!r}] = {_brief(spec)} is not known", ", ".join(BUILDERS)
        raise problem(where, got, example, f"Kinds: {kinds}.")
    needs = "a graph" if kind in ON_GRAPHS else {"seasonal": "a period", "generic": "a structure matrix"}.get(kind)
    if needs is None and len(parts) == 2 and isinstance(parts[1], Mapping):  # ("iid", {"precision": 4.0})
        parts = (kind, None, parts[1])
    given, options = parts[1] if len(parts) > 1 else None, dict(parts[2]) if len(parts) == 3 else {}
    trend = bool(options.pop("trend", True))
    _check_options(where, name, kind, options)
    if (given is None) != (needs is None):
        got = f'effects[{name!r}] = ("{kind}", {_brief(given)})' if needs is None else f'effects[{name!r}] = "{kind}"'
        raise problem(where, got, f'"{kind}" alone' if needs is None else f'("{kind}", {needs})')
    if kind == "seasonal" and not (isinstance(given, (int, np.integer)) and given >= 2):
        raise problem(where, f'effects[{name!r}] = ("seasonal", {_brief(given)})', '("seasonal", a period >= 2)')
    chosen = None if levels is None else listed(where, name, levels)
    if kind in ON_GRAPHS or kind == "generic":
        asked = chosen
        if kind == "generic":
            given = _structure(where, name, given)
            chosen = list(range(given.shape[0])) if chosen is None else chosen
        else:
            given, chosen = graph_of(where, name, given, chosen, column)
        if asked is None and chosen == list(range(given.shape[0])):  # such names say nothing
            counted_from_one(where, name, column, given.shape[0])
        if len(chosen) != given.shape[0]:
            got = f"levels[{name!r}] has {len(chosen)} entries and the structure {given.shape[0]} rows"
            raise problem(where, got, "one level a row")
    elif chosen is None:
        chosen = inferred(where, name, column, kind in IN_TIME)
    least = {"rw1": 2, "ar1": 2, "rw2": 3, "seasonal": int(given or 0) + 1 if kind == "seasonal" else 0}.get(kind, 1)
    if len(chosen) < least:
        got = f"the effect {name!r} has {len(chosen)} {'level' if len(chosen) == 1 else 'levels'}"
        advice = f"levels={{{name!r}: ...}} names more times than the data have."
        raise problem(where, got, f'at least {least} for "{kind}"', advice)
    return Effect(where, name, kind, given, options, chosen, scale, trend)


def _structure(where: str, name: Any, given: Any) -> sp.csc_array:
    """A structure matrix as it is, or the sentence that says why it is none."""
    if not hasattr(given, "tocsc"):
        given = numeric(where, f"the structure of {name!r}", given)
    if len(given.shape) != 2 or given.shape[0] != given.shape[1]:
        raise problem(where, f"the structure of {name!r} has shape {given.shape}", "(n, n)")
    return sp.csc_array(given)


def _check_options(where: str, name: Any, kind: str, options: Mapping[str, Any]) -> None:
    allowed = [p for p in list(inspect.signature(BUILDERS[kind]).parameters)[1:] if p not in ("n", "period")]
    for option in options:
        if option not in allowed:
            known = ", ".join(allowed + (["trend"] if kind in ("rw2", "seasonal") else []))
            raise problem(where, f"effects[{name!r}] has the option {option!r}", known)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def joined(effects: Sequence[Effect], codes: Sequence[np.ndarray], fixed: Any, model: Mapping[str, Any]) -> OffsetField:
    """All effects and the fixed ones as one family.

    ``model`` holds intercept, fixed_variance, columns (centres and scales of ``fixed``), offset and priors: "pc", None
    or {effect: priors}.
    """
    fields = [effect.build() for effect in effects]
    variance, columns = model["fixed_variance"], model["columns"]
    parts = list(zip(fields, codes, strict=True))
    both = gmrf.stack(parts, fixed, model["intercept"], variance, columns=columns)
    names = [f"{effect.name}: {name}" for effect, made in zip(effects, fields, strict=True) for name in made.names]
    each = [effect.bounds(made) for effect, made in zip(effects, fields, strict=True)]
    bounds = np.concatenate([np.zeros((0, 2)), *each])
    priors, chosen, at = {}, model["priors"], 0
    for effect, made in zip(effects, fields, strict=True):
        if chosen is not None:
            asked = chosen.get(effect.name, {}) if isinstance(chosen, Mapping) else {}
            if asked is not None:
                priors.update({at + i: prior for i, prior in effect.priors(made, asked).items()})
        at += made.theta.size
    return OffsetField(both, model["offset"], names, bounds, independent(priors) if priors else None)
