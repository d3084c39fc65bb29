"""Fits of rows that live in partitions, out of one machine's memory, by Dask: the certificate is the same."""

from .partitions import Block, Partitions
from .running import Interrupted, computed, is_dask
from .sums import Sums

__all__ = ["Block", "Interrupted", "Partitions", "Sums", "computed", "is_dask"]
