"""Fits of rows that live in partitions, out of one machine's memory, by Dask: the certificate is the same.

``partitions.py`` says how a partitioned problem is described: columns by name, and a function of one partition whose
answers are added up, ``rows.reduce(work)``. A latent Gaussian model on top of it is a ``PartitionedProblem``: a
``Reader`` makes a design, y and offsets of a partition, a ``PartitionedPrior`` is the prior of the latents, and
``solve`` runs the passes.
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
