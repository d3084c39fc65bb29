"""Predictive criticism of a fit: information criteria, leave-group-out, k-fold cross-validation, model comparison.

Leave-one-out by cavities, which needs no refit, is in ``fenchel.row_scores``.
"""

from .cavities import correlated_rows
from .comparison import InformationCriterion, compare, stacking_weights, waic
from .folds import KFold, folds_of, k_fold
from .group_mixtures import leave_group_out_over
from .group_prediction import LeaveGroupOut, leave_group_out

__all__ = [
    "InformationCriterion",
    "KFold",
    "LeaveGroupOut",
    "compare",
    "correlated_rows",
    "folds_of",
    "k_fold",
    "leave_group_out",
    "leave_group_out_over",
    "stacking_weights",
    "waic",
]
