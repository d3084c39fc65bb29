"""Terms: the summands of the linear predictor eta. Each has a sparse Gaussian prior with hyperparameters.

    Covariate                               a number or a factor, as fixed effects
    IID                                     random intercepts of groups, or with ``by`` random slopes
    Grouped                                 random intercepts and slopes of groups, correlated or not
    MultipleMembership, KnownCovariance     several groups for each row; pedigrees and phylogenies
    Smooth, Tensor, TensorInteraction       penalised splines and surfaces
    GaussianProcess                         a Gaussian process over columns, by a kernel
    RW1, RW2, AR1, Seasonal                 series at equal time steps
    AR, Wiener, IntegratedWiener, OrnsteinUhlenbeck, MaternSeries      series of any order, or at any times
    ICAR, BYM, BYM2, Leroux                 regions of a graph
    Matern                                  a field over points in the plane
    VecchiaProcess                          a Gaussian process over many points
    Generic                                 effects with a given structure matrix
    Interaction, Replicated                 space by time; a series for each group
    SumOfTerms                              the sum of terms, as one family of priors

``Term`` is the contract, and ``LevelTerm`` the base of terms over the levels of a column. A term class declares its
``word`` and how a formula writes it (``Term.over``, ``Term.needs``, ``Term.in_time``, ``Term.partitioned``,
``Term.r_names``). The grammar, the compiler, models of partitions and messages read ``WORDS``. ``register`` gives your
own term a word in formulas.
"""

from typing import TypeVar

from ..checks import problem
from ..inputs.frames import DataColumn, DataTable, Kind
from .base import Hyperparameter, Term, TermRows, correlation, deviation, share
from .covariates import Covariate
from .graph_terms import BYM, BYM2, ICAR, Generic, Leroux
from .grouped import IID, LevelTerm
from .interaction import Interaction, Replicated
from .matern_terms import Matern
from .membership import KnownCovariance, MultipleMembership
from .processes import GaussianProcess, VecchiaProcess
from .slopes import Grouped
from .smooths import Smooth, Tensor, TensorInteraction
from .stationary import AR, AR1, MaternSeries, OrnsteinUhlenbeck
from .sum_of_terms import SumOfTerms
from .time import RW1, RW2, IntegratedWiener, Seasonal, Wiener

T = TypeVar("T", bound=type[Term])
WORDS: dict[str, type[Term]] = {}


def register(kind: T) -> T:
    """Make a term known by its word to every formula; also a decorator of a class.

    Examples
    --------
    >>> from fenchel.terms import IID, WORDS, register
    >>> @register
    ... class Plots(IID):
    ...     word = "plots"
    >>> WORDS.pop("plots").__name__  # unknown again
    'Plots'
    """
    word = kind.word
    if word is None or not word.isidentifier():
        raise problem("register", f"the word of {kind.__name__} is {word!r}", 'a name such as "cyclic"')
    known = WORDS.get(word, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # a notebook cell may run twice
        raise problem("register", f"{word}() is {known.__name__} already", "another word")
    WORDS[word] = kind
    return kind


def named_in_r(name: str) -> str | None:
    """What to write in place of a function of R that is a term here; None where it is none."""
    word = next((word for word, kind in WORDS.items() if name in kind.r_names), None)
    return None if word is None else f"It is {word}(...) here."


for _kind in (
    *(IID, MultipleMembership, Smooth, Tensor, TensorInteraction, GaussianProcess, VecchiaProcess, MaternSeries),
    *(RW1, RW2, AR1, AR, Seasonal, ICAR, BYM, BYM2, Leroux, Generic, Interaction),
):
    register(_kind)

__all__ = [
    "AR",
    "AR1",
    "BYM",
    "BYM2",
    "ICAR",
    "IID",
    "RW1",
    "RW2",
    "WORDS",
    "Covariate",
    "DataColumn",
    "DataTable",
    "GaussianProcess",
    "Generic",
    "Grouped",
    "Hyperparameter",
    "IntegratedWiener",
    "Interaction",
    "Kind",
    "KnownCovariance",
    "Leroux",
    "LevelTerm",
    "Matern",
    "MaternSeries",
    "MultipleMembership",
    "OrnsteinUhlenbeck",
    "Replicated",
    "Seasonal",
    "Smooth",
    "SumOfTerms",
    "Tensor",
    "TensorInteraction",
    "Term",
    "TermRows",
    "VecchiaProcess",
    "Wiener",
    "correlation",
    "deviation",
    "register",
    "share",
]
