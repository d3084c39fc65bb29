"""Criteria of a fit: how well it predicts what it has not seen. Those that refit are in ``fenchel.validation``."""

from .information import InformationCriterion, dic, waic
from .loo import LeaveOneOut, leave_one_out
from .rows import RowScores
from .stacking import stacking_weights

__all__ = [
    "InformationCriterion",
    "LeaveOneOut",
    "RowScores",
    "dic",
    "leave_one_out",
    "stacking_weights",
    "waic",
]
