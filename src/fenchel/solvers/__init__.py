"""Solvers: ``base.py`` has the contract; each solver has a file of its own."""

from ..row_scores import LeaveOneOut
from .base import Accuracy, Ending, Finisher, Outcome, Solver, Stopping, Trace
from .exact import CoupledDirection, CoupledNewton, CoupledSearch, CoupledStart
from .lbfgs import FeasibleLBFGS, WalledSearch
from .newton import MirrorDirection, MirrorNewton, MirrorSearch
from .row_steps import RowSteps
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
