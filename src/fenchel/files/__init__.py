"""Fitted things in files: one archive of arrays and json, versioned, that runs no code when it is loaded."""

from .archive import digest
from .keeping import load, save
from .stored import TRUSTED, Stored

__all__ = ["TRUSTED", "Stored", "digest", "load", "save"]
