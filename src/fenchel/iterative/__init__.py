"""Very large latent Gaussian models without a Cholesky factor: conjugate gradients, random probes, interval results.

``layout.py`` splits the latents into those that are eliminated, those in blocks, and a dense border, and splits the
design in the same way. ``system.py`` has the precision P at one lam, with solves, probes and log determinant.
``probed_fit.py`` fits q at given hyperparameters, and ``certificate.py`` computes its certificate as intervals.
``probed_evidence.py`` learns the hyperparameters, and ``probed_posterior.py`` is the result.
"""

from __future__ import annotations

from .certificate import EstimatedInterval
from .probed_evidence import learn
from .probed_posterior import IterativeFit

__all__ = ["EstimatedInterval", "IterativeFit", "learn"]
