"""Fitted things in files: one archive of arrays and json, versioned, that runs no code when it is loaded."""

from .archive import digest
from .statements import SharedRows, Stated, StatedEstimator, Statement, is_loading, next_search, searched, stated
from .stored import TRUSTED, Stored, load, save

__all__ = [
    "TRUSTED",
    "SharedRows",
    "Stated",
    "StatedEstimator",
    "Statement",
    "Stored",
    "digest",
    "is_loading",
    "load",
    "next_search",
    "save",
    "searched",
    "stated",
]
