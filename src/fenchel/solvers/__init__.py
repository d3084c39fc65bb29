"""Workshop: how the dual is minimised. ``base`` is the contract; one solver a file."""

from .base import Outcome, Solver, Stopping, Trace
from .lbfgs import FeasibleLBFGS
from .newton import MirrorNewton
from .solution import LeaveOneOut, Solution

__all__ = ["FeasibleLBFGS", "LeaveOneOut", "MirrorNewton", "Outcome", "Solution", "Solver", "Stopping", "Trace"]
