"""Beyond the Gaussian q: the evidence and the marginals with each likelihood as it is (docs/corrections.md)."""

from .corrected import Corrected, correct

__all__ = ["Corrected", "correct"]
