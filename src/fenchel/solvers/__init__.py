"""Workshop: how the dual is minimised. ``base`` is the contract; one solver a file."""

from ..criteria import LeaveOneOut
from .base import Outcome, Solver, Stopping, Trace
from .lbfgs import FeasibleLBFGS
from .newton import MirrorNewton
from .solution import Solution

__all__ = ["FeasibleLBFGS", "LeaveOneOut", "MirrorNewton", "Outcome", "Solution", "Solver", "Stopping", "Trace"]
