"""Corrections of the Gaussian q: evidence and marginals under the exact likelihood (docs/corrections.md)."""

from .corrected import Corrected, correct

__all__ = ["Corrected", "correct"]
