"""Survival over time: what Kaplan and Meier find in data, and what a model says, each from plain arrays.

S(t) = prod_{t_k <= t} (1 - d_k / n_k)                              d_k events at t_k, n_k at risk
V = sum_{t_k <= t} d_k / (n_k (n_k - d_k))                          Greenwood's variance of log S
S^{exp(+- z sqrt(V) / log S)}                                       its interval, on the scale of log(-log S)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ..checks import problem
from .base import PALETTE, finished, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Z = float(ndtri(0.975))  # sds either way of a normal: 95 %


def kaplan_meier(
    time: np.ndarray, happened: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The times of events and censorings, the estimated probability to last longer, and its 95 % interval.

    ``weights`` say how often each row counts. The interval is NaN from where nobody is left.

    Examples
    --------
    >>> import numpy as np
    >>> from fenchel.plots.survival import kaplan_meier
    >>> kaplan_meier(np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, True]))[1]
    array([0.75, 0.5 , 0.5 , 0.  ])
    """
    own = np.ones(time.size) if weights is None else weights
    steps, place = np.unique(time, return_inverse=True)
    left = np.bincount(place, own, steps.size)
    at_risk = np.cumsum(left[::-1])[::-1]
    died = np.bincount(place[happened], own[happened], steps.size)
    survived = np.cumprod(1.0 - died / at_risk)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(died / (at_risk * (at_risk - died)))
        move = np.exp(_Z * np.sqrt(variance) / np.abs(np.log(survived)))
        lower, upper = survived**move, survived ** (1.0 / move)
    none, gone = survived == 1.0, survived <= 0.0  # nobody yet, and nobody left
    lower, upper = (np.where(none, 1.0, np.where(gone, np.nan, end)) for end in (lower, upper))
    return steps, survived, lower, upper


@dataclass(frozen=True)
class Survived:
    """Rows of one group: their durations, and what a model says of them.

    Attributes
    ----------
    time, event : arrays (N,)
        ``event`` is 1 where it happened, 0 where it had not by then.
    at, share : arrays (T,)
        Times, and the probability to last longer by the model, averaged over the rows.
    weights : array (N,), optional
        How often each row counts.
    """

    time: np.ndarray
    event: np.ndarray
    at: np.ndarray
    share: np.ndarray
    weights: np.ndarray | None = None


def plot_survival_groups(
    groups: Mapping[str, Survived], ax: Axes | None = None, *, steps: bool = False, xlabel: str = "time"
) -> Axes:
    """Groups of rows: Kaplan and Meier's curve of each with its 95 % band, and dashed that of a model.

    ``steps``: the model's survival is constant between its times.
    """
    _few("plot_survival_groups", len(groups))
    ax = new_figure(5.6, 3.6).subplots() if ax is None else ax
    style = "steps-post" if steps else "default"
    for colour, (name, group) in zip(PALETTE, groups.items(), strict=False):
        happened = np.asarray(group.event, dtype=np.float64) > 0.0
        at, share, lower, upper = kaplan_meier(np.asarray(group.time, dtype=np.float64), happened, group.weights)
        x, lower, upper = np.r_[0.0, at], np.r_[1.0, lower], np.r_[1.0, upper]
        ax.step(x, np.r_[1.0, share], where="post", color=colour, linewidth=1.4, label=name)
        ax.fill_between(x, lower, upper, step="post", color=colour, alpha=0.18, linewidth=0)
        ax.plot(group.at, group.share, color=colour, linestyle="--", drawstyle=style, linewidth=1.6)
    ax.plot([], [], color="black", linewidth=1.4, label="data, with a 95 % band")
    ax.plot([], [], color="black", linestyle="--", linewidth=1.6, label="model")
    ax.set_ylim(0.0, 1.02)
    return finished(ax, xlabel, "share that lasts longer")


def plot_survival_curves(
    at: Any, curves: Mapping[str, Any], ax: Axes | None = None, *, steps: bool = False, xlabel: str = "time"
) -> Axes:
    """P(T > t) of some rows at times (T,): mean, or mean, lower and upper (3, T), by what each is called."""
    _few("plot_survival_curves", len(curves))
    ax = new_figure(5.6, 3.6).subplots() if ax is None else ax
    style = "steps-post" if steps else "default"
    for colour, (name, given) in zip(PALETTE, curves.items(), strict=False):
        mean, *ends = np.atleast_2d(given)
        ax.plot(at, mean, color=colour, drawstyle=style, linewidth=1.6, label=name)
        if ends:
            lower, upper = ends
            ax.fill_between(at, lower, upper, step="post" if steps else None, color=colour, alpha=0.2, linewidth=0)
    ax.set_ylim(0.0, 1.02)
    return finished(ax, xlabel, "P(T > t)")


def _few(where: str, n: int) -> None:
    if not 1 <= n <= len(PALETTE):
        raise problem(where, f"{n} curves", f"1 to {len(PALETTE)}, which can be told apart")
