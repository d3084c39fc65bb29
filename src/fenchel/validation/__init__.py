"""Prediction of groups of rows that a fit has not seen: without a refit where that is enough, by refits elsewhere."""

from .folds import KFold, folds_of, k_fold
from .groups import LeaveGroupOut, leave_group_out
from .mixtures import leave_group_out_over
from .neighbours import correlated_rows

__all__ = ["KFold", "LeaveGroupOut", "correlated_rows", "folds_of", "k_fold", "leave_group_out", "leave_group_out_over"]
