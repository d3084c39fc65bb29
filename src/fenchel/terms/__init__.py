"""Terms: the summands of eta, read against a table, with sparse priors and typed hyperparameters.

    Covariate                               a number or a factor, as fixed effects
    IID                                     groups, and with ``by`` slopes of groups
    Grouped                                 intercepts and slopes of groups, correlated or not
    MultipleMembership, KnownCovariance     several groups a row; pedigrees and phylogenies
    Smooth, Tensor                          penalised splines and surfaces
    GaussianProcess                         over the points of some columns, by a kernel
    RW1, RW2, AR1, Seasonal                 in time
    AR, Wiener, IntegratedWiener, OrnsteinUhlenbeck, MaternSeries      of any order, at any times
    ICAR, BYM, BYM2, Leroux                 on graphs
    Matern                                  over points in the plane
    VecchiaProcess                          over a few columns
    Generic                                 any structure matrix
    Interaction, Replicated                 space by time; a series for each group
    SumOfTerms                                   their sum, as one family

``Term`` is the contract, ``LevelTerm`` what those over the levels of a column share.
"""

from ..inputs.frames import DataColumn, DataTable, Kind
from .base import Hyperparameter, Rows, Term, correlation, precision, share, variance
from .fixed import Covariate
from .grouped import IID, LevelTerm
from .interaction import Interaction, Replicated
from .membership import KnownCovariance, MultipleMembership
from .model import SumOfTerms
from .points import Matern
from .processes import GaussianProcess
from .series import AR1, RW1, RW2, Seasonal
from .slopes import Grouped
from .smooths import Smooth
from .space import BYM, BYM2, ICAR, Generic, Leroux
from .stationary import MaternSeries, matern
from .surfaces import Tensor
from .time import AR, IntegratedWiener, OrnsteinUhlenbeck, Wiener
from .vecchia import VecchiaProcess

__all__ = [
    "AR",
    "AR1",
    "BYM",
    "BYM2",
    "ICAR",
    "IID",
    "RW1",
    "RW2",
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
    "Rows",
    "Seasonal",
    "Smooth",
    "SumOfTerms",
    "Tensor",
    "Term",
    "VecchiaProcess",
    "Wiener",
    "correlation",
    "matern",
    "precision",
    "share",
    "variance",
]
