"""Every method at one setting of the Germany experiment, on one clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..inference import infer
from ..solvers import Solution
from .germany_fits import TOL, Pair, Reading, Split
from .race import Entry, Runner, race
from .settings import Settings

BANDWIDTH = 25


@dataclass(frozen=True)
class Race:
    """All methods at one setting. The first entry is the dual Newton on the dense prior; the sparse ones come last.

    best, best_gap : the certified optimum and its certificate
    sparse_elbo : the optimum by the sparse prior
    newton, newton_dense, lbfgs : fits from scratch at relative gap 1e-8, for the number of iterations
    """

    title: str
    at: Pair
    best: float
    best_gap: float
    sparse_elbo: float
    newton: Solution
    newton_dense: Solution
    lbfgs: Solution
    entries: list[Entry]
    cap: float

    @property
    def ends(self) -> dict[str, float]:
        """How far above the certified optimum (nats) each method of this bound ended that converged or got near."""
        shared = [(e.name, e.solution, e.capped) for e in self.entries if e.runner.same_bound and e.solution]
        near = [(n, s) for n, s, capped in shared if s.converged or (s.ending.code == "callback" and not capped)]
        return {n: s.elbo - self.best for n, s in near}

    @property
    def late(self) -> list[str]:
        """Methods of this bound that stalled or were stopped by the cap."""
        return [e.name for e in self.entries if e.runner.same_bound and e.name not in self.ends]


def runners(quick: bool = False) -> tuple[list[Runner], list[Runner]]:
    """Those that run on the dense prior, and those on the sparse one."""
    from . import rivals

    band = partial(rivals.primal_cholesky, bandwidth=BANDWIDTH)
    duals = [
        ("dual Newton", partial(infer, method="newton"), "mirror Newton in s"),
        ("dual L-BFGS", partial(infer, method="lbfgs"), "the paper's method: 20 pairs, feasible Wolfe steps"),
    ]
    dense = [
        *(Runner(*dual) for dual in duals),
        Runner("Opper-Archambeau", partial(rivals.opper_archambeau, mean="latent"), "over (m, lam) as in the paper"),
        Runner(
            "Opper-Archambeau, whitened", partial(rivals.opper_archambeau, mean="white"), "the mean in whitened latents"
        ),
        Runner("primal Cholesky", rivals.primal_cholesky, "over the mean and a full Cholesky factor"),
        Runner("primal (m, V)", rivals.primal_full, "over the mean and the covariance itself"),
        Runner("coordinate ascent", rivals.coordinate_ascent, "Khan et al. 2012, rank-one updates"),
        Runner("mean field", rivals.mean_field, "V diagonal", False),
        Runner("primal Cholesky, banded", band, f"a band of {BANDWIDTH}, districts by number", False),
        Runner("Laplace", rivals.laplace, "the mode and its curvature", False),
        Runner("EP", rivals.ep, "damped expectation propagation", False),
    ]
    if quick:
        dense = [dense[i] for i in (0, 1, 2, 3, 9)]
    return dense, [Runner(f"{name}, sparse prior", call, words) for name, call, words in duals]


def race_at(reading: Reading, data: Split, at: Pair, title: str, cap: float, settings: Settings) -> Race:
    """Every method at one setting, in the training districts, from one start: the prior's mean and lam = y.

    The library's own start, which suits the dual, lies so far out for the primal methods that they would need several
    times as long; it is used only where iterations of the dual are counted.
    """
    rows, quick, tick = data.train, settings.quick, settings.tick
    s = np.log(np.where(np.isnan(data.y), 1.0, data.y) / (1.0 if reading.exposure is None else reading.exposure))
    dense = (reading.likelihood(rows), reading.dense_prior(at, rows), data.y[rows])
    sparse = (reading.likelihood(), reading.prior(at), data.y)
    top, twin = infer(*dense, tol=1e-12), infer(*sparse, tol=1e-12)
    on_dense, on_sparse = (
        [replace(r, call=partial(r.call, start=start)) for r in group]
        for group, start in zip(runners(quick), (s[rows], s), strict=True)
    )
    repeats = {r.name: (2 if quick else 3) if "L-BFGS" in r.name else 5 for r in (*on_dense[:2], *on_sparse)}
    options: dict[str, Any] = {
        "cap": cap,
        "tol": TOL,
        "repeats": repeats,
        "tick": lambda what: tick(f"{title}: {what}"),
    }
    entries = race(dense, on_dense, top.elbo, **options) + race(sparse, on_sparse, top.elbo, **options)
    return Race(
        title=title,
        at=at,
        best=top.elbo,
        best_gap=top.gap,
        sparse_elbo=twin.elbo,
        newton=infer(*sparse, tol=TOL),
        newton_dense=infer(*dense, tol=TOL),
        lbfgs=infer(*sparse, method="lbfgs", tol=TOL, max_iter=100 if quick else 2000),
        entries=entries,
        cap=cap,
    )
