"""How a run ended: a code that programs read, the numbers that decided, and the sentence they make for people."""

from __future__ import annotations

from dataclasses import dataclass, replace

_ASK_FOR_LESS = (
    " of it; ask for a larger tol, or give the likelihood more noise or the prior less variance in the directions that "
    "the data do not tell"
)


@dataclass(frozen=True)
class Ending:
    """The end of a run.

    Attributes
    ----------
    code : str
        "converged"; "stationary", converged to where another stationary point may be better; "callback", stopped by the
        user; "steered", near enough to steer a search; all others did not converge: "max_iter", "stagnated" (nothing
        improves in double precision), "stalled" (a line search), "rounding" (the optimum is reached, but rounding has
        blurred the elbo), or a solver's own.
    measure, value, tol : str, float, float
        What was held against tol: "relative gap", say.
    reason : str
        What stopped a run that did not converge.
    advice : str
        What follows the numbers, with its punctuation.
    notes : tuple of str
        What else happened, such as to the start.

    Examples
    --------
    >>> from fenchel.solvers import Ending
    >>> Ending("stalled", "relative gap", 1e-3, 1e-8, "the line search stalled", notes=("a poor start",)).sentence
    'not converged: the line search stalled at relative gap 1.0e-03 > 1.0e-08 (a poor start)'
    """

    code: str
    measure: str
    value: float
    tol: float
    reason: str = ""
    advice: str = ""
    notes: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether it ended below tol."""
        return self.code in ("converged", "stationary")

    @property
    def word(self) -> str:
        """ "converged", "stationary", "stopped" or "not converged"; a run that steered did not."""
        return self.code if self.reached else "stopped" if self.code == "callback" else "not converged"

    @property
    def sentence(self) -> str:
        """The whole of it, for a status line."""
        return self._numbers() + self.advice + "".join(f" ({note})" for note in self.notes)

    def _numbers(self) -> str:
        if self.code == "callback":
            return f"stopped by the callback at {self.measure} {self.value:.1e}"
        if self.code == "steered":
            return f"near enough to steer a search, not proved: {self.measure} {self.value:.1e} <= {self.tol:.1e}"
        if self.reached:
            return f"{self.code}: {self.measure} {self.value:.1e} <= {self.tol:.1e}"
        where = "" if self.code == "rounding" else f" at {self.measure}"
        return f"not converged: {self.reason}{where} {self.value:.1e} > {self.tol:.1e}"

    def advising(self, more: str) -> Ending:
        """The same with more advice."""
        return replace(self, advice=self.advice + more)

    def noting(self, note: str) -> Ending:
        """The same with a note, if there is one."""
        return replace(self, notes=(*self.notes, note)) if note else self

    @classmethod
    def blurred(cls, rounding: float, scale: float, tol: float) -> Ending:
        """Of a fit that is optimal but whose evidence, of size ``scale``, rounding has blurred."""
        reason = f"the optimum is reached, but rounding may have moved the elbo by {rounding:.1e}, which is"
        return cls("rounding", "rounding of the elbo", rounding / scale, tol, reason, _ASK_FOR_LESS)
