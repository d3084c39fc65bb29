"""Very large latent Gaussian models without a factor of their precision: conjugate gradients, probes, intervals.

``layout.py`` is which latents are eliminated, which are met in blocks and which make a dense border, and the rows of a
design by these; ``system.py`` the precision P at one lam, with its solves, probes and log determinant;
``probed_fit.py`` q at given hyperparameters, ``certificate.py`` what is proved and what is estimated of it, as numbers
known up to an interval; ``probed_evidence.py`` the hyperparameters, ``probed_posterior.py`` what comes back.
"""

from __future__ import annotations

from .certificate import EstimatedInterval
from .probed_evidence import learn
from .probed_posterior import IterativeFit

__all__ = ["EstimatedInterval", "IterativeFit", "learn"]
