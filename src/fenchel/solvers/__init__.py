"""How the dual is minimised: ``base`` is the contract; one solver a file."""

from .base import Outcome, Solver, Stopping, Trace
from .ending import Ending
from .exact import CoupledNewton
from .lbfgs import FeasibleLBFGS
from .newton import MirrorNewton
from .solution import LeaveOneOut, Solution

__all__ = [
    "CoupledNewton",
    "Ending",
    "FeasibleLBFGS",
    "LeaveOneOut",
    "MirrorNewton",
    "Outcome",
    "Solution",
    "Solver",
    "Stopping",
    "Trace",
]
