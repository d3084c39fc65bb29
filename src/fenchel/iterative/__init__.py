"""Very large latent Gaussian models without a factor of their precision: conjugate gradients, probes, intervals.

``layout.py`` is which latents are eliminated, which are met in blocks and which make a dense border; ``pairs.py``
A' Lam A on a pattern known once; ``system.py`` the precision P at one lam, with its solves, probes and log determinant;
``fitting.py`` q at given hyperparameters, ``certificate.py`` what is proved and what is estimated of it,
``interval.py`` numbers known up to an interval; ``learning.py`` the hyperparameters, ``fitted.py`` what comes back.
"""

from __future__ import annotations
