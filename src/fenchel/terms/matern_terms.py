"""Matern fields over points in the plane, on a triangulation (``gmrf/spde.py``).

eta_i = sum over the corners of the triangle that holds point i of (barycentric weight) z_corner
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.spatial.distance import cdist

from ..checks import instance, numeric, problem, scalar
from ..gmrf.mesh import Mesh
from ..gmrf.mesh_making import LINK, Bulk, bulk_of, gaps, remade
from ..gmrf.mesh_making import mesh as triangulated
from ..gmrf.precisions import Precision
from ..gmrf.spde import BARRIER, TWO_RANGES, correlation, cutoff, diffusion, n_fields, smoothness
from ..hyperparameters.priors import PCDeviation
from ..inputs.frames import DataColumn, DataTable, Kind
from .base import Term, TermRows, effect_range, stationary_sd
from .forecast import Unseen, UnseenPoints
from .smoothness import LEAST_ROWS, Smoothness, SmoothnessTrials, ratio_of_ranges, started

# -- Columns of coordinates, and what a user should know of them and of times: rows far from the others, degrees ---
_DEGREES = ({"lon", "long", "lng", "longitude"}, {"lat", "latitude"})
_INSTEAD = {  # what to write over a column that holds something else
    Kind.TEXT: "A level for each of them is (1|g).",
    Kind.CATEGORIES: "A level for each of them is (1|g).",
    Kind.DATES: "rw1() and rw2() are smooth in time and take dates.",
}
_UNITS = 100.0  # times that one axis spans another, from which they may be in two units
_GLOBAL = 60.0  # degrees that coordinates span, from which no plane holds them
_STRAY = 0.1  # share of the rows above which times far from the others are another campaign, not a slip
_SKEWED = 0.95  # of a degree of latitude that one of longitude is, below which the two are different units


def numbers_of(table: DataTable, names: Sequence[Hashable]) -> np.ndarray:
    """Columns of numbers (N, d)."""
    columns = [table.column(name) for name in names]
    return np.stack([column.numbers(_INSTEAD.get(column.kind, "")) for column in columns], axis=1)


def coordinate_remarks(inputs: Sequence[Hashable], X: np.ndarray, bulk: Bulk, places: np.ndarray) -> list[str]:
    """Sentences about coordinates (N, d) that have one range; ``places`` (N,) are the numbers of the rows."""
    out = [far_rows(inputs, X, bulk, places), two_units(inputs, bulk), degrees(inputs, X[~bulk.far])]
    return [sentence for sentence in out if sentence is not None]


def spans_of(
    inputs: Sequence[Hashable], X: np.ndarray, shared: bool, places: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """How wide the bulk of coordinates (N, d) is, in all where one range is ``shared`` or by column, and remarks."""
    if shared:
        bulk = bulk_of(X)
        return np.array([bulk.extent]), coordinate_remarks(inputs, X, bulk, places)
    columns = [(name, X[:, [j]]) for j, name in enumerate(inputs)]
    bulks = [bulk_of(x) for _, x in columns]
    far = [far_rows([name], x, bulk, places) for (name, x), bulk in zip(columns, bulks, strict=True)]
    return np.array([bulk.extent for bulk in bulks]), [sentence for sentence in far if sentence is not None]


def far_rows(inputs: Sequence[Hashable], X: np.ndarray, bulk: Bulk, places: np.ndarray) -> str | None:
    """Which rows are far from the others; None where none is."""
    far = np.flatnonzero(bulk.far)
    if not far.size:
        return None
    low, high = X[~bulk.far].min(axis=0), X[~bulk.far].max(axis=0)
    gap, extent = gaps(X, low, high), float((high - low).max())
    i = int(np.argmax(gap))
    at = ", ".join(f"{name} = {value:.6g}" for name, value in zip(inputs, X[i], strict=True))
    times = f"{gap[i] / extent:.4g}"
    others = f"the other {len(X) - far.size} rows are wide ({extent:.3g})"
    check = "Check for a missing-value code or another unit"
    if far.size == 1:
        return f"row {places[i]} ({at}) lies {times} times as far away as {others}. {check}"
    least = f"{gap[far].min() / extent:.4g}"
    reach = f"{far.size} rows lie {least} to {times} times as far away as {others}"
    return f"{reach}, furthest row {places[i]} ({at}). {check}"


def far_times(column: DataColumn, places: np.ndarray) -> list[str]:
    """A sentence about a few rows whose time, a number, is far from all others; empty where there are none."""
    if column.kind is not Kind.NUMBERS:
        return []
    times = np.array([np.nan if value is None else value for value in column.values], dtype=np.float64)
    there = np.isfinite(times)
    X = times[there, None]
    if not len(X):
        return []
    bulk = bulk_of(X)
    sentence = far_rows([column.name], X, bulk, places[there]) if bulk.far.mean() <= _STRAY else None
    return [] if sentence is None else [sentence]


def two_units(inputs: Sequence[Hashable], bulk: Bulk) -> str | None:
    """Whether one axis spans so much more than another that their units may differ; None where it does not."""
    spans = bulk.high - bulk.low
    a, b = int(np.argmax(spans)), int(np.argmin(spans))
    if not spans[b] or spans[a] < _UNITS * spans[b]:
        return None
    return (
        f"{inputs[a]} spans {spans[a]:.3g} and {inputs[b]} {spans[b]:.3g}, but one range is learned for both. "
        "Check that they are in one unit"
    )


def degrees(inputs: Sequence[Hashable], X: np.ndarray) -> str | None:
    """What is wrong with coordinates that look like degrees, by their names and values; None where they do not."""
    if len(inputs) != 2:
        return None
    words = [{part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", str(name))} for name in inputs]
    order = next((o for o in ([0, 1], [1, 0]) if all(words[k] & _DEGREES[j] for j, k in enumerate(o))), None)
    if order is None:
        return None
    longitude, latitude = X[:, order[0]], X[:, order[1]]
    if np.abs(longitude).max() > 360.0 or np.abs(latitude).max() > 90.0:
        return None
    span = max(float(np.ptp(longitude)), float(np.ptp(latitude)))
    if span > _GLOBAL:
        return (
            f"the coordinates look like degrees and span {span:.0f} of them. Distances in a plane are not those along "
            "great circles: -180 and 180 are one meridian, and degrees of longitude shrink towards the poles"
        )
    middle = float(latitude.mean())
    share = float(np.cos(np.radians(middle)))
    if share > _SKEWED:
        return None
    return (
        f"the coordinates look like degrees. At latitude {middle:.0f} one of longitude is {share:.2f} of one of "
        "latitude, so that the range has no one unit: project them to kilometres first"
    )


# --------------------------------------------------------------------------------------------------
_EDGES = 12.0  # edges a range on a finer mesh: noise is then 3 % high
_COARSE = 9.0  # edges a range below which a finer mesh is made: noise is 5 % high
_ALONE = 5.0  # edges a range on a finer mesh without noise beside the field: means are within 0.06 sd, sds within 15 %
_COARSE_ALONE = 4.0  # edges a range below which one is made there
_FINEST = 160  # edges along the extent of one that is made so
_FINEST_ROUGH = 320  # the same of a field rougher than nu = 1, where rows are as near
_FAR = 0.5  # extents: a longer range has a wider collar
_FARTHEST = 2.0  # extents: the widest collar
_INDEPENDENT = 4.0  # ranges: a field is independent at two points this far apart, to 1e-4
_SHORT = 4.0  # edges a range below which a remark says so
_SPACING = (
    2.0  # mean distances of rows: the shortest edge under a field rougher than nu = 1, so that nodes have a few rows
)
SIDE = 40  # points of the longer side of the grid where a field is shown


class Matern(Term):
    """A Matern field over points in the plane, on a mesh of triangles.

    Parameters
    ----------
    x, y : names of columns of numbers
        Coordinates, both in the same unit: kilometres, not degrees.
    mesh : Mesh, optional
        A mesh made by ``fenchel.mesh``. Default: a mesh of the points of the fit. If the range turns out to be short
        for its edges or long for its margin, the field is learned once more on a finer or a wider mesh.
    nu : float or "two ranges", optional
        Smoothness, 0.1 to 3: 1/2 is an exponential covariance. "two ranges" has a second, shorter range. Below it the
        field is as smooth as with nu = 1, and above it rougher than with 1/2. 0 is its limit, where the mesh decides
        how rough the field is. Default: the evidence on the first mesh chooses among 0, 1/2, 1, 3/2, 2 and "two
        ranges"; 1 with fewer than 100 rows or with barriers. ``details`` says by how much. Values of nu that are not
        whole numbers need two latents at each node.
    edge : float, optional
        Length of the edges of the default mesh.
    prior_range : (r, a), optional
        P(range < r) = a. Default: a = 0.05, r an edge of the mesh or a twentieth of the extent of the bulk of points.
    prior_sd : (s, a), optional
        P(sd > s) = a (Fuglstad et al. 2019). Default: half-normal, s = 3 times the scale of eta, a = 0.05.
    barrier : float
        Range inside the barriers of the mesh, as a share of the range outside.
    name : hashable, optional

    Beyond the default mesh the field is predicted with a mean that tends to 0 and the variance that it has there. A
    mesh with a boundary or holes refuses points outside it: ``mesh.inside(points)`` says which points are inside.
    A remark names points of the fit that are further from the bulk of points than the bulk is wide. They have a
    separate mesh with an independent field, unless the range turns out to reach that far.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.terms import DataTable, Matern
    >>> rng = np.random.default_rng(0)
    >>> table = DataTable("here", {"x": rng.random(50), "y": rng.random(50)})
    >>> term = Matern("x", "y").read(table, 1.0)
    >>> term.name, [h.name for h in term.hyperparameters]
    ('matern(x, y)', ['sd', 'range'])
    """

    on_mesh = True

    made: Precision
    mesh: Mesh
    odd: Sequence[str] = ()  # what a user should know of its coordinates
    final: bool = False  # the mesh is as fine as the range asks for
    nu: Smoothness = 1.0
    trials: SmoothnessTrials = SmoothnessTrials()
    spacing: float = 0.0  # mean distance of rows
    low: np.ndarray  # of the bulk of the coordinates that fit has seen, with ``high``
    high: np.ndarray

    def __init__(
        self,
        x: Hashable,
        y: Hashable,
        *,
        mesh: Mesh | None = None,
        nu: Smoothness | None = None,
        edge: float | None = None,
        prior_range: Sequence[float] | None = None,
        prior_sd: Sequence[float] | None = None,
        barrier: float = BARRIER,
        name: Hashable = None,
    ) -> None:
        if mesh is not None:
            instance("matern", "mesh", mesh, Mesh, "fenchel.mesh(points)")
            if edge is not None:
                raise problem("matern", "both mesh and edge are given", "one of them", "The mesh has its edge.")
        self.inputs, self.given, self.wanted = (x, y), mesh, edge
        self.asked = None if nu is None else smoothness("matern", nu)
        self.prior_range = pc_pair("matern", "prior_range", prior_range)
        self.prior_sd = pc_pair("matern", "prior_sd", prior_sd)
        self.barrier = scalar("matern", "barrier", barrier, 0.0)
        self.name = f"matern({x}, {y})" if name is None else name

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return self.inputs

    def read(self, table: DataTable, scale: float) -> Self:
        out, X = copy.copy(self), numbers_of(table, self.inputs)
        if not np.ptp(X, axis=0).any():
            raise problem(table.where, f"all rows of {self.name} are at one point", "at least two places")
        bulk = bulk_of(X)
        out.odd, out.low, out.high = coordinate_remarks(self.inputs, X, bulk, table.places), bulk.low, bulk.high
        out.spacing = float(np.sqrt(np.prod(bulk.high - bulk.low) / len(X)))
        out.nu = 1.0 if self.asked is None else self.asked
        out._on(triangulated(X, edge=self.wanted) if self.given is None else self.given)
        out.compares = self.asked is None and len(X) >= LEAST_ROWS and not out.mesh.barrier.any()
        extent, edge = bulk.extent, out.mesh.edge
        shortest = (max(edge, extent / 20.0), 0.05) if self.prior_range is None else self.prior_range
        bounds = float(np.log(0.5 * edge)), float(np.log(10.0 * max(extent, edge)))
        start = float(np.clip(np.log(max(extent / 5.0, 3.0 * edge)), *bounds))
        size = stationary_sd(scale)
        if self.prior_sd is not None:
            size = replace(size, prior=PCDeviation(*self.prior_sd))
        out.hyperparameters = size, effect_range("range", start, bounds, shortest, 2)
        if out.nu == TWO_RANGES:
            out.hyperparameters = *out.hyperparameters, ratio_of_ranges()
        return out

    def _on(self, mesh: Mesh) -> None:
        self.mesh, self.made = mesh, diffusion(mesh, self.nu, self.barrier)
        self.n_latents = mesh.n_nodes * n_fields(self.nu)

    def settled(self, theta: np.ndarray, noise: bool = True, evidence: float = 0.0) -> Self | None:
        """The same of another smoothness, or on a mesh that suits the range; None where both do, or were given.

        Smoothness comes first, on the first mesh (``SmoothnessTrials``).
        """
        if self.final:
            return None
        if not self.compares:
            return self._remade(theta, noise)
        out = copy.copy(self)
        out.trials = self.trials.and_also(self.nu, evidence, theta)
        tries = out.trials.next_one()
        out.compares = tries is not None
        out.nu = out.trials.best() if tries is None else tries
        start = out.trials.start(out.nu)
        out.hyperparameters = started(out.nu, self.hyperparameters, start)
        out._on(self.mesh)
        return out if out.compares else out._remade(start, noise) or out

    def _remade(self, theta: np.ndarray, noise: bool) -> Self | None:
        """The same on a mesh that suits the range; None where it does, or was given.

        Edges are a twelfth of the range where they were longer than a ninth of it, so that noise is told from what
        happens between nodes; without noise a fifth where they were longer than a quarter. Fields rougher than nu = 1
        have as many edges in the shorter of two ranges, but none shorter than rows are apart. The collar is as wide as
        a range of more than half the extent: near an edge of the mesh the field varies more than its sd says.
        """
        extent, reach = float((self.high - self.low).max()), float(np.exp(theta[1]))
        if self.given is not None:
            return None
        edges, coarse = (_EDGES, _COARSE) if noise else (_ALONE, _COARSE_ALONE)
        rough = self.nu == TWO_RANGES or float(self.nu) < 1.0
        detail = reach / (1.0 + np.exp(theta[2])) if self.nu == TWO_RANGES else reach * (self.nu != 0.0)
        finest = max(_SPACING * self.spacing, extent / _FINEST_ROUGH) if rough else extent / _FINEST
        edge, collar, link = max(detail / edges, finest), None, 0.0
        finer = self.wanted is None and detail <= coarse * self.mesh.edge and edge <= 0.9 * self.mesh.edge
        if reach > _FAR * extent:
            collar = min(reach, (_FAR if rough else _FARTHEST) * extent)
            link = max(LINK * collar, _INDEPENDENT * reach)
            if not (rough and finer):
                edge = max(self.mesh.edge, detail / edges) if self.mesh.parts else self.mesh.edge
        elif not finer:
            return None
        out = copy.copy(self)
        out.final = True
        out._on(remade(self.mesh, edge, collar, link))
        size, old, *others = self.hyperparameters
        bounds = float(np.log(0.5 * out.mesh.edge)), old.bounds[1]
        out.hyperparameters = started(self.nu, [size, replace(old, bounds=bounds), *others], theta)
        return out

    def details(self) -> str:
        return self.trials.in_words(self.nu)

    def remarks(self, others: Sequence[Term]) -> list[str]:
        return [f"{self.name}: {sentence}" for sentence in self.odd]

    def remarks_at(self, theta: np.ndarray) -> list[str]:
        reach, edge = float(np.exp(theta[1])), self.mesh.edge
        if reach > _SHORT * edge:
            return []
        where = "edge=" if self.given is None else "a mesh with edge="
        return [
            f"{self.name}: the range, {reach:.3g}, is {reach / edge:.2g} edges of its mesh, and what happens between "
            f"nodes counts as noise: {where}{reach / _EDGES:.2g} tells the two apart"
        ]

    def precision(self, theta: np.ndarray) -> tuple[Any, list[Any]]:
        return self.made(theta)

    def rows(self, table: DataTable, new: bool = False) -> TermRows:
        return self._at(numbers_of(table, self.inputs), table.where)

    def new_rows(self, theta: np.ndarray, table: DataTable, ahead: bool = False) -> tuple[TermRows, list[Unseen]]:
        """Beyond a mesh without a boundary a field goes on: c f(nearest place inside) + an independent rest.

        c is its correlation at that distance.
        """
        points = numbers_of(table, self.inputs)
        design, gap = self.mesh.continued(points, table.where)
        rows, there = self._beside(design), gap > 0.0
        if not there.any():
            return rows, []
        c = np.ones(len(points))
        c[there] = self._correlation(theta, gap[there])
        rows = replace(rows, design=sp.csr_array(sp.diags_array(c) @ rows.design))
        nearest = np.asarray(design[there] @ self.mesh.nodes)
        together = partial(_together, points[there], nearest, c[there], theta, partial(self._correlation, theta))
        own = np.exp(theta[0]) * np.sqrt(1.0 - c * c)
        return rows, [UnseenPoints(own[:, None], np.ones(1), np.where(there, 0, -1), together=together)]

    def _correlation(self, theta: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """Far from edges; of nu = 0 as of two ranges, the shorter of which is that of the mesh."""
        if self.nu != 0.0:
            return correlation(distance, theta, self.nu)
        ratio = np.sqrt(1.0 + cutoff(self.mesh) * np.exp(2.0 * theta[1]) / 8.0)
        return correlation(distance, np.array([*theta, np.log(ratio - 1.0)]), TWO_RANGES)

    def _at(self, points: np.ndarray, where: str) -> TermRows:
        return self._beside(self.mesh.design(points, where))

    def _beside(self, design: Any) -> TermRows:
        """The design once for each field that this one is the sum of."""
        return TermRows(sp.hstack([design] * n_fields(self.nu), format="csr"))

    def shown(self) -> tuple[list[Hashable], TermRows]:
        """On a regular grid over the box of the points that fit has seen, where the mesh is."""
        points = grid_over(self.low, self.high)
        found, _ = self.mesh.where(points)
        points = points[(found >= 0) & ~self.mesh.barrier[found]]
        return [tuple(point) for point in points.tolist()], self._at(points, str(self.name))


def grid_over(low: np.ndarray, high: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Points (N, 2) of squares, nearly, over a box in one unit: ``side`` of them along its longer side."""
    span = high - low
    sides = np.maximum(np.round(span / span.max() * (side - 1)).astype(int) + 1, 2)
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, sides, strict=True)]
    return np.unique(np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1), axis=0)


def _together(
    X: np.ndarray,
    Y: np.ndarray,
    c: np.ndarray,
    theta: np.ndarray,
    correlated: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """The covariance of f(X) - c f(Y), point by point, under a field far from edges."""
    R = lambda A, B: correlated(cdist(A, B))
    cross = c[:, None] * R(Y, X)
    S = R(X, X) - cross - cross.T + np.outer(c, c) * R(Y, Y)
    return np.arange(len(X)), np.exp(2.0 * theta[0]) * (S + S.T) / 2.0


def pc_pair(where: str, name: str, given: Sequence[float] | None) -> tuple[float, float] | None:
    """(size, probability) as a user gives them to a term."""
    if given is None:
        return None
    pair = numeric(where, name, given)
    if pair.shape != (2,) or not (pair[0] > 0.0 and 0.0 < pair[1] < 1.0):
        raise problem(where, f"{name} = {given!r}", "(size, probability), as in (10, 0.05)")
    return float(pair[0]), float(pair[1])
