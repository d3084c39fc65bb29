"""``python -m fenchel.compile``: compile the loops of larger fits now, so that no fit waits for them.

numba keeps what it compiled beside the package or in ``NUMBA_CACHE_DIR``; in the image of a container this command is
run once, after the installation. Every entry of ``WORK`` is a fit just large enough to leave numpy for compiled loops.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def _table(n: int, levels: int) -> Any:
    """n rows with a grouping of ``levels``, places, and targets of three kinds."""
    import pandas as pd

    rng = np.random.default_rng(0)
    g, x = np.arange(n) % levels, rng.normal(size=n)
    u, v = rng.uniform(0.0, 10.0, n), rng.uniform(0.0, 10.0, n)
    eta = 0.5 * x + np.sin(u) + 0.5 * rng.normal(size=levels)[g]
    real, event = eta + 0.5 * rng.normal(size=n), rng.random(n) < 1.0 / (1.0 + np.exp(-eta))
    columns = {"x": x, "u": u, "v": v, "g": g, "h": rng.integers(0, levels // 2, n)}
    return pd.DataFrame({**columns, "real": real, "count": rng.poisson(np.exp(eta)), "event": event.astype(int)})


def _lattice(side: int) -> dict[int, list[int]]:
    """Neighbours of the cells of a square."""
    cells = np.arange(side * side).reshape(side, side)
    out: dict[int, list[int]] = {int(cell): [] for cell in cells.flat}
    pairs = [
        *zip(cells[1:].flat, cells[:-1].flat, strict=True),
        *zip(cells[:, 1:].flat, cells[:, :-1].flat, strict=True),
    ]
    for a, b in pairs:
        out[int(a)].append(int(b))
        out[int(b)].append(int(a))
    return out


def _formula(text: str, family: str, levels: int, n: int | None = None, **options: Any) -> object:
    from .models import fit

    return fit(text, _table(n or 2 * levels, levels), family=family, **options)


def _corrected() -> object:
    return _formula("event ~ x + (1|g)", "bernoulli", 60, 400).corrected()  # type: ignore[attr-defined]


def _sparse_rows() -> object:
    import scipy.sparse as sp

    from .estimators import BayesianLogisticRegression

    X = sp.random_array((4000, 30), density=0.05, rng=np.random.default_rng(0), format="csr")
    return BayesianLogisticRegression().fit(X, np.arange(4000) % 2)


WORK: dict[str, Callable[[], object]] = {
    "groups": lambda: _formula("count ~ x + (1|g)", "poisson", 2400),
    "groups with slopes": lambda: _formula("event ~ x + (x|g)", "bernoulli", 1200, 6000),
    "crossed groups": lambda: _formula("real ~ x + (1|g) + (1|h)", "gaussian", 2400, 6000),
    "maps": lambda: _formula("count ~ x + bym2(g)", "poisson", 1600, graphs={"g": _lattice(40)}),
    "fields on a mesh": lambda: _formula("real ~ matern(u, v)", "gaussian", 400, 1500),
    "nearest neighbours": lambda: _formula("real ~ vecchia(u, v)", "gaussian", 20, 1500),
    "corrections": _corrected,
    "sparse rows": _sparse_rows,
}


def main() -> int:
    """Every entry of ``WORK``, with the seconds it took."""
    logging.getLogger("fenchel").setLevel(logging.ERROR)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k, (name, work) in enumerate(WORK.items()):
            print(f"{k + 1} of {len(WORK)}  {name:20s} ", end="", flush=True)
            here = time.perf_counter()
            work()
            print(f"{time.perf_counter() - here:6.1f} s", flush=True)
    from .linalg.compiled import folder

    print(f"{time.perf_counter() - began:.0f} s in all; kept in {folder() or 'no folder: set NUMBA_CACHE_DIR'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
