"""What a user writes for the effects of a structured regression, as terms.

"iid", "rw1", "rw2", "ar1"                                over the values of a column
("seasonal", period)
("icar" | "bym" | "bym2" | "leroux", graph)               over the nodes of a graph
("generic", structure)                                    over the rows of a structure matrix
(kind, graph or None, {"precision": 4.0, "phi": 0.5})     with the term's own starting values
("iid", {"precision": 4.0})                               the same where there is no graph
a Term                                                    as it is
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..checks import problem
from ..terms import AR1, BYM, BYM2, ICAR, IID, RW1, RW2, Generic, Leroux, LevelTerm, Seasonal, Term

ALONE: tuple[type[LevelTerm], ...] = (IID, RW1, RW2, AR1)
NEEDS: dict[type[LevelTerm], str] = {
    Seasonal: "a period",
    **dict.fromkeys((ICAR, BYM, BYM2, Leroux), "a graph"),
    Generic: "a structure matrix",
}
KINDS: dict[str, type[LevelTerm]] = {term.word: term for term in (*ALONE, *NEEDS)}
TREND, CONSTRAINTS = "trend", "constraints"  # options that are no starting values
MORE: dict[type[LevelTerm], tuple[str, ...]] = {RW2: (TREND,), Seasonal: (TREND,), Generic: (CONSTRAINTS,)}


def read_effects(where: str, effects: Any, levels: Any) -> list[Term]:
    """The terms of ``effects``: a dict by column, or a list of terms; with the levels that the user chose."""
    effects = {} if effects is None else effects
    if isinstance(effects, (list, tuple)) and all(isinstance(term, Term) for term in effects):
        terms = list(effects)
    elif isinstance(effects, Mapping):
        terms = [s.named(n) if isinstance(s, Term) else _term(where, n, s) for n, s in effects.items()]
    else:
        example = 'a dict such as {"district": ("bym2", adjacency), "year": "rw2"}'
        raise problem(where, f"effects = {effects!r}", example, "None leaves fixed effects alone.")
    levels, names = {} if levels is None else levels, [term.name for term in terms]
    if not isinstance(levels, Mapping) or any(key not in names for key in levels):
        got = f"levels of {list(levels) if isinstance(levels, Mapping) else type(levels).__name__}"
        raise problem(where, got, f"a dict whose keys are among {names}")
    return [term.with_levels(levels[term.name]) if term.name in levels else term for term in terms]


def _term(where: str, name: Any, spec: Any) -> Term:
    """One entry of a dict of effects."""
    parts = (spec,) if isinstance(spec, str) else tuple(spec) if isinstance(spec, (tuple, list)) else ()
    word = parts[0] if parts and isinstance(parts[0], str) else None
    if word not in KINDS or len(parts) > 3 or (len(parts) == 3 and not isinstance(parts[2], Mapping)):
        example = '"rw1", ("bym2", adjacency) or ("bym2", adjacency, {"precision": 4.0})'
        got, kinds = f"effects[{name!r}] = {_brief(spec)} is not known", ", ".join(KINDS)
        raise problem(where, got, example, f"Kinds: {kinds}.")
    kind = KINDS[word]
    needs = NEEDS.get(kind)
    if needs is None and len(parts) == 2 and isinstance(parts[1], Mapping):  # ("iid", {"precision": 4.0})
        parts = (word, None, parts[1])
    given, options = parts[1] if len(parts) > 1 else None, dict(parts[2]) if len(parts) == 3 else {}
    for option in options:
        if option not in (*kind.options, *MORE.get(kind, ()), TREND):
            known = ", ".join((*kind.options, *MORE.get(kind, ())))
            raise problem(where, f"effects[{name!r}] has the option {option!r}", known)
    if TREND in options and TREND not in MORE.get(kind, ()):  # there is none to leave out
        del options[TREND]
    if (given is None) != (needs is None):
        got = f'effects[{name!r}] = ("{word}", {_brief(given)})' if needs is None else f'effects[{name!r}] = "{word}"'
        raise problem(where, got, f'"{word}" alone' if needs is None else f'("{word}", {needs})')
    if kind is Seasonal and not (isinstance(given, (int, np.integer)) and given >= 2):
        raise problem(where, f'effects[{name!r}] = ("seasonal", {_brief(given)})', '("seasonal", a period >= 2)')
    return kind(name, **options) if needs is None else kind(name, given, **options)  # type: ignore[call-arg]


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
