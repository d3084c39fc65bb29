"""Very large latent Gaussian models without a factor of their precision: conjugate gradients, probes, intervals.

``layout.py`` is which latents are eliminated, which are met in blocks and which make a dense border; ``pairs.py``
A' Lam A on a pattern known once, ``rows.py`` the rows of a design; ``system.py`` the precision P at one lam, with its
solves, probes and log determinant; ``task.py`` likelihood, prior and y, ``fitting.py`` q at given hyperparameters,
``variances.py`` variances at any rows, ``certificate.py`` what is proved and what is estimated, ``interval.py`` numbers
known up to an interval; ``learning.py`` the hyperparameters, ``fitted.py`` what comes back.
"""

from __future__ import annotations

from .fitted import IterativeFit
from .interval import Interval
from .learning import learn

__all__ = ["Interval", "IterativeFit", "learn"]
