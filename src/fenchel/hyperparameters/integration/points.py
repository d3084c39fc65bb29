"""The fits of an integration over theta, and the centre about which its points lie.

``Fitter`` fits at given thetas: each fit starts on the plane through the first ones, and is kept as it finishes.

``centred`` goes from the mode of the elbo to that of the corrected evidence. The curvature is that of ``mode_of``. What
the correction adds is read off 2 d + 1 points about the mode of the elbo (``CorrectionModel``), or one where it is
negligible: each of Newton's steps costs one fit and no correction.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator

from ...checks import problem
from ...corrections import Corrected, correct
from ...corrections.collapsed import Collapsed
from ...corrections.importance import ImportanceSample
from ...corrections.interpolated import Interpolated
from ...corrections.posterior_on_grids import Like
from ...linalg.arrays import to_numpy
from ...problem import Problem
from ...solvers.base import Callback
from ...solvers.solution import Solution, kept_numbers, restored
from ...tasks import Jobs, run_tasks
from ..base import Learned
from ..correction_model import NEGLIGIBLE, CorrectionModel
from ..evidence import Evidence, WarmStarts
from ..mode import Coordinates, Evaluation, Mode, mode_of

LONGEST_SHIFT = 2.0  # of any s from the nearest fit
SAME_THETA = 1e-6  # log units: on another machine the points of a design are a rounding apart
LONGEST_STEP = 1.0  # sds
SHORTEST_STEP = 0.15  # sds: one that is not worth a fit
MOST_STEPS = 6
STAR = 1.5  # sds from the mode of the elbo at which corrections are computed
SLOW_FALL = 2.5  # nats of the elbo, three sds from the mode: less is a long tail, and has a correction of its own
MOST_CHANGE = 4.0  # times by which a correction may change a curvature
NARROW = 2.5  # sds: bounds nearer to one another leave a lattice no point beside its centre


@dataclass(frozen=True, eq=False)
class Point:
    """A theta and the fit there.

    Attributes
    ----------
    theta : array (n,)
    log_prior : float
    solution : Solution
    corrected : Corrected, Collapsed or ImportanceSample, where it was asked for
    gradient : array (n,), where it was asked for
        Of elbo + log p(theta).
    """

    theta: np.ndarray
    log_prior: float
    solution: Solution
    corrected: Corrected | Collapsed | Interpolated | ImportanceSample | None = None
    gradient: np.ndarray | None = None

    @property
    def usable(self) -> bool:
        """Whether there is a corrected evidence, and it is nearer than the elbo."""
        return self.corrected is not None and bool(self.corrected.nearer) and np.isfinite(self.corrected.log_evidence)

    @property
    def gain(self) -> float:
        """The corrected evidence less the elbo; NaN where the elbo is as near."""
        if not self.usable or self.corrected is None:
            return float("nan")
        return float(self.corrected.log_evidence - self.solution.elbo)

    @property
    def slope(self) -> np.ndarray:
        """The gradient of a point that was asked for it."""
        assert self.gradient is not None
        return self.gradient

    @property
    def plain(self) -> float:
        """elbo + log p(theta)."""
        return float(self.solution.elbo + self.log_prior)

    @property
    def name(self) -> bytes:
        """By which it is found again."""
        return _name(self.theta, self.gradient is not None)

    def numbers(self) -> dict[str, Any]:
        """What a file keeps of the fit."""
        return {"theta": self.theta, "gradient": self.gradient, "solution": kept_numbers(self.solution)}


@dataclass
class Finished:
    """What an integration has finished, in memory or in a file: given to it again, it goes on from there.

    Parameters
    ----------
    path : str or Path, optional
        A file, to which every fit is added when it ends. It is a pickle: resume only from files that you trust.

    Examples
    --------
    >>> from fenchel.hyperparameters.integration import Finished
    >>> len(Finished())
    0
    """

    path: str | Path | None = None
    points: dict[bytes, Point] = field(default_factory=dict)
    mode: Learned | None = None
    about: Any = None  # what the fits are of

    def __len__(self) -> int:
        return len(self.points)

    def open(self, about: Any) -> None:
        """Read the file, if there is one; refuse what was finished of something else."""
        if self.path is not None and Path(self.path).exists() and not self.points and self.mode is None:
            for kind, value in self._records(Path(self.path)):
                if kind == "about":
                    self.about = value
                elif kind == "mode":
                    self.mode = value
                else:
                    self.points[value.name] = value
        if self.about is None:
            self._add("about", about)
            self.about = about
        elif self.about != about:
            got = "checkpoint holds fits of another model, other data or other settings"
            raise problem("integrate", got, "its own", "Give another file, or remove this one.")

    @staticmethod
    def _records(path: Path) -> Iterator[tuple[str, Any]]:
        """The records of a file; one that was interrupted is cut off, so that what is added later can be read."""
        with path.open("r+b") as file:
            while True:
                whole = file.tell()
                try:
                    yield pickle.load(file)
                except (EOFError, pickle.UnpicklingError):
                    file.truncate(whole)
                    return

    def _add(self, kind: str, value: Any) -> None:
        if self.path is not None:
            with Path(self.path).open("ab") as file:
                file.write(pickle.dumps((kind, value)))

    def keep(self, point: Point) -> None:
        self._add("point", point)
        self.points[point.name] = point

    def keep_mode(self, mode: Learned) -> None:
        self._add("mode", mode)
        self.mode = mode


def _name(theta: np.ndarray, sloped: bool) -> bytes:
    return np.asarray(theta, dtype=np.float64).tobytes() + bytes([sloped])


@dataclass
class Fitter:
    """Fits at any theta.

    Attributes
    ----------
    evidence : Evidence
    beyond : bool
        Whether the corrected evidence is wanted.
    n_jobs : int, None or Dask client
        Who fits (``fenchel.tasks``).
    finished : Finished
    report : callable, optional
        Hears of every fit.
    n_fits : int
        Fits that were run, those read from ``finished`` aside.
    kept : list of dict, optional
        The numbers of fits in a file that is being loaded (``Point.numbers``): nothing is fitted again.
    """

    evidence: Evidence
    beyond: bool
    n_jobs: Jobs
    finished: Finished
    report: Callback | None = None
    n_fits: int = 0
    kept: list[dict[str, Any]] | None = None
    around: tuple[list[Point], np.ndarray] | None = None
    like: Like | None = None  # that of the correction at the mode

    def start_from(self, points: Sequence[Point]) -> None:
        """Later fits start on the plane through these, the nearest of them last."""
        self.evidence.warm = WarmStarts(points[-1].solution, tuple((p.theta, to_numpy(p.solution.s)) for p in points))

    def start_near(self, points: Sequence[Point], scale: np.ndarray) -> None:
        """Later fits start where those of these that are nearest point to, in units of ``scale`` (n,)."""
        self.around = list(points), scale

    def corrected(self, points: Sequence[Point]) -> list[Point]:
        """The same points with their correction, where they have none."""
        if not self.beyond:
            return list(points)
        out = []
        for point in points:
            if point.corrected is None:
                point = replace(point, corrected=correct(point.solution, True, self.like))
                self.finished.keep(point)
            out.append(point)
        return out

    def at(self, thetas: Sequence[np.ndarray], sloped: bool = False, plain: Any = False) -> list[Point]:
        """The points at thetas, in order; with ``sloped`` they have a gradient, with ``plain``, one for all or one for
        each, no correction.
        """
        if self.kept is not None:
            thetas = [nearest(self.kept, theta, sloped)["theta"] for theta in thetas]
        known = self.finished.points
        names = [_name(theta, sloped or _name(theta, True) in known) for theta in thetas]
        wanted = zip(names, thetas, np.broadcast_to(plain, len(thetas)), strict=True)
        items = {name: (theta, self.beyond and not light) for name, theta, light in wanted if name not in known}
        shared = _Shared(self.evidence, self.around, sloped, self.kept, self.like)
        run_tasks(
            _Shared.fitted,
            list(items.values()),
            shared,
            where="integrate",
            n_jobs=self.n_jobs,
            hear=lambda _, point: self._finish(point),
        )
        return [known[name] for name in names]

    def _finish(self, point: Point) -> None:
        self.finished.keep(point)
        if self.kept is not None:
            return
        self.n_fits += 1
        if self.report is not None:
            sol = point.solution
            row = {"elbo": sol.elbo, "elbo_upper": sol.elbo_upper, "gap": sol.gap, "step": float(sol.n_iter)}
            self.report({"iteration": float(self.n_fits), "seconds": float(sol.trace["seconds"][-1]), **row})


class _Shared(NamedTuple):
    """What fits at several thetas have in common."""

    evidence: Evidence
    around: tuple[list[Point], np.ndarray] | None
    sloped: bool
    kept: list[dict[str, Any]] | None = None
    like: Like | None = None

    def fitted(self, item: tuple[np.ndarray, bool]) -> Point:
        """The fit at one theta, with its correction or without."""
        theta, beyond = item
        if self.kept is not None:
            point = restored_at(self.evidence, nearest(self.kept, theta, self.sloped))
        else:
            point = fitted_at(self._begun(theta), theta, self.sloped)
        return replace(point, corrected=correct(point.solution, True, self.like)) if beyond else point

    def _begun(self, theta: np.ndarray) -> Evidence:
        """The evidence with the start of a fit at theta: a smooth function through the nearest fits."""
        if self.around is None:
            return self.evidence
        own, (points, scale) = copy.copy(self.evidence), self.around
        away = np.array([(p.theta - theta) / scale for p in points])
        order = np.argsort(np.linalg.norm(away, axis=1), kind="stable")[: 5 * theta.size + 5]
        away, near = away[order], [to_numpy(points[int(k)].solution.s) for k in order]
        first = points[int(order[0])]
        own.warm = own.warm._replace(last=first.solution)
        moving = np.flatnonzero(np.ptp(away, axis=0) > 0.0)
        if len(order) < 2 * moving.size + 2:
            return own
        through = RBFInterpolator(away[:, moving], np.stack(near).reshape(len(near), -1), kernel="cubic", degree=1)
        there = through(np.zeros((1, moving.size))).reshape(near[0].shape)
        start = near[0] + np.clip(there - near[0], -LONGEST_SHIFT, LONGEST_SHIFT)
        own.warm = WarmStarts(first.solution, ((first.theta, near[0]), (np.array(theta), start)))
        return own


def fitted_at(evidence: Evidence, theta: np.ndarray, sloped: bool) -> Point:
    """One fit, which leaves ``evidence`` as it was: the same whatever has been fitted before it."""
    own = copy.copy(evidence)
    gradient = own(theta)[1] if sloped else None
    solution = own.solution if sloped else own.fit(theta)
    return Point(np.array(theta), float(own.log_prior(theta)[0]), solution, None, gradient)


def nearest(kept: list[dict[str, Any]], theta: np.ndarray, sloped: bool) -> dict[str, Any]:
    """The numbers of the fit at theta; ``sloped``: with a gradient."""
    some = [each for each in kept if sloped <= (each["gradient"] is not None) and each["theta"].shape == theta.shape]
    away = [float(np.abs(each["theta"] - theta).max(initial=0.0)) for each in some]
    if not away or not min(away) <= SAME_THETA:
        raise ValueError("it has no fit at a theta of its integration")
    return some[int(np.argmin(away))]


def restored_at(evidence: Evidence, numbers: dict[str, Any]) -> Point:
    """The fit at one theta from its numbers."""
    theta = np.asarray(numbers["theta"], dtype=np.float64)
    first, likelihood = evidence.split(theta)
    solution = restored(Problem(likelihood, evidence.family.at(first), evidence.targets), numbers["solution"])
    return Point(theta, float(evidence.log_prior(theta)[0]), solution, None, numbers["gradient"])


@dataclass(frozen=True)
class Centre:
    """Where points are laid about.

    Attributes
    ----------
    coordinates : Coordinates
    points : list of Point
        The centre, then the fits that the widths were read off.
    peak : array (n,)
        Where the density is largest: a last Newton step from the centre, too short to be worth a fit.
    known : list of Point
        Those that have a correction.
    model : CorrectionModel, where the correction is used
    """

    coordinates: Coordinates
    points: list[Point]
    peak: np.ndarray
    known: list[Point]
    model: CorrectionModel | None

    def values(self, points: Sequence[Point], beyond: bool = True) -> np.ndarray:
        """The log density of theta at points (K,), up to p(y)."""
        plain = np.array([p.plain for p in points])
        if not beyond or self.model is None:
            return plain
        return np.asarray(plain + self.model(np.array([p.theta for p in points])))

    def with_correction(self, point: Point) -> Centre:
        """The same where the correction of one more point is known."""
        model = self.model
        if model is not None and point.usable:
            model = model.with_point(point.theta, point.gain)
        return replace(self, known=[*self.known, point], model=model)


def centred(fitter: Fitter, learned: Learned, free: list[int], beyond: bool, sloped: bool = False) -> Centre:
    """From the mode of the elbo, over the entries ``free``; ``beyond``: to that of the corrected evidence; ``sloped``:
    with gradients at all points.
    """
    fitter.evidence.begin(learned.solution)
    (here,) = fitter.at([learned.theta], sloped=True)
    known, beyond = [here] if beyond else [], beyond and here.usable
    fitter.like = None if here.corrected is None else here.corrected.like
    fitter.evidence.begin(here.solution)
    around: list[Point] = []

    def evaluate(thetas: list[np.ndarray]) -> list[Evaluation]:
        around[:] = fitter.at(thetas, sloped=True, plain=True)
        return [Evaluation(p.theta, p.plain, p.slope) for p in around]

    held = set(range(learned.theta.size)) - set(free)
    mode = mode_of(fitter.evidence, learned.theta, hold=held, evaluate=evaluate)
    told = _told_by_bounds(mode)
    mode = replace(mode, curvature=mode.curvature + np.diag(told))
    fitter.start_from([*around, here])
    centre = Centre(Coordinates.straight(here.theta, mode.free, mode.directions), [here], here.theta, known, None)
    if beyond:
        known += fitter.at(_star(fitter, here.theta, mode)) if abs(here.gain) > NEGLIGIBLE else []
        gains = [(p.theta, p.gain) for p in known if p.usable]
        thetas, values = (np.array(each) for each in zip(*gains, strict=True))
        centre = replace(centre, model=CorrectionModel(centre.coordinates, thetas, values))
        centre, mode = _climbed(fitter, centre, mode)
    (here,) = centre.points

    def values_at(thetas: list[np.ndarray]) -> list[float]:
        nonlocal centre
        points[:] = fitter.at(thetas, sloped=sloped, plain=True)
        if not points:  # bounds on every side
            return []
        for k, point in enumerate(points):
            if centre.model is not None and here.plain - point.plain < SLOW_FALL:  # a long tail, far from the star
                (points[k],) = fitter.corrected([point])
                centre = centre.with_correction(points[k])
        away = np.array(thetas)[:, mode.free] - here.theta[mode.free]
        return list(centre.values(points) - centre.values([here]) - 0.5 * away**2 @ told)

    points: list[Point] = []
    slope = here.slope if centre.model is None else here.slope + centre.model.slope(here.theta)
    mode = replace(mode, theta=here.theta, value=0.0, gradient=slope)
    bent = mode.coordinates(values_at)
    model = None if centre.model is None else centre.model.moved(bent)
    return replace(centre, coordinates=bent, points=[here, *points], model=model)


def _told_by_bounds(mode: Mode) -> np.ndarray:
    """The curvature (d,) of free entries that bounds hold more closely than the data do: 1 / a uniform's variance."""
    width = np.diff(mode.bounds[mode.free], axis=1)[:, 0]
    return np.where(width < NARROW * np.sqrt(np.diag(mode.covariance)[mode.free]), 12.0 / width**2, 0.0)


def _star(fitter: Fitter, theta: np.ndarray, mode: Mode) -> list[np.ndarray]:
    """Two points along each direction, as far as the bounds allow."""
    low, high = fitter.evidence.bounds.T
    out = []
    for way in STAR * np.concatenate([mode.directions.T, -mode.directions.T]):
        step = np.zeros(theta.size)
        step[mode.free] = way
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(step > 0.0, high - theta, low - theta) / step
        out.append(theta + step * min(1.0, 0.9 * float(room[step != 0.0].min(initial=np.inf))))
    return out


def _climbed(fitter: Fitter, centre: Centre, mode: Mode) -> tuple[Centre, Mode]:
    """Newton's steps to where the slope of the elbo and that of the correction cancel, and the curvature there."""
    (low, high), free, here, peak = fitter.evidence.bounds.T, mode.free, centre.points[0], centre.peak
    model, root = centre.model, mode.directions
    assert model is not None
    # no ``Search``: curvatures are those at the start, and stay
    sizes, axes = np.linalg.eigh(np.eye(len(free)) - root.T @ model.curvature @ root)
    root = root @ (axes / np.sqrt(np.clip(sizes, 1.0 / MOST_CHANGE, MOST_CHANGE)))
    for _ in range(MOST_STEPS):
        z = root.T @ (here.slope + model.slope(here.theta))[free]
        size, theta = float(np.linalg.norm(z)), here.theta.copy()
        theta[free] += root @ (z * min(1.0, LONGEST_STEP / max(size, SHORTEST_STEP)))
        if not ((theta > low) & (theta < high)).all():
            break
        peak = theta
        if size < SHORTEST_STEP:
            break
        (there,) = fitter.at([theta], sloped=True, plain=True)
        rise = np.diff(centre.values([here, there]))[0]
        if not rise > 0.0:
            peak = here.theta
            break
        here = there
    inverse = np.linalg.inv(root)
    mode = replace(mode, curvature=inverse.T @ inverse)
    return replace(centre, points=[here], peak=peak), mode
