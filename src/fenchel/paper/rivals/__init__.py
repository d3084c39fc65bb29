"""The methods the paper is compared with, on the same problem, the same start and the same clock.

Each takes the same ``(likelihood, prior, y)`` as ``infer`` and returns the same ``Solution``. Its elbo is the value of
the same float64 objective at its own q, and judging it does not count as its time. They work in dense latents on the
host.
"""

from .coordinate import coordinate_ascent
from .ep import ep
from .laplace import laplace
from .opper_archambeau import opper_archambeau
from .primal import mean_field, primal_cholesky, primal_full

__all__ = [
    "coordinate_ascent",
    "ep",
    "laplace",
    "mean_field",
    "opper_archambeau",
    "primal_cholesky",
    "primal_full",
]
