"""How the dual is minimised: ``base`` is the contract; one solver a file."""

from ..criteria import LeaveOneOut
from .base import Finisher, Outcome, Solver, Stopping, Trace
from .coupled_search import CoupledSearch
from .coupled_start import CoupledStart
from .directions import Accuracy, CoupledDirection, MirrorDirection
from .ending import Ending
from .exact import CoupledNewton
from .lbfgs import FeasibleLBFGS
from .mirror_search import MirrorSearch
from .newton import MirrorNewton
from .quasi_newton import WalledSearch
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
