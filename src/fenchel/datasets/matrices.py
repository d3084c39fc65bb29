"""Tables without a target: the votes of the 1984 house, verbal aggression, and the animals of a zoo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import choice
from .files import numbers, table

_VOTES = (  # the order of the UCI repository, V1 to V16
    "handicapped infants",
    "water project",
    "budget resolution",
    "physician fee freeze",
    "El Salvador aid",
    "religious groups in schools",
    "anti-satellite test ban",
    "aid to Nicaraguan contras",
    "MX missile",
    "immigration",
    "synfuels cutback",
    "education spending",
    "superfund right to sue",
    "crime",
    "duty-free exports",
    "South Africa export act",
)


@dataclass(frozen=True)
class HouseVotes:
    """Votes of the members of the United States House of Representatives in 1984.

    Attributes
    ----------
    X : array (435, 16)
        1 for yes, 0 for no, NaN where no position is known (392 cells, 5.6 per cent).
    party : array (435,) of str
        "democrat" or "republican".
    feature_names : list of str
        What was voted on.
    """

    X: np.ndarray
    party: np.ndarray
    feature_names: list[str]
    description: str = "Sixteen votes of the 435 members of the United States House of Representatives, 1984"
    attribution: str = (
        "UCI Machine Learning Repository (Congressional Voting Records), by way of R package mlbench 2.1-3"
    )
    licence: str = "CC BY 4.0"


@dataclass(frozen=True)
class VerbalAggression:
    """Would you curse, scold or shout? 316 answers to 24 questions.

    Attributes
    ----------
    X : array (316, 24)
        Three categories: 0 no, 1 perhaps, 2 yes. Two: 0 no, 1 perhaps or yes. Nothing is missing.
    gender : array (316,) of str
    anger : array (316,)
        The score of a questionnaire on anger.
    feature_names : list of str
        Situation (S1 to S4), want or do, and what: ``S1WantCurse``.
    """

    X: np.ndarray
    gender: np.ndarray
    anger: np.ndarray
    feature_names: list[str]
    description: str = "Verbal aggression: answers of 316 students to 24 questions"
    attribution: str = "R package psychotools 0.7-2 (VerbalAggression), by way of Debian's r-cran-psychotools"
    licence: str = "GPL-2 or GPL-3"


@dataclass(frozen=True)
class Zoo:
    """What animals have and do.

    Attributes
    ----------
    X : array (101, 16)
        0 or 1, but for ``legs``: 0, 2, 4, 5, 6 or 8.
    animal, type : arrays (101,) of str
        The name, and one of seven types; "frog" stands there twice.
    feature_names : list of str
    """

    X: np.ndarray
    animal: np.ndarray
    type: np.ndarray
    feature_names: list[str]
    description: str = "Sixteen properties of 101 animals of seven types"
    attribution: str = "UCI Machine Learning Repository (Zoo), by way of R package mlbench 2.1-3"
    licence: str = "CC BY 4.0"


def load_house_votes() -> HouseVotes:
    """The 1984 votes of the House of Representatives, with holes.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.datasets import load_house_votes
    >>> votes = load_house_votes()
    >>> votes.X.shape, int(np.isnan(votes.X).sum()), votes.feature_names[3]
    ((435, 16), 392, 'physician fee freeze')
    """
    columns = table("housevotes84.csv")
    X = np.column_stack([numbers(columns[f"V{j}"]) for j in range(1, 17)])
    return HouseVotes(X=X, party=np.array(columns["party"]), feature_names=list(_VOTES))


def load_verbal_aggression(categories: int = 2) -> VerbalAggression:
    """Verbal aggression, in two categories or in three.

    Examples
    --------
    >>> from fenchel.datasets import load_verbal_aggression
    >>> three = load_verbal_aggression(categories=3)
    >>> three.X.shape, float(three.X.max())
    ((316, 24), 2.0)
    """
    choice("load_verbal_aggression", "categories", categories, (2, 3))
    columns = table("verbal_aggression_binary24.csv" if categories == 2 else "verbal_aggression_3cat24.csv")
    names = [name for name in columns if name not in ("gender", "anger")]
    return VerbalAggression(
        X=np.column_stack([numbers(columns[name]) for name in names]),
        gender=np.array(columns["gender"]),
        anger=numbers(columns["anger"]),
        feature_names=names,
    )


def load_zoo() -> Zoo:
    """Animals and their properties.

    Examples
    --------
    >>> from fenchel.datasets import load_zoo
    >>> zoo = load_zoo()
    >>> zoo.X.shape, len(set(zoo.type.tolist()))
    ((101, 16), 7)
    """
    columns = table("zoo.csv")
    names = [name for name in columns if name not in ("animal", "type")]
    return Zoo(
        X=np.column_stack([numbers(columns[name]) for name in names]),
        animal=np.array(columns["animal"]),
        type=np.array(columns["type"]),
        feature_names=names,
    )
