"""Criteria of a fit: how well it predicts what it has not seen. Those that refit are in ``fenchel.validation``."""

from .information import InformationCriterion, waic
from .loo import LeaveOneOut, leave_one_out
from .pit import Pit, cavity_pit, pit_counts
from .rows import RowScores
from .stacking import stacking_weights

__all__ = [
    "InformationCriterion",
    "LeaveOneOut",
    "Pit",
    "RowScores",
    "cavity_pit",
    "leave_one_out",
    "pit_counts",
    "stacking_weights",
    "waic",
]
