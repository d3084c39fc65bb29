"""Fits of Dask collections, whose rows need not fit in memory, with the same certificate as other fits.

``partitions.py`` has the columns of a partitioned problem and ``rows.reduce(work)``, which adds up the results of a
function of one partition. A latent Gaussian model is a ``PartitionedProblem``: a ``Reader`` makes the design, y and
offsets of a partition, a ``PartitionedPrior`` is the prior of the latents, and ``solve`` makes the passes over the
rows.
"""

from .approximation import Learning, PartitionedSolution
from .checkpoint import Checkpoint, FitState
from .partitions import Block, InMemory, Interrupted, Partitions, Sums, computed, is_dask, is_partitioned
from .passes import PartitionedFit, PartitionedProblem, solve
from .precision import PartitionedPrior
from .row_sums import Chunk, Reader, chunk_rows

__all__ = [
    "Block",
    "Checkpoint",
    "Chunk",
    "FitState",
    "InMemory",
    "Interrupted",
    "Learning",
    "PartitionedFit",
    "PartitionedPrior",
    "PartitionedProblem",
    "PartitionedSolution",
    "Partitions",
    "Reader",
    "Sums",
    "chunk_rows",
    "computed",
    "is_dask",
    "is_partitioned",
    "solve",
]
