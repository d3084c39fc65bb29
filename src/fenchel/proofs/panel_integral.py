"""Integrals of many functions of one variable that may have several modes or kinks.

Panels end at the points where a density bends (marks), and at distances from them that grow by powers of four. A panel
is halved while the log of the function varies more than its ten nodes can resolve, unless the panel is negligible. Then
the Gauss-Legendre rule is compared with that of both halves until it is constant. If the function is smooth on the
scale of the distance to the nearest mark, no mode is missed, however narrow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NEGLIGIBLE = 80.0  # nats below the maximum at which a panel is negligible
_RESOLVED = 12.0  # nats by which the log of the function may vary between the nodes of a panel
_HALVINGS = 90  # most halvings
_MOST = 1 << 13  # most panels for each function
_SETTLED = 1e-13  # allowed change of the integral over a panel, relative to the whole
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)

Log = Callable[[np.ndarray, np.ndarray], np.ndarray]


def panel_integrals(log_f: Log, edges: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logs of the integrals of exp(log_f) over the range of each list of edges, their errors, and E[x^2] (n,).

    ``log_f(which, x)``: functions ``which`` (m,) at x (m, M). E[x^2] is an upper bound, from the farther end of each
    panel.
    """
    panels = _Panels.between(edges)
    top = np.full(len(edges), -np.inf)
    panels, y = _resolved(log_f, panels, top)
    lost = np.isposinf(top)
    if lost.any():
        rest = ~lost[panels.of]
        panels, y = panels.take(rest), y[rest]
    size = np.array([each[-1] - each[0] for each in edges])
    whole = panels.sums(y, top)
    farther = np.maximum(panels.start**2, panels.end**2)
    with np.errstate(invalid="ignore"):
        square = np.bincount(panels.of, whole * farther, len(edges)) / np.bincount(panels.of, whole, len(edges))
    total, missed = np.zeros(len(edges)), size * np.exp(-NEGLIGIBLE)
    for _ in range(_HALVINGS):
        halves = panels.halved()
        each = halves.sums(_evaluated(log_f, halves), top)
        both = each[: whole.size] + each[whole.size :]
        moved = np.abs(both - whole)
        reference = (total + np.bincount(panels.of, both, len(edges)))[panels.of]
        open_ = moved > _SETTLED * reference
        total += np.bincount(panels.of[~open_], both[~open_], len(edges))
        missed += np.bincount(panels.of[~open_], moved[~open_], len(edges))
        panels, whole = halves.take(np.r_[open_, open_]), each[np.r_[open_, open_]]
        if whole.size > _MOST * len(edges) or not whole.size:
            break
    left = np.bincount(panels.of, whole, len(edges))
    total, missed = total + left, missed + left
    with np.errstate(divide="ignore", invalid="ignore"):
        value, error = top + np.log(total), missed / total
    return np.where(lost, np.inf, value), np.where(lost, 0.0, error), np.where(lost, 0.0, square)


class _Panels:
    """Intervals (m,), and the index of the function that each belongs to."""

    def __init__(self, of: np.ndarray, start: np.ndarray, end: np.ndarray) -> None:
        self.of, self.start, self.end = of, start, end

    @classmethod
    def between(cls, edges: list[np.ndarray]) -> _Panels:
        of = np.repeat(np.arange(len(edges)), [each.size - 1 for each in edges])
        return cls(of, np.concatenate([e[:-1] for e in edges]), np.concatenate([e[1:] for e in edges]))

    def take(self, index: np.ndarray) -> _Panels:
        return _Panels(self.of[index], self.start[index], self.end[index])

    def halved(self) -> _Panels:
        """All left halves, then all right ones."""
        middle = 0.5 * (self.start + self.end)
        return _Panels(np.r_[self.of, self.of], np.r_[self.start, middle], np.r_[middle, self.end])

    def nodes(self) -> np.ndarray:
        half = 0.5 * (self.end - self.start)[:, None]
        return np.asarray(0.5 * (self.start + self.end)[:, None] + half * _NODES)

    def sums(self, y: np.ndarray, top: np.ndarray) -> np.ndarray:
        """Integrals (m,) from values of the log (m, 10), in units of exp(top)."""
        return np.asarray(np.exp(y - top[self.of][:, None]) @ _WEIGHTS * 0.5 * (self.end - self.start))


def _evaluated(log_f: Log, panels: _Panels) -> np.ndarray:
    return np.asarray(log_f(panels.of, panels.nodes()))


def _resolved(log_f: Log, panels: _Panels, top: np.ndarray) -> tuple[_Panels, np.ndarray]:
    """Panels on which the function is resolved, without negligible ones, and its log at their nodes.

    ``top`` (n,) is set to the largest value of each function, or to infinity if rounding prevents resolution.
    """
    kept: list[tuple[_Panels, np.ndarray]] = []
    for _ in range(_HALVINGS):
        y = _evaluated(log_f, panels)
        high, low = y.max(axis=1), y.min(axis=1)
        np.maximum.at(top, panels.of, high)
        with np.errstate(invalid="ignore"):
            varies = high - low
            alive = high + np.where(np.isfinite(varies), varies, 0.0) > top[panels.of] - NEGLIGIBLE
            divide = alive & (varies > _RESOLVED) & (panels.end - panels.start > 1e-15 * np.abs(panels.end))
        rest = alive & ~divide
        kept.append((panels.take(rest), y[rest]))
        panels = panels.take(divide).halved()
        if panels.of.size > _MOST * top.size:
            top[panels.of] = np.inf  # the variation comes from rounding
            break
        if not panels.of.size:
            break
    parts = [(p.of, p.start, p.end) for p, _ in kept]
    return _Panels(*map(np.concatenate, zip(*parts, strict=True))), np.concatenate([y for _, y in kept])


def graded_edges(marks: np.ndarray, widths: np.ndarray, reach: float) -> np.ndarray:
    """Edges between -reach and reach: the marks, and points at distances from them that grow by powers of four.

    The first distance is half of the mark's width. A mark with infinite width is a kink, which is a single edge.
    """
    kept: list[float] = []
    own: list[np.ndarray] = []
    last = -np.inf
    for mark, width in sorted(zip(marks.tolist(), widths.tolist(), strict=True)):
        if not abs(mark) < reach:
            continue
        if np.isfinite(width) and mark - last < 0.1 * width:
            continue
        kept.append(mark)
        if not np.isfinite(width):
            continue
        last = mark
        far = int(np.ceil(np.log(max(4.0 * reach / width, 4.0)) / np.log(4.0)))
        away = 0.5 * width * 4.0 ** np.arange(far)
        own.append(np.r_[mark - away, mark + away])
    every = np.concatenate([[-reach, reach], kept, *own])
    return np.unique(np.clip(every, -reach, reach))
