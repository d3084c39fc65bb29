"""What covariates do, asked of a fit: contrasts of rows, marginal means, comparisons and slopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..checks import choice, problem
from ..distributed import is_dask
from ..inputs.frames import Table
from . import averages, marginal_means
from .capabilities import answers, check
from .fit_tables import FitTables
from .marginal_means import Question
from .reference_grid import listed

if TYPE_CHECKING:
    import pandas as pd


class FitEffects(FitTables):
    """The part of a fitted model that answers for covariates."""

    def contrast(
        self, first: Table, second: Table, kind: str = "link", *, interval: float = 0.95, without: Any = ()
    ) -> pd.DataFrame:
        """``first`` minus ``second``, row by row: mean, sd, interval and the probability to be above 0.

        ``kind`` "link" compares eta, "mean" E[y] at exposure 1 and one trial. A frame of one row is compared with every
        row of the other. Columns that neither of them names are the same in both, numbers at their mean and others at
        their most frequent level: of terms that add up they cancel in eta, and beside an interaction, a slope of groups
        or in E[y] they do not, where naming them says at which values the two are compared. ``without`` names terms
        that are 0 in both, as in ``predict``: "groups" compares at the centre of the population.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.1, 2.9, 5.1, 6.9]})
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.contrast({"x": [3.0]}, {"x": [1.0]})["mean"].round(1).tolist()
        [3.9]
        """
        check(self, "contrast")
        choice("contrast", "kind", kind, ("link", "mean"))
        return averages.contrast(self, first, second, kind, interval, without)

    def means(
        self,
        names: str | Sequence[str] = (),
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        data: Table = None,
        weights: str = "equal",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """Predictions for the values of some columns, averaged over the others: marginal means.

        Parameters
        ----------
        names : str or several
            Columns whose levels, or values, are asked one by one. Of numbers with many values: the mean and an sd on
            either side; ``at`` chooses others.
        by : str or several, optional
            Further columns; with ``weights="population"`` parts of the data.
        at : mapping, optional
            By column the values asked for, or, of other columns, where they are held (several: averaged over).
        weights : "equal", "cells" or "population"
            What is averaged over: all combinations of levels alike, numbers at their mean unless they have two values
            (emmeans' reference grid); the same with combinations as often as the data have them in each cell; the rows
            of the data themselves, with ``names`` changed (marginaleffects' ``avg_predictions``).
        data : data frame or dict of columns, optional
            Other rows for ``weights="population"``.
        scale : "mean", "link" or "outcome", optional
            E[y] at exposure 1 and one trial (default), eta (of a Cox model, which has no mean), or y itself.
        groups : "centre", "population" or "own"
            Effects of groups: 0, as lme4's ``re.form=NA``; averaged over the population of groups; or, with
            ``weights="population"``, each row's own.
        interval : float
        simultaneous : bool
            Whether all intervals hold together with that probability.

        Returns
        -------
        pandas frame
            The columns asked for, estimate, std_error, conf_low, conf_high, and mc_error: the Monte Carlo error of the
            estimate, 0 where it is exact, as averages of eta are.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"y": [1.0, 2.0, 3.0, 5.0, 4.0, 6.0], "f": list("aabbcc")})
        >>> fenchel.fit("y ~ f", data, "gaussian", accuracy="fast").means("f", scale="link")[["f", "estimate"]].round(1)
           f  estimate
        0  a       1.5
        1  b       4.0
        2  c       5.0
        """
        question = self._question("means", by, at, data, weights, scale, groups, interval, simultaneous)
        return marginal_means.means(self, listed(names), question)

    def comparisons(
        self,
        name: str,
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        data: Table = None,
        kind: str = "difference",
        contrast: Any = "pairwise",
        step: float | None = None,
        weights: str = "equal",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """What one value of a column makes of a prediction beside another; parameters as in ``means``.

        Parameters
        ----------
        name : str
            A factor, whose levels are compared, or a number, of which ``step`` more is (default: 1); ``at`` names
            values of it to compare instead.
        kind : "difference", "ratio" or "odds"
            A ratio of odds is that of probabilities, averaged as they are; on the link it is exp of a difference.
        contrast : "pairwise", "reference", "consecutive", or mapping
            Which values: all pairs, each with the first, each with the one before; or weights of the values by label.

        Returns
        -------
        pandas frame
            term, contrast, the columns of ``by``, and those of ``means`` with p_above_0, of ratios p_above_1.
            Estimates of ratios are medians, their std_error is to first order.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"y": [1.0, 2.0, 3.0, 5.0, 4.0, 6.0], "f": list("aabbcc")})
        >>> fit = fenchel.fit("y ~ f", data, "gaussian", accuracy="fast")
        >>> fit.comparisons("f", scale="link")[["contrast", "estimate"]].round(1)
          contrast  estimate
        0    b - a       2.5
        1    c - a       3.5
        2    c - b       1.0
        """
        question = self._question("comparisons", by, at, data, weights, scale, groups, interval, simultaneous)
        return marginal_means.comparisons(self, name, question, kind, contrast, step)

    def slopes(
        self,
        name: str,
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        data: Table = None,
        weights: str = "population",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
    ) -> pd.DataFrame:
        """The slope of a prediction along a column of numbers, averaged; parameters as in ``means``.

        ``at={"x": [1, 2]}`` takes the slope along x at these values, else where the rows are, or at its mean with other
        weights. Beside ``(x|g)`` it is the population's, or with ``groups="own"`` the average of the rows' own.

        Examples
        --------
        >>> import fenchel, pandas as pd
        >>> data = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "y": [1.1, 2.9, 5.1, 6.9]})
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.slopes("x")[["term", "estimate"]].round(1)
          term  estimate
        0    x       2.0
        """
        question = self._question("slopes", by, at, data, weights, scale, groups, interval, simultaneous)
        return marginal_means.slopes(self, name, question)

    def plot_effect(
        self,
        name: str,
        *,
        by: Any = None,
        at: Mapping[str, Any] | None = None,
        weights: str = "equal",
        scale: str | None = None,
        groups: str = "centre",
        interval: float = 0.95,
        simultaneous: bool = False,
        data: bool = True,
        ax: Any = None,
    ) -> Any:
        """A picture of ``means`` over the values of a column, with bands, and the rows of the data beneath.

        Parameters
        ----------
        name : str
            Numbers are drawn over their range as a curve, levels as points; ``at`` chooses other values.
        by : str or several, optional
            A curve for each value, up to seven.
        at, weights, scale, groups, interval, simultaneous
            As in ``means``: the title says where the other columns are held, or which are averaged over.
        data : bool
            Whether rows are drawn, y for one trial at exposure 1; none on the link, of levels and of durations.
        ax : matplotlib Axes, optional

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> import fenchel, numpy as np, pandas as pd
        >>> x = np.linspace(0.0, 3.0, 40)
        >>> fit = fenchel.fit("y ~ s(x)", pd.DataFrame({"x": x, "y": np.sin(x)}), "gaussian", accuracy="fast")
        >>> fit.plot_effect("x").get_xlabel()
        'x'
        """
        from .effect_pictures import plot_effect

        check(self, "plot")
        question = self._question("means", by, at, None, weights, scale, groups, interval, simultaneous)
        return plot_effect(self, name, replace(question, where="plot_effect"), data, ax)

    def _question(
        self, where: str, by: Any, at: Any, data: Table, weights: str, scale: str | None, *rest: Any
    ) -> Question:
        check(self, where)
        self._check_table(where, data)
        if scale != "link" and not answers(self, "predict"):
            if scale is not None:
                check(self, "predict")
            scale = "link"
        return Question(where, [] if by is None else listed(by), dict(at or {}), data, weights, scale or "mean", *rest)

    def _check_table(self, question: str, new: Any) -> None:
        """Refuse tables of Dask's, and the rows of the data where these are out of memory."""
        if is_dask(new):
            raise problem(question, "a table of Dask's", "a table in memory: new.compute()")
        if new is None and not self.engine.keeps_rows:
            got = "without a table it needs rows of the fit, which are out of memory"
            raise problem(question, got, f"{question} of a table")
