"""How accurate the answers of a fit are: the dial ``accuracy``, what each step of it costs, and which one was taken.

integrated   mixtures over fits at many hyperparameters, each by its evidence and with marginals beyond the Gaussian
corrected    hyperparameters where the evidence beyond the Gaussian is largest, and marginals beyond the Gaussian there
Gaussian     hyperparameters where the elbo is largest, and the best Gaussian there

"fast" is the last and "high" the first, whatever it costs. "auto" is the first of them that is affordable: one that
takes at most ``gates.AFFORDED_FITS`` times as long as the plain fit, or ``gates.AFFORDED_SECONDS``. For Gaussian noise
there is nothing to correct. Seconds are estimates from the numbers of rows, latents and fits, never a clock: the same
data have the same answer on every computer, busy or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .. import gates
from ..checks import choice
from ..corrections import correct
from ..files import is_loading, next_search, searched
from ..hyperparameters.integration import composite

if TYPE_CHECKING:
    from .fit_tables import FitTables

_LATTICE = {0: 1, 1: 14, 2: 36, 3: 60}  # fits of an integration over so many hyperparameters
_ABOUT_CENTRE = 4  # fits a hyperparameter before those of a composite design: curvature, widths, steps to the mode
_SEARCH = 2  # corrections of a search for the mode beyond those of an integration, which are 2 (2 n + 1)
_COLD = 2.0  # times as long as a fit that starts at its end, one of a search takes
# seconds of a usual core: of any fit, of a row, of a latent
_FIT, _FIT_ROW, _FIT_LATENT = 3e-3, 1.5e-6, 1e-5
_CORRECTION = {  # seconds of any correction, of a row, and of a pair of rows, by its method
    "collapsed": (0.01, 5e-5, 0.0),
    "clusters": (0.02, 0.0, 7e-8),
    "neighbours": (0.05, 1.5e-4, 0.0),
}
_OTHER_CORRECTION = 0.5, 2e-5, 0.0  # by draws
_LEAST_ROW = 1e-5  # seconds that a correction takes a row, at least


class Plan(NamedTuple):
    """What is done beyond the plain fit.

    Attributes
    ----------
    method : str, optional
        How to integrate over the hyperparameters; None: not at all.
    corrects : bool
        Whether evidence and marginals are those beyond the Gaussian.
    why : str
        Why no more is done.
    """

    method: str | None = None
    corrects: bool = False
    why: str = ""


@dataclass(frozen=True)
class Dial:
    """The arguments of ``Model.fit`` that say how accurate answers are to be."""

    accuracy: str
    evidence: str | None
    integrate: str | bool | None

    def __post_init__(self) -> None:
        choice("Model", "accuracy", self.accuracy, ("auto", "fast", "high"))
        choice("Model", "evidence", self.evidence, (None, "elbo", "corrected"))
        choice("Model", "integrate", self.integrate, (None, False, True, "auto", "grid", "ccd"))

    @property
    def method(self) -> str | None:
        """Of an integration that is asked for by name."""
        return "auto" if self.integrate is True else str(self.integrate) if self.integrate else None

    def plan(self, plain: FitTables) -> Plan:
        """What follows a plain fit; a file keeps it and does not decide again."""
        if self.integrate is not None or self.evidence is not None:
            unasked = self.evidence is None and (self.method is not None or self.accuracy == "high")
            corrects = self.evidence == "corrected" or unasked
            return Plan(self.method, corrects, "" if corrects else "as asked")
        if self.accuracy == "fast" or (is_loading() and next_search() != "accuracy"):
            return Plan(why="accuracy='fast'" if self.accuracy == "fast" else "")
        if self.accuracy == "auto" and not gates.UNASKED_SECONDS:
            return Plan()
        return searched(
            "accuracy",
            lambda: _chosen(plain, self.accuracy),
            Plan._asdict,
            lambda kept: Plan(*(kept[name] for name in Plan._fields)),
        )


def _chosen(plain: FitTables, accuracy: str) -> Plan:
    n, exact = _n_free(plain), plain.found.likelihood.objective.conjugate
    method = "auto" if n else None
    if accuracy == "high":
        return Plan(method, not exact)
    if exact and not n:
        return Plan()
    one = _FIT + _FIT_ROW * plain.model.n_rows[1] + _FIT_LATENT * sum(t.n_latents for t in plain.model.sum.effects)
    allowed = max(gates.AFFORDED_FITS * _COLD * plain.found.n_evaluations * one, gates.AFFORDED_SECONDS)
    allowed = min(allowed, gates.UNASKED_SECONDS)
    fits, corrections = _LATTICE.get(n) or len(composite(n).u) + _ABOUT_CENTRE * n, 2 * (2 * n + 1)

    def prices(correction: float) -> tuple[float, float]:  # of an integration, and of the mode corrected
        return fits * one + corrections * correction, (corrections + _SEARCH) * (one + correction)

    correction, why = 0.0 if exact else _LEAST_ROW * plain.model.n_rows[1], ""
    if not exact and min(prices(correction)) <= allowed:
        correction, why = _priced(plain)
    corrects = not (exact or why)
    integrated, corrected = prices(correction if corrects else 0.0)
    if not n or integrated <= allowed:
        return Plan(method, corrects, why)
    dear = f"{_counted(n)}, integration would take about {_duration(integrated)}; ask with accuracy='high'"
    return Plan(None, corrects and corrected <= allowed, f"{why}; {dear}" if why else dear)


def _priced(plain: FitTables) -> tuple[float, str]:
    """Seconds of a correction, and why it is not to be used."""
    found, rows = correct(plain.solution, rough=True), plain.model.n_rows[1]
    always, row, pair = _CORRECTION.get(found.method, _OTHER_CORRECTION)
    seconds = always + row * rows + pair * rows**2
    return seconds, "" if found.nearer else f"a correction is not to be used: {found.status}"


def _n_free(fit: FitTables) -> int:
    """Hyperparameters that are not at a bound."""
    return fit.theta.size - len(fit.found.at_bounds)


def _counted(n: int) -> str:
    return f"{n} hyperparameter{'' if n == 1 else 's'}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def in_words(fit: FitTables) -> str:
    """Which answers a fit has, in a sentence."""
    if fit.parts:
        each = {name: in_words(part) for name, part in fit.parts.items()}
        one = len({*each.values()}) == 1
        return next(iter(each.values())) if one else "; ".join(f"{name}: {text}" for name, text in each.items())
    n, exact = _n_free(fit), fit.found.likelihood.objective.conjugate
    why = f": {fit.why}" if fit.why else ""
    if fit.integrated is not None and n:
        how = "" if exact else ", corrected" if fit.integrated.evidence == "corrected" else ", Gaussian at each of them"
        return f"integrated over {_counted(n)}{how}{why}"
    where = " at the mode" if n else ""
    if fit.n_averaged:
        own = " and ".join(dict.fromkeys(entry.word for entry in fit.found.likelihood.entries()))
        where += f", averaged over {own}"
    corrected = fit.answers is not None or (fit.integrated is not None and fit.integrated.evidence == "corrected")
    if corrected:
        return f"corrected{where}{why}" if fit.theta.size else f"corrected; no hyperparameters{why}"
    return f"exact{why}" if exact and not n else f"Gaussian{where}{why}"
