"""A choice among a few priors by their evidence, each learned from where the best one so far ended.

``Trials`` is what was tried, and says which is the best for its price. ``KernelTrials`` are kernels of Gaussian
processes:

    matern12 - matern32 - matern52 - rbf       from one of them on to its neighbours, while the evidence rises clearly
    one length or a length for each column     of the best of them

Another kernel than the first has to gain two nats, and so have other units of the columns; lengths for all columns two,
and one more for each beyond the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import numpy as np

from ..kernels import KERNELS

if TYPE_CHECKING:
    import pandas as pd

K = TypeVar("K")
NATS = 2.0  # of evidence that another than the first gains, at least
_RISE = 0.5  # nats from one kernel to its neighbour, from which on the next is tried
_LENGTH = 1.0  # nats that each further length gains, at least


@dataclass(frozen=True)
class Trials(ABC, Generic[K]):
    """What was tried: the evidence of each candidate, and the theta at which it was learned."""

    evidence: Mapping[K, float] = field(default_factory=dict)
    theta: Mapping[K, np.ndarray] = field(default_factory=dict)

    def and_also(self, candidate: K, evidence: float, theta: np.ndarray) -> Self:
        """These and one more."""
        both = {**self.evidence, candidate: evidence}, {**self.theta, candidate: theta}
        return replace(self, evidence=both[0], theta=both[1])

    @abstractmethod
    def next_one(self) -> K | None:
        """Which candidate to try next; None: no other."""

    @abstractmethod
    def price(self, candidate: K) -> float:
        """Nats that it has to gain over the simplest one."""

    @abstractmethod
    def name(self, candidate: K) -> str:
        """What it is called."""

    def start(self, candidate: K) -> np.ndarray:
        """Where it is learned from: its own theta, or that of the one of most evidence."""
        return self.theta.get(candidate, self.theta[max(self.evidence, key=lambda one: self.evidence[one])])

    def best(self) -> K:
        """That of most evidence beyond its price."""
        return max(self.evidence, key=lambda one: self.evidence[one] - self.price(one))

    def in_words(self, candidate: K) -> str:
        """A candidate, and by how much the evidence prefers it."""
        others = [other for other in self.evidence if other != candidate]
        if not others or candidate not in self.evidence:
            return self.name(candidate)
        second = max(others, key=lambda other: self.evidence[other])
        gain = self.evidence[candidate] - self.evidence[second]
        sign = "more" if gain >= 0.0 else "less"
        return f"{self.name(candidate)}, with {abs(gain):.1f} nats of evidence {sign} than {self.name(second)}"


class KernelShape(NamedTuple):
    """A kernel by its word in formulas, how many lengths it has, and whether columns are in units of their sds."""

    word: str
    lengths: int = 1
    scaled: bool = False


_RBF = KernelShape("rbf")


@dataclass(frozen=True)
class KernelTrials(Trials[KernelShape]):
    """Kernels that were tried.

    Attributes
    ----------
    first : KernelShape
        That stays where no other gains enough.
    lengths : int
        That are tried with the best kernel, one or one for each column; those of ``first`` where no others are.
    units : bool
        Whether other units than those of ``first`` are tried.
    """

    first: KernelShape = _RBF
    lengths: int = 1
    units: bool = False

    def next_one(self) -> KernelShape | None:
        known, words = self.evidence, sorted(KERNELS, key=lambda word: KERNELS[word])
        if self.first not in known:
            return self.first
        other_units = self.first._replace(scaled=not self.first.scaled)
        if self.units and other_units not in known:
            return other_units
        best = self.best()
        one = {
            s.word: value for s, value in known.items() if s == best._replace(word=s.word, lengths=self.first.lengths)
        }
        top, *others = sorted(one, key=lambda word: -one[word])
        at, flat = words.index(top), any(one[top] < one[other] + _RISE for other in others)
        for other in words[max(at - 1, 0) : at + 2]:
            if other not in one and (top == self.first.word or not flat):
                return best._replace(word=other)
        tried = self.lengths == self.first.lengths or any(shape.lengths == self.lengths for shape in known)
        return None if tried else best._replace(lengths=self.lengths)

    def price(self, candidate: KernelShape) -> float:
        further = candidate.lengths - 1
        others = (candidate.word != self.first.word) + (candidate.scaled != self.first.scaled) + (further > 0)
        return NATS * others + _LENGTH * further

    def name(self, candidate: KernelShape) -> str:
        return candidate.word if candidate.lengths == 1 else f"{candidate.word} of {candidate.lengths} lengths"

    def frame(self) -> pd.DataFrame:
        """A row for each that was tried, in that order: kernel, lengths, scaled, log evidence, chosen."""
        import pandas as pd

        rows: list[dict[str, Any]] = [
            {
                "kernel": shape.word,
                "lengths": shape.lengths,
                "scaled": shape.scaled,
                "log evidence": value,
                "chosen": shape == self.best(),
            }
            for shape, value in self.evidence.items()
        ]
        return pd.DataFrame(rows)
