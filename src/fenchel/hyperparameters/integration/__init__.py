"""Integration over hyperparameters: ``integrate`` and what it returns."""

from .designs import composite
from .integrated import Integrated
from .integrating import integrate
from .mixture import Mixture
from .points import Finished
from .theta import ThetaPosterior

__all__ = ["Finished", "Integrated", "Mixture", "ThetaPosterior", "composite", "integrate"]
