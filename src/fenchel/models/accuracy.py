"""The option ``accuracy`` of a fit: its three methods, estimates of their cost, and the choice between them.

integrated   mixtures over fits at many hyperparameters, weighted by their evidence, with corrected marginals
corrected    hyperparameters that maximise the corrected evidence, with corrected marginals
Gaussian     hyperparameters that maximise the elbo, with the best Gaussian

"fast" is the last and "high" the first, at any cost. "auto" is the first that is affordable: it takes at most
``gates.AFFORDED_FITS`` times as long as the plain fit, or ``gates.AFFORDED_SECONDS``. For Gaussian noise there is
nothing to correct. Seconds are estimated from the numbers of rows, latents and fits rather than measured, so that the
same data give the same choice on every computer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import gates
from ..checks import choice
from ..corrections import correct
from ..files import is_loading, next_search, searched
from ..hyperparameters.integration import composite

if TYPE_CHECKING:
    from .fit_tables import FitTables

_LATTICE = {0: 1, 1: 14, 2: 32, 3: 50}  # number of hyperparameters -> fits of an integration over them
_ABOUT_CENTRE = 6  # further fits per hyperparameter for a composite design: curvature, widths, added points
_COLD = 2.0  # time of a fit in a search relative to one with a close warm start
# seconds on a typical core: for any fit, for each row, each effect of a group, each other latent
_FIT, _FIT_ROW, _FIT_GROUP, _FIT_LATENT = 3e-3, 4e-7, 1.5e-6, 1e-5
# method -> seconds for any correction, for each row, and for each pair of sites; "collapsed": for each row times point
_CORRECTION = {
    "collapsed": (0.004, 0.0, 1.2e-7),
    "clusters": (0.005, 0.0, 9e-8),
    "free levels": (0.06, 1.5e-5, 0.0),
    "neighbours": (0.05, 3.5e-5, 0.0),
}
_SLOPES = 0.4  # factor for a point of groups with several effects each
_OTHER_CORRECTION = 0.5, 2e-5, 0.0  # the same for corrections by draws
_COLLAPSED_SEARCH = 4  # further corrections, since each point of a search needs one
_NEGLIGIBLE = 0.05  # nats of correction below which the corrected mode is not searched
_IMMATERIAL = 0.1  # correction in nats times sd of theta; theta moves by about three times that, in its sds
_LEAST_ROW = 3e-6  # least seconds of a correction per row


class Plan(NamedTuple):
    """The computations that follow the plain fit.

    Attributes
    ----------
    method : str, optional
        Method of integration over the hyperparameters; None for none.
    corrects : bool
        Whether evidence and marginals are corrected.
    why : str
        The reason for which no more is done.
    """

    method: str | None = None
    corrects: bool = False
    why: str = ""


@dataclass(frozen=True)
class Dial:
    """The arguments of ``Model.fit`` that control accuracy."""

    accuracy: str
    evidence: str | None
    integrate: str | bool | None

    def __post_init__(self) -> None:
        choice("Model", "accuracy", self.accuracy, ("auto", "fast", "high"))
        choice("Model", "evidence", self.evidence, (None, "elbo", "corrected"))
        choice("Model", "integrate", self.integrate, (None, False, True, "auto", "grid", "ccd"))

    @property
    def method(self) -> str | None:
        """The method of integration that the user requested; None without."""
        return "auto" if self.integrate is True else str(self.integrate) if self.integrate else None

    def plan(self, plain: FitTables) -> Plan:
        """The computations after a plain fit; a file stores the choice."""
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


class Prices(NamedTuple):
    """Estimated seconds on a typical core; ``benchmarks/accuracy_prices.py`` compares them with measurements.

    Attributes
    ----------
    one : float
        A fit at given hyperparameters with a close warm start.
    correction : float
        One correction.
    corrected, integrated, gaussian : float
        After the plain fit: the corrected mode, an integration with corrections, and one without.
    """

    one: float
    correction: float
    corrected: float
    integrated: float
    gaussian: float


def prices(plain: FitTables, correction: Any = None) -> Prices:
    """Estimated seconds of what may follow a plain fit; each correction costs as ``correction`` did, or the least."""
    n, rows, effects = _n_free(plain), plain.model.n_rows[1], plain.model.sum.effects
    one = _FIT + _FIT_ROW * rows + sum((_FIT_GROUP if t.of_groups else _FIT_LATENT) * t.n_latents for t in effects)
    fits = _LATTICE.get(n) or len(composite(n).u) + _ABOUT_CENTRE * n
    if plain.found.likelihood.objective.conjugate:
        return Prices(one, 0.0, 0.0, fits * one, fits * one)
    cost, more, small = _LEAST_ROW * rows, 0, False
    if correction is not None:
        always, row, pair = _CORRECTION.get(correction.method, _OTHER_CORRECTION)
        collapsed = correction.method == "collapsed"
        slopes = collapsed and any(t.of_groups and t.n_latents > len(t.levels or ()) for t in effects)
        pairs = correction.work if collapsed else correction.n_sites**2 if pair else 0.0
        cost = (always + row * rows + pair * pairs) * (_SLOPES if slopes else 1.0)
        small = abs(float(correction.log_evidence) - float(plain.solution.elbo)) < _NEGLIGIBLE
        more = _COLLAPSED_SEARCH if collapsed and not small else 0
    at_mode = n + 2 + more + (n if more else 0) if n and not small else 1
    integrated = fits * one + (2 * n + 2 + 2 * more) * cost
    return Prices(one, cost, at_mode * (one + cost), integrated, fits * one)


def _chosen(plain: FitTables, accuracy: str) -> Plan:
    n, exact = _n_free(plain), plain.found.likelihood.objective.conjugate
    why = ""
    many = bool(plain.approximations) and plain.model.n_rows[1] > gates.DRAWN_SITES and not exact
    if many:
        why = f"a process through inducing points is corrected up to {gates.DRAWN_SITES} rows"
    if accuracy == "high":
        return Plan("auto" if n else None, not exact and not many, why)
    if exact and not n:
        return Plan()
    estimate = prices(plain)
    allowed = max(gates.AFFORDED_FITS * _COLD * plain.found.n_evaluations * estimate.one, gates.AFFORDED_SECONDS)
    allowed = min(allowed, gates.UNASKED_SECONDS)
    corrects, short = not exact and not many, np.inf
    if corrects and min(estimate.corrected, estimate.integrated) <= allowed:
        correction = correct(plain.solution, rough=True)
        corrects, estimate = correction.nearer, prices(plain, correction)
        short = abs(float(correction.log_evidence) - float(plain.solution.elbo))
        why = "" if corrects else left_out(correction.status)
    integrated = estimate.integrated if corrects else estimate.gaussian
    if n and integrated <= allowed:
        return Plan("auto", corrects, why)
    if n and estimate.gaussian <= allowed and short * np.sqrt(np.diag(plain.theta_covariance).max()) < _IMMATERIAL:
        with_them = f"with corrections, of {short:.1g} nats, about {_duration(integrated)}; ask with accuracy='high'"
        return Plan("auto", False, with_them)
    affordable = corrects and estimate.corrected <= allowed
    if n:
        dear = f"{_counted(n)}, integration would take about {_duration(integrated)}; ask with accuracy='high'"
    else:
        dear = "" if affordable or why else f"a correction would take about {_duration(estimate.corrected)}"
    return Plan(None, affordable, "; ".join(text for text in (why, dear) if text))


def left_out(status: str) -> str:
    """Why a fit is not corrected, and what to do."""
    return f"not corrected, as a correction may be wrong ({status}); fit.solution.importance() tests the Gaussian"


def _n_free(fit: FitTables) -> int:
    """Number of hyperparameters that are not at a bound."""
    return fit.theta.size - len(fit.found.at_bounds)


def _counted(n: int) -> str:
    return f"{n} hyperparameter{'' if n == 1 else 's'}"


def _duration(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def in_words(fit: FitTables) -> str:
    """The kind of results of a fit, in words."""
    if fit.parts:
        each = {name: in_words(part) for name, part in fit.parts.items()}
        one = len({*each.values()}) == 1
        return next(iter(each.values())) if one else "; ".join(f"{name}: {text}" for name, text in each.items())
    n, exact = _n_free(fit), fit.found.likelihood.objective.conjugate
    why = f": {fit.why}" if fit.why else ""
    if fit.integrated is not None and n:
        how = "" if exact else ", corrected" if fit.integrated.evidence == "corrected" else ", each with a Gaussian"
        return f"integrated over {_counted(n)}{how}{why}"
    where = " at the mode" if n else ""
    if fit.n_averaged:
        own = " and ".join(dict.fromkeys(entry.word for entry in fit.found.likelihood.entries()))
        where += f", averaged over {own}"
    corrected = fit.answers is not None or (fit.integrated is not None and fit.integrated.evidence == "corrected")
    if corrected:
        return f"corrected{where}{why}" if fit.theta.size else f"corrected; no hyperparameters{why}"
    return f"exact{why}" if exact and not n else f"Gaussian{where}{why}"
