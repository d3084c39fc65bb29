"""Gaussian Markov random fields: functions that make sparse priors with hyperparameters, and their sums.

    iid, rw1, rw2, ar1, seasonal            along an index
    icar, bym, bym2, leroux                 on a graph (``as_adjacency`` takes scipy sparse, edges, networkx, libpysal)
    lattice, matern                         on a regular grid
    generic                                 any structure matrix
    mesh, spde, vecchia, times              modules: triangulations and fields over points, processes in time
    stack                                   eta = intercept + X beta + u[region] + w[time] + ... as one prior

Each is a ``Family``: ``at(theta)`` is the prior, and ``gradient(solution, theta)`` the gradient of the evidence.
"""

from .base import MarkovField, iid
from .series import ar1, generic, rw1, rw2, seasonal
from .space import as_adjacency, bym, bym2, icar, lattice, leroux, matern
from .stack import StackedField, stack

__all__ = [
    "MarkovField",
    "StackedField",
    "ar1",
    "as_adjacency",
    "bym",
    "bym2",
    "generic",
    "icar",
    "iid",
    "lattice",
    "leroux",
    "matern",
    "rw1",
    "rw2",
    "seasonal",
    "stack",
]
