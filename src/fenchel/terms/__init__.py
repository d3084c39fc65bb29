"""Terms: the summands of eta, read against a table, with sparse priors and typed hyperparameters.

    Covariate                               a number or a factor, as fixed effects
    IID                                     groups, and with ``by`` slopes of groups
    Grouped                                 intercepts and slopes of groups, correlated or not
    MultipleMembership, KnownCovariance     several groups a row; pedigrees and phylogenies
    Smooth, Tensor, TensorInteraction       penalised splines and surfaces
    GaussianProcess                         over the points of some columns, by a kernel
    RW1, RW2, AR1, Seasonal                 in time
    AR, Wiener, IntegratedWiener, OrnsteinUhlenbeck, MaternSeries      of any order, at any times
    ICAR, BYM, BYM2, Leroux                 on graphs
    Matern                                  over points in the plane
    VecchiaProcess                          over a few columns
    Generic                                 any structure matrix
    Interaction, Replicated                 space by time; a series for each group
    SumOfTerms                              their sum, as one family

``Term`` is the contract, ``LevelTerm`` what those over the levels of a column share; ``register`` gives a term of
one's own a word in formulas.
"""

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
from .words import WORDS, register

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
