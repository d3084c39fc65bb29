"""Where to fit, in coordinates u in which the posterior of theta is nearly N(0, I), and the mass each point stands for.

    lattice      sums over even points are exact beyond all powers of their distance for smooth densities      d <= 4
                 d = 1, 2: h Z^d.  d = 3, 4: (a/2) times all-even or all-odd whole numbers, the centres of its cubes too
    composite    the centre, +-f e_k and a fractional factorial (+-1, ..., +-1) f / sqrt(d), f = 1.1 sqrt(d)

For N(0, I) a lattice errs by about the sum of exp(-2 pi^2 |k|^2) over the shortest vectors k of its dual, which are
longer by sqrt(2) where cubes have centres: some 1e-8, 1e-5, 3e-3 and 7e-3 for the distances here, with 7, 21, 33 and 60
points within sqrt(12) of the centre. The masses are those under N(0, I): of a lattice its cells, and of a composite
design those that have the second moments right, 1 - d/f^2 at the centre and d/f^2 shared by the others. The factorial
has resolution V: no product of four or fewer of its columns is constant, so that no two products of two directions are
confounded.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

_SPACING = {1: 1.0, 2: 1.25, 3: 1.1, 4: 1.1}  # of places
MOST = max(_SPACING)  # the most directions of a lattice
_RADIUS = 1.1  # of a composite design, times sqrt(d)


class ThetaDesign(NamedTuple):
    """u (m, d) and the logs of the masses under N(0, I) (m,)."""

    u: np.ndarray
    log_mass: np.ndarray


def log_normal(u: np.ndarray) -> np.ndarray:
    """log of the density of N(0, I) at u (..., d)."""
    return np.asarray(-0.5 * (u * u).sum(axis=-1) - 0.5 * u.shape[-1] * np.log(2.0 * np.pi))


def lattice(places: np.ndarray) -> ThetaDesign:
    """The points at ``places`` (m, d), whole numbers."""
    d = places.shape[1]
    u = _SPACING[d] * places
    cell = d * np.log(_SPACING[d]) + (0.0 if d < 3 else (d - 1) * np.log(2.0))
    return ThetaDesign(u, log_normal(u) + cell)


def block(d: int) -> np.ndarray:
    """The places nearest to the centre, and itself."""
    every = np.array(list(product((-1, 0, 1), repeat=d)))
    centred = np.abs(every).sum(axis=1) % d == 0  # none or all of them odd
    return np.concatenate([every[centred], 2 * np.eye(d, dtype=int), -2 * np.eye(d, dtype=int)]) if d > 2 else every


def _ways(d: int) -> np.ndarray:
    """The steps from a place to its neighbours."""
    return np.array(list(product((-1, 1), repeat=d))) if d > 2 else np.concatenate([np.eye(d), -np.eye(d)]).astype(int)


def edge(places: np.ndarray) -> np.ndarray:
    """The neighbours of places that are none of them."""
    around = {tuple(place + way) for place in places for way in _ways(places.shape[1])}
    return np.array(sorted(around - {tuple(place) for place in places}))


def continued(places: np.ndarray, values: np.ndarray, beyond: np.ndarray) -> np.ndarray:
    """Values at the edge as the lines through the last three places before it go on, on average over the ways to it.

    Concave as they were there: a line whose last three bend up goes on straight. -inf where no three are in a row.
    """
    known = {tuple(place): value for place, value in zip(places, values, strict=True)}
    out = np.full(len(beyond), -np.inf)
    for k, place in enumerate(beyond):
        rows = [[known.get(tuple(place - i * way)) for i in (1, 2, 3)] for way in _ways(places.shape[1])]
        found = [
            2.0 * p - q + min(0.0, p - 2.0 * q + r) for p, q, r in rows if not (p is None or q is None or r is None)
        ]
        out[k] = np.mean(found) if found else -np.inf
    return out


def composite(d: int) -> ThetaDesign:
    """A central composite design.

    Examples
    --------
    >>> from fenchel.hyperparameters.integration.designs import composite
    >>> [len(composite(d).u) for d in (4, 5, 6, 8, 10)]
    [25, 27, 45, 81, 149]
    """
    return _about_centre(d, factorial(d))


def star(d: int) -> ThetaDesign:
    """The centre and +-f e_k alone: the second moments of a composite design, by 2 d + 1 points.

    Examples
    --------
    >>> from fenchel.hyperparameters.integration.designs import star
    >>> import numpy as np
    >>> each = star(3)
    >>> np.allclose(each.u.T @ (np.exp(each.log_mass)[:, None] * each.u), np.eye(3))
    True
    """
    return _about_centre(d, np.zeros((0, d)))


def _about_centre(d: int, corners: np.ndarray) -> ThetaDesign:
    """The centre, +-f e_k, and corners at the same distance f, with equal masses but for the centre."""
    f = _RADIUS * np.sqrt(d)
    u = np.concatenate([np.zeros((1, d)), f * np.eye(d), -f * np.eye(d), _RADIUS * corners])
    share = d / f**2
    return ThetaDesign(u, np.log(np.r_[1.0 - share, np.full(len(u) - 1, share / (len(u) - 1))]))


def factorial(d: int) -> np.ndarray:
    """A two-level factorial (runs, d) of -1 and 1 with resolution V.

    A column is a product of the basic ones, named by a number whose bits say which; the exclusive or of numbers is
    the product of columns. The smallest next number that is no product of three or fewer before it is taken.
    """
    names: list[int] = []
    taken = {0}
    while len(names) < d:
        new = next(n for n in range(1, 1 << (d + 1)) if n not in taken)
        names.append(new)
        twice = {a ^ b for a in [0, *names] for b in [0, *names]}
        taken = {a ^ b for a in [0, *names] for b in twice}
    runs = np.arange(1 << max(names).bit_length())
    return np.array([[1 - 2 * (bin(run & name).count("1") % 2) for name in names] for run in runs], dtype=np.float64)
