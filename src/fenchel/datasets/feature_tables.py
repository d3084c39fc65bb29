"""Tables of features: forensic glass and diabetes, with classes; votes, answers and animals, without."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import choice
from .files import numbers, table

# -- Forensic glass: 214 fragments, nine measurements and which of six kinds each came from ---------
_GLASS_COLUMNS = ("RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
_GLASS_KINDS = (
    "building windows, float processed",
    "building windows, not float processed",
    "vehicle windows, float processed",
    "containers",
    "tableware",
    "headlamps",
)


@dataclass(frozen=True)
class Glass:
    """A classification problem of six classes.

    Attributes
    ----------
    X : array (214, 9)
        Refractive index, then the weight per cent of eight elements in their oxides. Rows 38 and 39 are equal.
    y : array (214,)
        The class, 0 to 5, as a whole number in float64.
    feature_names, class_names : list of str
    """

    X: np.ndarray
    y: np.ndarray
    feature_names: list[str]
    class_names: list[str]
    description: str = "Forensic glass: refractive index and oxides of 214 fragments of six kinds"
    attribution: str = "UCI Machine Learning Repository (Glass Identification), by way of R package mlbench 2.1-3"
    licence: str = "CC BY 4.0"


def load_glass() -> Glass:
    """The forensic glass data of the UCI repository.

    Examples
    --------
    >>> from fenchel.datasets import load_glass
    >>> glass = load_glass()
    >>> glass.X.shape, glass.class_names[5]
    ((214, 9), 'headlamps')
    """
    columns = table("glass_uci.csv")
    return Glass(
        X=np.column_stack([numbers(columns[name]) for name in _GLASS_COLUMNS]),
        y=numbers(columns["class"]) - 1.0,
        feature_names=list(_GLASS_COLUMNS),
        class_names=list(_GLASS_KINDS),
    )


# -- Diabetes among 532 women of Pima heritage: seven measurements and a yes or no -----------------
_PIMA_COLUMNS = ("npreg", "glu", "bp", "skin", "bmi", "ped", "age")


@dataclass(frozen=True)
class Pima:
    """A binary classification problem.

    Attributes
    ----------
    X : array (532, 7)
        Pregnancies, plasma glucose, diastolic blood pressure (mm Hg), triceps skin fold (mm), body mass index, diabetes
        pedigree function, age (years).
    y : array (532,)
        1 with diabetes, else 0.
    feature_names : list of str
    train : bool array (532,)
        The authors' 200 training rows; the other 332 are their test set.
    """

    X: np.ndarray
    y: np.ndarray
    feature_names: list[str]
    train: np.ndarray
    description: str = "Diabetes among 532 women of Pima heritage, complete records, split as in Ripley (1996)"
    attribution: str = "R package MASS 7.3-58.2 (Pima.tr, Pima.te), by way of Debian's r-cran-mass"
    licence: str = "GPL-2 or GPL-3"

    @property
    def test(self) -> np.ndarray:
        """The authors' test rows: bool (532,)."""
        return ~self.train


def load_pima() -> Pima:
    """The Pima diabetes data without missing values.

    Examples
    --------
    >>> from fenchel.datasets import load_pima
    >>> pima = load_pima()
    >>> pima.X[pima.train].shape, pima.X[pima.test].shape
    ((200, 7), (332, 7))
    """
    columns = table("pima_ripley532.csv")
    return Pima(
        X=np.column_stack([numbers(columns[name]) for name in _PIMA_COLUMNS]),
        y=numbers(columns["y"]),
        feature_names=list(_PIMA_COLUMNS),
        train=np.array(columns["split"]) == "train",
    )


# -- Tables without a target: the votes of the 1984 house, verbal aggression, and the animals of a zoo ---
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
