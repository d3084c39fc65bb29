"""How the dual is minimised: ``base`` is the contract; one solver a file."""

from ..row_scores import LeaveOneOut
from .base import Ending, Finisher, Outcome, Solver, Stopping, Trace
from .exact import CoupledNewton, CoupledSearch, CoupledStart
from .lbfgs import FeasibleLBFGS, WalledSearch
from .newton import MirrorNewton, MirrorSearch
from .row_steps import Accuracy, CoupledDirection, MirrorDirection, RowSteps
from .solution import Solution

__all__ = [
    "Accuracy",
    "CoupledDirection",
    "CoupledNewton",
    "CoupledSearch",
    "CoupledStart",
    "Ending",
    "FeasibleLBFGS",
    "Finisher",
    "LeaveOneOut",
    "MirrorDirection",
    "MirrorNewton",
    "MirrorSearch",
    "Outcome",
    "RowSteps",
    "Solution",
    "Solver",
    "Stopping",
    "Trace",
    "WalledSearch",
]
