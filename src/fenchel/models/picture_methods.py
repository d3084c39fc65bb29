"""The pictures of a fitted model, as its methods."""

from __future__ import annotations

from typing import Any

from ..inputs.frames import Table


class Pictures:
    """Methods of ``FittedModel`` that draw; each returns matplotlib's Axes."""

    def plot(self: Any, name: Any = None, ax: Any = None) -> Any:
        """The coefficients, the effect of a term, or E[y] (of Cox the log hazard ratio) along a column of the fixed
        part, the others typical. Several panels (slopes, curves of groups) are an array of Axes with a ``figure``."""
        from .pictures import plot

        return plot(self, name, ax)

    def plot_check(self: Any, kind: str | None = None, ax: Any = None, by: Any = None) -> Any:
        """A posterior predictive check: the data beside data sets that the fitted model makes.

        ``kind``: "rootogram" of counts, "density" of numbers, "reliability" of two labels and of successes, "bars" of
        levels, "survival" of durations; default: what suits y. "pit": where y lies in its prediction from the rest.
        "groups", the default of Cox fits: Kaplan and Meier's estimate with its band beside the model's survival, of
        thirds of the rows by risk, or of the levels (thirds of the numbers) of the column ``by``.
        """
        from .checking import plot_check

        return plot_check(self, kind, ax, by)

    def plot_survival(
        self: Any, new: Table, times: Any = None, *, interval: float | None = 0.95, ax: Any = None, **draws: Any
    ) -> Any:
        """P(T > t) of up to seven new rows over time, of "cox", "weibull" and "exponential", with bands.

        ``times``: up to the last time of the data, of Cox the last event, by default. ``draws`` as in ``survival``.
        """
        from .durations import plot_survival

        return plot_survival(self, new, times, interval, ax, **draws)

    def plot_joint(self: Any, first: Any, second: Any, ax: Any = None) -> Any:
        """Two hyperparameters of an integrated fit: the regions that hold 50 and 90 %, and the points that were fitted.
        Each by its names in ``hyperparameters``: ("(1|g)", "sd"), or "sd of (1|g)".
        """
        from .pictures import plot_joint

        return plot_joint(self, first, second, ax)

    def plot_map(self: Any, name: Any, geodata: Any, ax: Any = None, column: str | None = None) -> Any:
        """An effect of regions on a map: a GeoDataFrame or GeoSeries, or GeoJSON, whose labels are the regions'.

        ``column`` of the effect's frame; default: the ratio (relative risk, odds ratio), or the mean. Regions go by the
        index or the ids, or by a column or property that is called as the regions are in the model. A product of
        regions and times has a map for six of the times.
        """
        from .pictures import draw_map

        return draw_map(self, name, geodata, ax, column)
